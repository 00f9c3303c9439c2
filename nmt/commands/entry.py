"""The common entry of all commands: settings by Hydra, and one-line messages for errors that the user can fix."""

import atexit
import difflib
import errno
import functools
import importlib
import importlib.metadata
import io
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from nmt import environment
from nmt.commands import early_checks
from nmt.commands.arguments import HELP, prepare_arguments
from nmt.commands.composing import CONFIGS
from nmt.commands.messages import can_be_fixed, explain_error
from nmt.commands.own_text import with_recipe
from nmt.commands.reference import help_of, read_settings
from nmt.commands.run_names import arguments_for_training, make_run_name
from nmt.commands.terminal import escape_controls
from nmt.config.commands import check_settings
from nmt.config.types import GROUPS
from nmt.errors import UserError, WriteError, printable
from nmt.languages import bleu_tokenization

COMMANDS = ("train", "evaluate", "translate", "align", "compare", "benchmark", "demo", "export", "prepare")


def choice_names(*groups: str) -> str:
    """The chosen options of these groups (by default, of the groups in a run's name), joined by `_`."""
    choices = HydraConfig.get().runtime.choices
    groups = groups or tuple(group.name for group in GROUPS if group.in_name)
    return "_".join(str(choices[group]) for group in groups if choices.get(group) not in (None, "null"))


@functools.cache
def scratch() -> str:
    """A temporary directory, removed when this process ends, for the file that Hydra writes per sweep."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def sweep_folder(log_dir: str, *, _root_: DictConfig) -> str:
    """The folder for Hydra's file of a sweep: a temporary folder, unless a sweeper or launcher writes results there."""
    engines = {_root_.hydra.runtime.choices[f"hydra/{kind}"] for kind in ("sweeper", "launcher")}
    return scratch() if engines == {"basic"} else log_dir


OmegaConf.register_new_resolver("bleu_tokenization", bleu_tokenization, replace=True)
OmegaConf.register_new_resolver("choices", choice_names, replace=True)
OmegaConf.register_new_resolver("scratch", scratch, replace=True)
OmegaConf.register_new_resolver("started", make_run_name, replace=True)
OmegaConf.register_new_resolver("sweep_dir", sweep_folder, replace=True)

_failed_jobs: list[int] = []  # in the sweep of this process


class SweepError(UserError):
    """Some jobs of a sweep have failed, with messages; `args` has the number of the last."""

    def __str__(self) -> str:
        if not _failed_jobs:  # a launcher ran the jobs in other processes
            return (
                f"run {self.args[0]} (from 0) of this sweep failed, perhaps not alone: "
                "see the files .submitit/*/*.err in the folder of the sweep"
            )
        numbers = ", ".join(map(str, _failed_jobs))
        return f"{len(_failed_jobs)} of the runs of this sweep failed, see their errors above: {numbers} (from 0)"


def run_command(name: str) -> None:
    """Compose `configs/NAME.yaml` with the command line, check it, and run `nmt.commands.NAME.main` on it.

    An error that the user can fix (a UserError, a configuration that does not compose, a full disk) ends the command
    with a line on standard error and exit status 1. In a sweep (-m) the other jobs still run. NMT_TRACEBACK=1 shows the
    traceback instead.
    """

    def task(cfg: DictConfig) -> Any:
        try:
            with errors_in_one_line(name):
                overrides = list(HydraConfig.get().overrides.task)
                check_settings(cfg, name)
                early_checks.check_additions(cfg, name, overrides)
                check: Callable[[DictConfig, Sequence[str]], None] = getattr(early_checks, f"check_{name}")
                check(cfg, overrides)
                return importlib.import_module(f"nmt.commands.{name}").main(cfg)
        except SystemExit as end:
            if end.code != 1 or not environment.is_sweep():
                raise
            _failed_jobs.append(HydraConfig.get().job.num)
            # Hydra runs the next job, and raises the error again at the end
            raise SweepError(_failed_jobs[-1]) from None

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, for `explain_error`
    with errors_in_one_line(name):
        _use_utf8()
        environment.check_variables()
        if name not in ("translate", "align"):  # what these print is all they do
            outlive_reader()
        if name != "train":  # its progress bars move the cursor
            escape_controls()
            signal.signal(signal.SIGTERM, _end)
        if set(HELP) & set(sys.argv):
            print(help_of(name, [each for each in sys.argv[1:] if not each.startswith("-")]))
            return
        sys.argv[1:] = prepare_arguments(sys.argv[1:], name)
        if name == "train":
            sys.argv[1:] = arguments_for_training(with_recipe(sys.argv[1:]))
        try:
            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=name)(task)()
        except ValueError as error:  # a search without a completed trial
            if str(error).startswith("No trials are completed"):
                raise UserError("every trial of the search failed, see their errors above") from error
            raise
        sys.stdout.flush()


