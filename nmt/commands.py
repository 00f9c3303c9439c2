"""What every script shares: Hydra's entry, and one clear line where the user can mend what went wrong."""

import atexit
import difflib
import errno
import functools
import io
import logging
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt import ranks
from nmt.errors import UserError, WriteError
from nmt.settings import key_of

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def choice_names(*groups: str) -> str:
    """The options chosen from groups, joined by `_`, for names of runs; those that chose none are left out."""
    choices = HydraConfig.get().runtime.choices
    return "_".join(str(choices[group]) for group in groups if choices.get(group) not in (None, "null"))


@functools.cache
def scratch() -> str:
    """A directory of this process, gone when it ends: Hydra leaves a file for each sweep, and must somewhere."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


OmegaConf.register_new_resolver("choices", choice_names, replace=True)
OmegaConf.register_new_resolver("scratch", scratch, replace=True)
OmegaConf.register_new_resolver("started", ranks.started, replace=True)

_KINDS = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}
# Lightning takes words here too: "auto", "warn", a time.
_WORDS_TOO = ("trainer.devices", "trainer.deterministic", "trainer.val_check_interval")
# Null is an answer here, though it is not the default.
_OR_NULL = (
    "callbacks.checkpoint.every_n_minutes",
    "data.columns",
    "model.attention",
    "model.encoder.output_size",
    "model.attention.max_fertility",
    "optimizer.fused",
    "trainer.check_val_every_n_epoch",
    "trainer.gradient_clip_val",
    "trainer.limit_train_batches",
    "trainer.limit_val_batches",
    "trainer.max_epochs",
    # What reads these refuses it, and says from where to where they go.
    "callbacks.spikes.num_deviations",
    "scheduler.warmup_steps",
)
# Null is the default here: what else there may be.
_EXAMPLES: dict[str, Any] = {
    "layer": 0,
    "head": 0,
    "callbacks.alignments.layer": 0,
    "callbacks.alignments.head": 0,
    "data.buffer_pairs": 100000,
    "model.alignment_layer": 0,
    "model.attention.max_fertility": 2.0,
    "model.readout_size": 192,
}
_SEEDS = range(2**32)  # NumPy's
# Paths: a directory may be called 2024, which YAML takes for a number.
_PATHS = (
    "alignment",
    "alignments",
    "checkpoint",
    "compare",
    "data.cache_dir",
    "data.path",
    "data.tokenizer.model",
    "gold",
    "heatmaps",
    "input",
    "log_dir",
    "output",
    "page",
    "prefixes",
    "refs",
    "resume",
    "reverse_run",
    "run",
    "run_dir",
    "runs",
    "src",
    "tgt",
)
_LISTS_OF_PATHS = ("compare", "data.tokenizer.model", "run", "runs")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # what only writing meets
_GROUP_FAULT = "Config group override must be"  # Hydra says it with a plain ValueError


_failed_jobs: list[int] = []  # of this process' sweep


class SweepError(UserError):
    """Jobs of a sweep that have failed, each of which has said why."""

    def __str__(self) -> str:
        numbers = ", ".join(map(str, _failed_jobs))
        return f"{len(_failed_jobs)} of the runs of this sweep failed, see their errors above: {numbers} (from 0)"


def command(config_name: str) -> Callable[[Callable[[DictConfig], Any]], Callable[[], None]]:
    """Make `function(cfg)` a script composed from `configs/CONFIG_NAME.yaml`.

    A UserError, a configuration that does not compose, a value of another kind than its default, and what the
    machine refuses (a full disk, a locked folder) end with one line on standard error and exit status 1; a
    usage error of Hydra's own with 2. In a sweep (-m) the other jobs are run all the same. NMT_TRACEBACK=1 shows the
    traceback instead.
    """

    def decorate(function: Callable[[DictConfig], Any]) -> Callable[[], None]:
        @functools.wraps(function)
        def task(cfg: DictConfig) -> None:
            try:
                with errors_in_one_line(config_name):
                    settle(cfg, config_name, HydraConfig.get().overrides.task)
                    function(cfg)
            except SystemExit as end:
                if end.code != 1 or HydraConfig.get().mode != RunMode.MULTIRUN:
                    raise
                _failed_jobs.append(HydraConfig.get().job.num)
                raise SweepError from None  # Hydra goes on with the next job, and raises it again at the end

        @functools.wraps(function)
        def main() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing; `explain` prints
            with errors_in_one_line(config_name):
                _settle_streams()
                hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(task)()
                sys.stdout.flush()

        return main

    return decorate


def _settle_streams() -> None:
    """Texts go out as UTF-8, as they come in, whatever the terminal's own encoding. Raises UserError without output."""
    if sys.stdout is None:
        raise UserError("standard output is closed: give it a file or a pipe")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115


