"""Resuming a run: load its latest whole checkpoint, change its settings, and tell if it has finished.

A run directory is data. It brings weights, numbers and choices. The configuration of this installation and the command
line bring everything that acts: callbacks, loggers, the trainer, and the paths to write to.
"""

import contextlib
import copy
import difflib
import errno
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.checkpoint import BEST, BROKEN, LAST, PREVIOUS, RESUMABLE, checkpoints_of, pause_in, read_checkpoint
from nmt.config.build import may_build
from nmt.config.types import GROUPS, flat, say
from nmt.errors import UserError, first_line
from nmt.run.paths import load_config
from nmt.training.memory import is_out_of_memory

log = logging.getLogger(__name__)

# Settings that may change when a run is resumed
CHANGEABLE = (
    *(f"{group.name}.*" for group in GROUPS if group.changeable),
    "data.cache_dir",
    "data.path",
    "start_from",  # where the text of old_share is found; the weights are not read again
    "trainer.accelerator",
    "trainer.devices",  # the number of processes stays the same (`launch.check_launch`)
    "trainer.enable_progress_bar",
    "trainer.log_every_n_steps",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.num_nodes",
)
# Exceptions, because best.ckpt and early stopping compare all validations. (`metrics` is for the test set alone.)
FIXED = ("callbacks.score.lowercase", "callbacks.score.metrics", "callbacks.score.metrics.*")
# Sections from which only numbers and `_TEXTS` of a run are taken
ACTING = ("callbacks", "logger", "trainer")
_NEEDED: dict[str, Any] = {
    **dict.fromkeys(("data", "model", "optimizer", "scheduler", "decoding", "metrics"), dict),
    **dict.fromkeys(("callbacks", "trainer"), dict),
    **{"run_dir": str, "kernels": str, "seed": int},
    **dict.fromkeys(("label_smoothing", "guided_alignment", "r_drop"), (int, float)),
}
_TEXTS = ("accelerator", "experiment_name", "max_time", "mode", "monitor", "precision", "project")
_ABSENT = object()


def load_stored_settings(run_dir: Path) -> dict[str, Any]:
    """The configuration of a run, with its paths moved to the current run directory. Raises UserError."""
    loaded: Any = OmegaConf.to_container(load_config(run_dir))
    if missing := [key for key in _NEEDED if not isinstance(loaded.get(key), _NEEDED[key])]:
        raise UserError(f"{run_dir / 'config.yaml'} is broken: it has no {', '.join(missing)}")
    return move_paths(loaded, loaded["run_dir"], str(run_dir))


def load_checkpoint(run_dir: Path) -> tuple[Path, dict[str, Any]]:
    """The latest whole checkpoint: (file, content). A broken file is renamed NAME.broken, with a warning.

    Raises UserError if there is none, or if it cannot be read or resumed from.
    """
    for name in (LAST, PREVIOUS, BEST):  # from the latest to the earliest
        file = checkpoints_of(run_dir) / name
        if not file.is_file():
            continue
        try:
            checkpoint = read_checkpoint(file)
            missing = RESUMABLE - set(checkpoint)
        except UserError:  # of another format
            raise
        except (*BROKEN, MemoryError) as error:
            if is_out_of_memory(error):
                raise UserError(f"{file}: there is not enough memory to read it") from error
            if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.EINVAL, None):
                raise UserError(f"{file}: cannot read ({error.strerror})") from error
            aside = file.with_name(f"{name}.broken")
            with contextlib.suppress(FileNotFoundError):  # another rank has renamed it
                file.replace(aside)
            reason = first_line(error)
            log.warning("%s is broken (%s): now %s, and the one before it is used", file, reason, aside.name)
            continue
        if missing:
            raise UserError(f"{file} has no {', '.join(sorted(missing))}: it was not saved to go on from")
        return file, checkpoint
    raise UserError(f"{run_dir} has no whole checkpoint to go on from: start the run anew")