def _end(number: int, frame: Any) -> None:
    """Exit by an exception, so that half-written files are removed."""
    sys.exit(128 + number)


def main() -> None:
    """`nmt COMMAND …`: the same as `python scripts/COMMAND.py …`, for an installed package."""
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    if asked in COMMANDS:
        # Lightning repeats the command line without COMMAND for its processes
        os.environ["NMT_COMMAND"] = sys.argv.pop(1)
    elif asked in (*HELP, "help"):
        print("Usage: nmt COMMAND [KEY=VALUE …], nmt COMMAND --help\n")
        print("\n".join(f"  {name:<10} {read_settings(CONFIGS / f'{name}.yaml').head}" for name in COMMANDS))
        return
    elif asked in ("--version", "-V"):
        print(f"nmt {importlib.metadata.version('attention-nmt')}")
        return
    elif "NMT_COMMAND" not in os.environ:
        close = difflib.get_close_matches(asked or "", COMMANDS, n=1)
        hint = f"did you mean nmt {close[0]}?" if close else f"give one of {', '.join(COMMANDS)} (nmt --help)"
        sys.exit(f"nmt: error: {'no such command ' + asked if asked else 'there is no command'}: {hint}")
    run_command(os.environ["NMT_COMMAND"])


def program() -> str:
    """The name of the program as typed: `train.py` or `nmt train`."""
    name = Path(sys.argv[0])
    return f"nmt {os.environ.get('NMT_COMMAND')}" if name.stem in ("nmt", "__main__") else name.name


def _use_utf8() -> None:
    """Write text as UTF-8 with \\n on every system, by `_Output`. Raises UserError if standard output is closed."""
    ours = sys.stdout
    if ours is None:
        raise UserError("standard output is closed: give it a file or a pipe")
    if ours is sys.__stdout__ and ours is not None:
        raw: Any = _Output(ours.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            raw if ours.write_through else io.BufferedWriter(raw),
            encoding="utf-8",
            errors=ours.errors,
            newline="\n",
            line_buffering=ours.line_buffering,
            write_through=ours.write_through,
        )
    elif isinstance(ours, io.TextIOWrapper):
        ours.reconfigure(encoding="utf-8", errors=ours.errors, newline="\n")
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115


@contextmanager
def errors_in_one_line(config_name: str) -> Iterator[None]:
    """Print an error that the user can fix as one line and exit; other errors are bugs and keep their traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output has ended, as in `| head`
        sys.exit(0)
    except Exception as error:
        if not can_be_fixed(error) or os.environ.get("NMT_TRACEBACK"):
            raise
        if sys.stdout is not None:
            with suppress(OSError, WriteError):
                sys.stdout.flush()
        line = printable(explain_error(error, config_name))
        print(f"{program()}: error: {line}", file=sys.stderr)
        sys.exit(1)


class _Output(io.FileIO):
    """Standard output. After a write that fails it drops all text, which Python would try to write again at exit."""

    needs_reader = True  # else it also drops text, without an error, once its reader or its terminal has gone

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise WriteError("standard output", error) from error
            if self.needs_reader:
                raise
            return len(data)


def outlive_reader() -> None:
    """Let the command go on after the reader of its output has ended: its results are files."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, _Output):  # in tests it is another stream
        raw.needs_reader = False


class LogFile(logging.FileHandler):
    """The log file of a run, written once the run has its config.yaml. Prints one warning if it cannot be written."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, delay=True, encoding="utf-8")
        self._said = False
        self._waiting: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        if Path(self.baseFilename).with_name("config.yaml").exists():
            while self._waiting:
                self._write(self._waiting.pop(0))

    def _write(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)  # opens the file at the first message
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            line = printable(str(WriteError(self.baseFilename, error)))
            print(f"{program()}: warning: {line}", file=sys.stderr)