@contextmanager
def errors_in_one_line(config_name: str) -> Iterator[None]:
    """Print what a user can mend and exit; anything else is a bug and keeps its traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has gone, as in `| head`
        _drop_output()
        sys.exit(0)
    except Exception as error:
        if not _can_be_mended(error) or os.environ.get("NMT_TRACEBACK"):
            raise
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as fault:  # Python would try again as it exits
            _drop_output()
            if isinstance(error, OSError) and error.filename is None:
                error = WriteError("standard output", fault)
        line = _printable(explain(error, config_name))
        print(f"{Path(sys.argv[0]).name}: error: {line}", file=sys.stderr)
        sys.exit(1)


def _can_be_mended(error: Exception) -> bool:
    if isinstance(error, UserError | HydraException | OmegaConfBaseException | OSError):
        return True
    return isinstance(error, ValueError) and str(error).startswith(_GROUP_FAULT)


def say(text: str) -> None:
    """Print `text` before what a command has yet to do, which it does though whoever read its output has gone."""
    try:
        print(text)
    except BrokenPipeError:  # as in `| head`
        _drop_output()


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printable(text: str) -> str:
    """One line that a terminal shows as it is, whatever a file's names and texts hold."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def settle(cfg: DictConfig, config_name: str, overrides: Sequence[str]) -> None:
    """Check what the overrides have set in `cfg` by what stands there without them, and make paths of numbers.

    The defaults are those of the same choices of groups. Raises UserError for a value of another kind than its
    default: a number, true or false, a list, settings of its own; for null where one is needed.
    """
    texts = {text: key_of(text).partition("@")[0] for text in overrides if text[0] != "~"}
    choices = [text for text, key in texts.items() if (CONFIGS / key).is_dir()]
    for text in choices:
        if text.endswith("=[]") and not text.endswith("experiment=[]"):
            raise UserError(_not_a_choice(text))
    values = {key: text.partition("=")[2].strip() for text, key in texts.items() if text not in choices}
    if not values:
        return
    defaults = _compose(config_name, choices)
    for key, text in values.items():
        value = OmegaConf.select(cfg, key, throw_on_missing=False)
        if value == "" and _is_required(defaults, key):
            raise UserError(f"{key} is required: give {key}=VALUE")
        if key in _PATHS and value is not None:
            _settle_path(cfg, key, value, text)
            continue
        default = OmegaConf.select(defaults, key, throw_on_missing=False)
        if value is None:
            if _is_required(defaults, key) or (key in _PATHS and default is not None):
                raise UserError(f"{key} is required: give {key}=VALUE")
            if default is None or key in _OR_NULL:
                continue
        wanted = None if key in _WORDS_TOO else _wanted(key, value, _EXAMPLES.get(key, default))
        if wanted is not None:
            raise UserError(f"{key}={'null' if value is None else value}: give {wanted}")


def _wanted(key: str, value: Any, example: Any) -> str | None:
    """What to give instead of a value that is not of the example's kind; None where it is."""
    if key == "seed":
        fits = type(value) is int and value in _SEEDS
        return None if fits else f"a whole number of at least 0 and at most {_SEEDS[-1]}, as in seed=1"
    if OmegaConf.is_dict(example):
        own = f"settings of its own, {key}.NAME=VALUE, or leave it out: ~{key}"
        return None if OmegaConf.is_dict(value) else own
    if OmegaConf.is_list(example):
        kind = type(example[0]) if len(example) else object
        fits = OmegaConf.is_list(value) and all(_is_a(kind, each) for each in value)
        what = f"a list, each {_KINDS[kind][0]}" if kind in _KINDS else "a list"
    else:
        fits, what = _is_a(type(example), value), _KINDS.get(type(example), ("",))[0]
    return None if fits else f"{what}, as in {key}={str(example).replace(' ', '').lower()}"


def _is_a(kind: type, value: Any) -> bool:
    # Only NaN differs from itself.
    return kind not in _KINDS or (type(value) in _KINDS[kind][1] and value == value)


