"""Change the settings of a stored run: those given, the acting ones of this installation, and paths.

A run directory is data. It brings weights, numbers and choices. The configuration of this installation and the command
line bring everything that acts: callbacks, loggers, the trainer, and the paths to write to.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.config.build import may_build
from nmt.config.types import GROUPS, flat, say
from nmt.errors import UserError
from nmt.run.paths import refuse_stored_dictionary

# Settings that may change when a run is resumed
CHANGEABLE = (
    *(f"{group.name}.*" for group in GROUPS if group.changeable),
    "data.cache_dir",
    "data.path",
    "start_from",  # the place of the text of old_share; the weights are not read again
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
FIXED = (
    "callbacks.score.lowercase",
    "callbacks.score.metrics",
    "callbacks.score.metrics.*",
    "decoding.max_length*",
    "decoding.min_length*",
    "decoding.no_repeat_ngram_size",
    "decoding.replace_unknown",
)
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


def check_stored(stored: DictConfig, run_dir: Path) -> dict[str, Any]:
    """The configuration of a run, with its paths moved to the current run directory. Raises UserError."""
    loaded: Any = OmegaConf.to_container(stored)
    missing = [key for key in _NEEDED if not isinstance(loaded.get(key), _NEEDED[key])]
    if not isinstance(loaded.get("logger") or {}, dict):
        missing.append("logger")
    if not missing and "tokenizer" not in loaded["data"]:
        missing = ["data.tokenizer"]
    if missing:
        raise UserError(f"{run_dir / 'config.yaml'} is broken: it has no {', '.join(missing)}")
    return move_paths(loaded, loaded["run_dir"], str(run_dir))


def apply_changes(
    stored: dict[str, Any], wanted: dict[str, Any], keys: Iterable[str], *, written: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The stored configuration with the values of `wanted` at `keys`, and a line for every setting that differs.

    A key that `wanted` lacks is removed. A setting that refers to one of `keys` in `written`, the unresolved
    configuration, changes with it, unless it had another value or is among `keys`. Raises UserError naming the first
    key that may not change.
    """
    before, config, ours = (OmegaConf.create(each) for each in (stored, stored, wanted))
    keys = list(keys)
    for key in keys:
        if key in ("callbacks", "data", "trainer"):  # they contain settings that may not change
            raise UserError(
                f"a run that goes on cannot choose {key} anew as a whole, which would also set what you did not name: "
                "give single keys, such as trainer.devices=2, data.path=DIR or callbacks.alignments=null"
            )
        value = _get(ours, key)
        if value is _ABSENT and _get(before, key) is _ABSENT:
            raise UserError(f"{key} cannot change in a run that goes on")
        _set(config, key, value)
        for follower in _followers(key, written):
            same = _get(before, follower) == _get(before, key) is not _ABSENT
            if same and follower not in keys and not _matches(follower, FIXED):
                _set(config, follower, value)
    changed: Any = OmegaConf.to_container(config)
    there, here, lines = flat(stored), flat(changed), []
    for key in sorted(there.keys() | here.keys()):
        old, new = there.get(key, _ABSENT), here.get(key, _ABSENT)
        if old == new and type(old) is type(new):
            continue
        if "." not in key and all(each in (_ABSENT, None) for each in (old, new)):  # a group with no choice
            continue
        if not _matches(key, CHANGEABLE) or _matches(key, FIXED):
            close = difflib.get_close_matches(key, there, n=1) if old is _ABSENT else []
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"{key} cannot change in a run that goes on: {_text(old)} -> {_text(new)}{hint}")
        lines.append(f"{key}: {_text(old)} -> {_text(new)}")
    return changed, lines


def settle_defaults(cfg: DictConfig, stored: dict[str, Any], given: Iterable[str]) -> None:
    """Set the stored values of settings whose defaults come from the data or the training text, unless `given`.

    A newly chosen group needs them.
    """
    for key in {"data.tgt_lang", "data.tokenizer.lowercase", "decoding.max_length_ratio"} - set(given):
        value = _get(OmegaConf.create(stored), key)
        if value is not _ABSENT and (key.startswith("data.") or OmegaConf.select(cfg, key) is None):
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
    if not {"decoding", "decoding.dictionary"} & set(keys):
        refuse_stored_dictionary(stored["decoding"].get("dictionary"))
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
        f"{key}={say(stored)[:80]} is stored in the run, which may not set this, and differs from your "
        f"configuration: give {key}= as you want it{part}"
    )


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


def _get(config: Any, key: str) -> Any:
    return OmegaConf.select(config, key, default=_ABSENT)


def _set(config: DictConfig, key: str, value: Any) -> None:
    if value is not _ABSENT:
        OmegaConf.update(config, key, value, merge=False, force_add=True)
        return
    parent, _, name = key.rpartition(".")
    OmegaConf.select(config, parent).pop(name, None)


def _text(value: Any) -> str:
    return "nothing" if value is _ABSENT else "null" if value is None else str(value)
