"""How tests run commands and compose configurations: in this process, and as a process of their own."""

import contextlib
import copy
import functools
import importlib
import io
import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TextIO

import hydra
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from nmt.commands import early_checks, entry
from nmt.commands.arguments import prepare_arguments
from nmt.config.commands import check_settings
from nmt.config.types import key_of

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"


by_hydra = hydra.compose


@functools.cache
def _of_choices(name: str, choices: tuple[str, ...]) -> DictConfig:
    return by_hydra(name, list(choices))


def by_choices(
    config_name: str, overrides: Sequence[str] = (), return_hydra_config: bool = False
) -> DictConfig:
    """As hydra.compose, which is slow: it is asked once for each set of choices, and values are set in a copy."""
    if return_hydra_config:
        return by_hydra(config_name, list(overrides), return_hydra_config)
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = [each for each in parsed if (CONFIGS / each.key_or_group).is_dir()]
    cfg = copy.deepcopy(_of_choices(config_name, tuple(str(each.input_line) for each in choices)))
    ConfigLoaderImpl._apply_overrides_to_config([each for each in parsed if each not in choices], cfg)
    return cfg


def compose(config_name: str, *overrides: str) -> DictConfig:
    """The configuration of a command."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        return hydra.compose(config_name, list(overrides))


class Ended(NamedTuple):
    """How a command ended: its exit status and what it wrote."""

    status: int
    out: str
    err: str


def refused(ended: Ended | subprocess.CompletedProcess, *fragments: str) -> None:
    """One line on standard error that holds the fragments, status 1, no traceback."""
    if isinstance(ended, subprocess.CompletedProcess):
        ended = Ended(ended.returncode, "", ended.stderr.decode())
    assert ended.status == 1, ended
    assert "Traceback" not in ended.err
    [line] = [line for line in ended.err.splitlines() if ": error: " in line]
    assert line.partition(": error: ")[2].isprintable()
    assert len(line) < 700, line
    for fragment in fragments:
        assert fragment in line, line


@contextlib.contextmanager
def logging_kept() -> Iterator[None]:
    """Put back the handlers that Hydra replaces, and close its own.

    Hydra closes every handler of the process as well, and that of absl would close pytest's standard error.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging, "_handlerList", [])
            yield
    finally:
        for handler in set(root.handlers) - set(before):
            handler.close()
        root.handlers, root.level = before, level


def last_of_each(arguments: Sequence[str]) -> list[str]:
    """The arguments without settings that a later one replaces: tests change those of a common list."""
    return list({key_of(each) if "=" in each else each: each for each in arguments}.values())


def run(name: str, *arguments: str, **where: Any) -> Ended:
    """`scripts/NAME.py ARGUMENTS` in this process."""

    def script() -> None:
        runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name="__main__")

    return _ended(script, name, last_of_each(arguments), **where)


def run_composed(name: str, *overrides: str, **where: Any) -> Ended:
    """As `run` from where Hydra has composed the settings, which takes longer than most refusals."""

    def task() -> None:
        with entry.errors_in_one_line(name):
            given = prepare_arguments(last_of_each(overrides), name)
            cfg = compose(name, *given, *(["name=composed"] if name == "train" else []))
            check_settings(cfg, name)
            early_checks.check_additions(cfg, name, given)
            getattr(early_checks, f"check_{name}")(cfg, given)
            importlib.import_module(f"nmt.commands.{name}").main(cfg)

    return _ended(task, name, overrides, **where)


def _ended(
    task: Callable[[], None],
    name: str,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    stdout: TextIO | None = None,
    cwd: Path = ROOT,
) -> Ended:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    status = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd), logging_kept():
        for variable in ("HYDRA_FULL_ERROR", "PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
            patch.setenv(variable, "1")  # what the command sets is put back
        patch.setattr(entry, "_failed_jobs", [])
        patch.setattr(sys, "argv", [f"{name}.py", *arguments])
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        patch.setattr(sys, "stdout", stdout or out)
        patch.setattr(sys, "stderr", err)
        try:
            task()
        except SystemExit as ending:
            status = ending.code
    for stream in (out, err):
        stream.flush()
    return Ended(status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


@contextlib.contextmanager
def unread() -> Iterator[TextIO]:
    """A standard output whose reader has gone, as after `| head`, and that takes each line at once."""
    theirs, ours = os.pipe()
    os.close(theirs)
    stream = io.TextIOWrapper(io.FileIO(ours, "wb"), encoding="utf-8", write_through=True)
    with stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "__stdout__", stream)
        yield stream


def call(
    script: str, *arguments: str, stdin: bytes = b"", cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess:
    """`scripts/NAME.py ARGUMENTS` as a process of its own."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *last_of_each(arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "default"}
        | environment,
        timeout=300,
    )


def call_unread(script: str, *arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, str]:
    """Status and standard error of `scripts/NAME.py ARGUMENTS | true`, a process whose output nobody reads."""
    theirs, ours = os.pipe()
    os.close(theirs)
    try:
        ended = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *last_of_each(arguments)],
            input=stdin,
            stdout=ours,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment,
            timeout=300,
        )
    finally:
        os.close(ours)
    return ended.returncode, ended.stderr.decode()