def _is_required(defaults: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(defaults, parent, throw_on_missing=False) if parent else defaults
    return isinstance(node, DictConfig) and OmegaConf.is_missing(node, name)


def _settle_path(cfg: DictConfig, key: str, value: Any, text: str) -> None:
    """Make what the user wrote of a number again: a path, or a list of such."""
    if "" in (value if OmegaConf.is_list(value) else [value]):
        raise UserError(f"{key}={text} is empty: give a path, or leave it out")
    if OmegaConf.is_list(value) and key in _LISTS_OF_PATHS:
        OmegaConf.update(cfg, key, [str(each) for each in value])
    elif OmegaConf.is_config(value):
        raise UserError(f"{key}={value}: give one path")
    elif not isinstance(value, str):
        OmegaConf.update(cfg, key, text)


def explain(error: BaseException, config_name: str) -> str:
    """One line for an error of configuration: what is wrong, the nearest key or the options there are."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        if error.errno in _NO_ROOM:
            return str(WriteError(_file_of(error), error))
        return ": ".join(str(part) for part in (error.filename, error.strerror or text) if part)
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        return f"{text.rpartition('full_key: ')[2]}: {error.__cause__}"
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(str(cause))
        cause = cause.__cause__
    if text.startswith(_GROUP_FAULT):
        given = " ".join(each for each in sys.argv[1:] if (CONFIGS / key_of(each)).is_dir())
        return _not_a_choice(given)
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown.group(1).split("@")[0]
        if (CONFIGS / key).is_dir():
            return f"{key}= has no effect with what else is chosen: leave it out, or choose what uses it (--help)"
        return f"unknown configuration key '{key}'{_nearest(key, config_name)}"
    missing_option = re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':((?:\n\t\S+)*)", text
    )
    if missing_option:
        name, group, options = missing_option.groups()
        return f"no such choice '{name}'; {group} is one of: {', '.join(sorted(options.split()))}"
    reference = re.search(r"Interpolation key '([^']+)' not found\s+full_key: (\S+)", text)
    if reference:
        wanted, key = reference.groups()
        return (
            f"{key} takes its value from {wanted}, which what else is chosen has not got: the choice of "
            f"{_group_of(key)} does not go with it; leave it out, or give {key}=VALUE"
        )
    mandatory = re.search(r"Missing mandatory value: (\S+)", " ".join(chain))
    if mandatory:
        return f"{mandatory.group(1)} is required: give {mandatory.group(1)}=VALUE"
    lacking = re.search(r"(?:Key '[^']+' is not in struct|Missing key \S+)\s+full_key: (\S+)", text)
    if lacking and (removals := [each for each in sys.argv[1:] if each.startswith("~")]):
        return f"nothing gives {lacking.group(1)}, which is needed: leave out {' '.join(removals)}"
    if isinstance(error, OverrideParseException) and "=" in error.override:
        reason = " ".join(text.partition("\nSee ")[0].split())
        hint = "quote a value with ~ = ( { , or a space in it, as in run='\"logs/lr=0.1\"'"
        return f"{error.override} cannot be read ({reason}): {hint}, and write the folder of ~ out"
    return " ".join(text.split())


def _group_of(key: str) -> str:
    """The config group that a key's node is a choice of: model.attention.size is of attention."""
    names = key.split(".")[:-1]
    return next((name for name in reversed(names) if (CONFIGS / name).is_dir()), names[0] if names else key)


def _not_a_choice(given: str) -> str:
    return f"a choice is the name of a file in its group's folder, not null or a number: {given}"


def _file_of(error: OSError) -> str:
    """The file that could not be written: by the error's own word, else what was open where it was raised."""
    if error.filename is not None:
        return str(error.filename)
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            if isinstance(value, io.IOBase) and isinstance(name := getattr(value, "name", None), str):
                return name
    return "a file"


class LogFile(logging.FileHandler):
    """A log beside the terminal's. Where it cannot be written that is said once, and the terminal has the rest.

    It ends nothing: what it holds was shown, and what a full disk endangers ends the command by itself.
    """

    _said = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)  # which opens the file at the first message
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            line = _printable(str(WriteError(self.baseFilename, error)))
            print(f"{Path(sys.argv[0]).name}: warning: {line}", file=sys.stderr)


def _nearest(key: str, config_name: str) -> str:
    """`; did you mean 'model.hidden_size'?` for the nearest key that exists, else an empty string."""
    known = sorted(_keys(_compose(config_name, []))) + sorted(
        path.name for path in CONFIGS.iterdir() if path.is_dir()
    )
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if not close:  # the right name under the wrong parent
        close = [other for other in known if other.split(".")[-1] == key.split(".")[-1]][:1]
    if close == [key]:
        return " here: it belongs to another choice than those made"
    return f"; did you mean '{close[0]}'?" if close else "; --help lists the keys"


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    at_work = GlobalHydra.instance().is_initialized()  # within a task Hydra has the directory already
    with (
        nullcontext() if at_work else hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS))
    ):
        return hydra.compose(config_name, overrides=overrides)


def _keys(config: Any, prefix: str = "") -> list[str]:
    keys: list[str] = []
    if isinstance(config, DictConfig):
        for name in map(str, config):
            key = f"{prefix}{name}"
            keys.append(key)
            if not OmegaConf.is_missing(config, name) and not OmegaConf.is_interpolation(config, name):
                keys.extend(_keys(config[name], f"{key}."))
    return keys