def apply_changes(
    stored: dict[str, Any], wanted: dict[str, Any], keys: Iterable[str], *, written: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The stored configuration with the values of `wanted` at `keys`, and a line for every setting that differs.

    A key that `wanted` lacks is removed. A setting that refers to one of `keys` in `written`, the unresolved
    configuration, changes with it, unless it had another value or is among `keys`. Raises UserError naming the first
    key that may not change.
    """
    config = copy.deepcopy(stored)
    keys = list(keys)
    for key in keys:
        if key in ("callbacks", "data", "trainer"):  # they contain settings that may not change
            raise UserError(
                f"a run that goes on cannot choose {key} anew as a whole, which would also set what you did not name: "
                "give single keys, such as trainer.devices=2, data.path=DIR or callbacks.alignments=null"
            )
        value = _get(wanted, key)
        if value is _ABSENT and _get(stored, key) is _ABSENT:
            raise UserError(f"{key} cannot change in a run that goes on")
        _set(config, key, value)
        for follower in _followers(key, written):
            same = _get(stored, follower) == _get(stored, key) is not _ABSENT
            if same and follower not in keys and not _matches(follower, FIXED):
                _set(config, follower, value)
    before, after = flat(stored), flat(config)
    lines = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if old == new and type(old) is type(new):
            continue
        if "." not in key and all(each in (_ABSENT, None) for each in (old, new)):  # a group with no choice
            continue
        if not _matches(key, CHANGEABLE) or _matches(key, FIXED):
            close = difflib.get_close_matches(key, before, n=1) if old is _ABSENT else []
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"{key} cannot change in a run that goes on: {_text(old)} -> {_text(new)}{hint}")
        lines.append(f"{key}: {_text(old)} -> {_text(new)}")
    return config, lines


def settle_defaults(cfg: DictConfig, stored: dict[str, Any], given: Iterable[str]) -> None:
    """Set the stored values of settings whose defaults come from the data or the training text, unless `given`.

    A newly chosen group needs them.
    """
    for key in {"data.tgt_lang", "data.tokenizer.lowercase", "decoding.max_length_ratio"} - set(given):
        if (value := _get(stored, key)) is not _ABSENT and (
            key.startswith("data.") or OmegaConf.select(cfg, key) is None
        ):
            OmegaConf.update(cfg, key, value)


def move_paths(config: Any, old: str, new: str) -> Any:
    """The configuration with paths inside the directory `old` replaced by paths inside `new`."""
    if isinstance(config, dict):
        return {key: move_paths(value, old, new) for key, value in config.items()}
    if isinstance(config, list):
        return [move_paths(value, old, new) for value in config]
    if isinstance(config, str) and (config == old or config.startswith(f"{old}/")):
        return new + config[len(old) :]
    return config


def take_over(stored: dict[str, Any], cfg: DictConfig, keys: Sequence[str]) -> dict[str, Any]:
    """The stored configuration with callbacks, loggers and trainer of `cfg`, which this installation composes.

    Callbacks, loggers and trainer keep the stored numbers. Raises UserError if another stored setting of theirs differs
    from `cfg`, unless its key is among the given `keys`.
    """
    ours: Any = OmegaConf.create(OmegaConf.to_container(cfg))
    if "data.cache_dir" not in keys:  # a run may not choose the cache
        stored["data"]["cache_dir"] = ours.data.get("cache_dir")
    for key in stored.keys() - {*ACTING}:
        ours[key] = stored[key]  # callbacks refer to some
    taken = dict(stored)
    for section in ACTING:
        here = OmegaConf.to_container(ours[section], resolve=True) if ours.get(section) else {}
        taken[section] = _settings(stored.get(section) or {}, here, section, keys, list(cfg.trusted))
    devices = taken["trainer"].get("devices")
    if "trainer.devices" not in keys and isinstance(devices, int) and devices > (os.cpu_count() or 1):
        raise UserError(f"trainer.devices={devices}: more than this machine has: give trainer.devices=N")
    return taken


def _settings(stored: Any, ours: Any, key: str, given: Sequence[str], trusted: Sequence[str]) -> Any:
    """The value of a key of an acting section: that of `ours`, but numbers, some texts and metrics of `stored`."""
    if key in given or stored == ours:
        return stored
    target = stored.get("_target_") if isinstance(stored, dict) else None
    if isinstance(target, str) and (_matches(key, FIXED) or may_build(target, "", trusted)):
        return stored  # a metric; its class is checked later
    of_parts, plain = key in ("callbacks", "logger"), (int, float, type(None))
    if isinstance(stored, dict) and isinstance(ours, dict):
        return ({} if of_parts else ours) | {
            name: _settings(value, ours.get(name, _ABSENT), f"{key}.{name}", given, trusted)
            for name, value in stored.items()
        }
    section, *names = key.split(".")
    if stored is None and len(names) == 1 and section != "trainer":
        return None  # the run left out this callback or logger
    is_text = isinstance(stored, str) and names[-1] in _TEXTS and not isinstance(ours, dict)
    is_number = isinstance(stored, plain) and isinstance(ours, plain) and names != ["num_nodes"]
    if is_text or is_number:
        return stored
    part = "" if section == "trainer" else f", or {section}.{names[0]}=null to leave it out"
    raise UserError(
        f"{key}={say(stored)[:80]} is stored in the run, which may not set this: your configuration does, and has it "
        f"otherwise: give {key}= as you want it{part}"
    )


def why_finished(checkpoint: dict[str, Any], config: dict[str, Any]) -> str | None:
    """The reason if the run has finished, by the limits of `config` or by early stopping; else None."""
    trainer, stopping = config["trainer"], config["callbacks"].get("early_stopping")
    pause = pause_in(checkpoint)
    if not pause.validation_due:
        if trainer["max_epochs"] not in (None, -1) and pause.epochs >= trainer["max_epochs"]:
            return f"trainer.max_epochs={trainer['max_epochs']} is reached"
        if trainer["max_steps"] != -1 and checkpoint["global_step"] >= trainer["max_steps"]:
            return f"trainer.max_steps={trainer['max_steps']} is reached"
        elapsed = checkpoint["callbacks"].get("Timer", {}).get("time_elapsed", {}).get("train", 0.0)
        if trainer.get("max_time") is not None and elapsed >= _seconds(trainer["max_time"]):
            return f"trainer.max_time={trainer['max_time']} is spent"
    if stopping:
        # Lightning names the state by monitor and mode
        name = f"EarlyStopping{ {key: stopping.get(key) for key in ('monitor', 'mode')}!r}"
        state = checkpoint["callbacks"].get(name)
        if state is not None and state["wait_count"] >= max(1, stopping["patience"]):
            return f"callbacks.early_stopping.patience={stopping['patience']} is spent"
    return None


def stretches_schedule(stored: dict[str, Any], config: dict[str, Any]) -> bool:
    """True if a schedule that runs to the end of training has a new end."""
    limits = [
        [each["trainer"].get(key) for key in ("max_epochs", "max_steps", "max_time")]
        for each in (stored, config)
    ]
    return limits[0] != limits[1] and config["scheduler"].get("total_steps", 0) is None


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _followers(key: str, written: dict[str, Any]) -> Iterator[str]:
    """The keys of `written` that refer to `key`, directly or as a part of the section that they refer to."""
    for name, value in _values(written, ""):
        if reference := re.fullmatch(r"\$\{(?:oc\.select:)?([\w.]+)(?:,\s*\w+)?\}", str(value)):
            source = reference[1]
            if key == source or key.startswith(f"{source}."):
                yield name.removeprefix(".") + key[len(source) :]


def _seconds(max_time: Any) -> float:
    """Lightning's time limit DD:HH:MM:SS in seconds; infinite for any other text."""
    parts = re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", str(max_time).strip())
    if parts is None:
        return float("inf")  # Lightning refuses it
    return sum(int(part) * unit for part, unit in zip(parts.groups(), (86400, 3600, 60, 1), strict=True))


def _get(config: Any, key: str) -> Any:
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return _ABSENT
        config = config[name]
    return config


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
        if not isinstance(config, dict):
            raise UserError(f"{key} cannot change in a run that goes on: {parent} holds no keys")
    if value is _ABSENT:
        config.pop(name, None)
    else:
        config[name] = copy.deepcopy(value)


def _values(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All values with their dotted names; an item of a list has the name of the list."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _values(value, f"{name}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from _values(value, name)
    else:
        yield name, tree


def _text(value: Any) -> str:
    return "nothing" if value is _ABSENT else "null" if value is None else str(value)
