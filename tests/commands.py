"""How tests run commands and compose configurations: in this process, and as a process of their own."""

import contextlib
import functools
import importlib
import io
import logging
import os
import pickle
import random
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TextIO

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.commands import early_checks, entry
from nmt.commands.arguments import prepare_arguments, quote_argument, text_settings
from nmt.commands.run_names import arguments_for_training
from nmt.config.commands import check_settings
from nmt.config.types import key_of

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"


by_hydra = hydra.compose


@functools.cache
def _of_choices(name: str, choices: tuple[str, ...], with_hydra: bool) -> bytes:
    """The composed configuration, pickled, from which copies are made faster than by `copy.deepcopy`."""
    return pickle.dumps(by_hydra(name, list(choices), return_hydra_config=with_hydra))


def by_choices(
    config_name: str, overrides: Sequence[str] = (), return_hydra_config: bool = False
) -> DictConfig:
    """As hydra.compose, which is slow: it is asked once for each set of choices, and values are set in a copy."""
    choices, values = [], []
    for each in OverridesParser.create().parse_overrides(list(overrides)):
        key = each.key_or_group
        is_choice = each.is_delete() or each.package or "/" in key or (CONFIGS / key).is_dir()
        (choices if is_choice else values).append(each)
    given = tuple(str(each.input_line) for each in choices)
    cfg = pickle.loads(_of_choices(config_name, given, return_hydra_config))
    try:
        for each in values:
            if each.is_add() and OmegaConf.select(cfg, each.key_or_group) is not None:
                return by_hydra(config_name, list(overrides), return_hydra_config)
            added = each.is_add() or each.is_force_add()
            OmegaConf.update(cfg, each.key_or_group, each.value(), merge=True, force_add=added)
    except OmegaConfBaseException:  # Hydra refuses it in its own words
        return by_hydra(config_name, list(overrides), return_hydra_config)
    if return_hydra_config:
        cfg.hydra.overrides.task = list(overrides)
    return cfg


def compose(config_name: str, *overrides: str) -> DictConfig:
    """The configuration of a command."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        return by_choices(config_name, overrides)


def align(**settings: Any) -> Any:
    """What `nmt.commands.align.align` gives for these settings."""
    overrides = [quote_argument(f"{key}={value}", text_settings("align")) for key, value in settings.items()]
    cfg = compose("align", *overrides)
    check_settings(cfg, "align")
    early_checks.check_align(cfg, overrides)
    return importlib.import_module("nmt.commands.align").align(cfg)


def translate(**settings: Any) -> None:
    overrides = [
        quote_argument(f"{key}={value}", text_settings("translate")) for key, value in settings.items()
    ]
    cfg = compose("translate", *overrides)
    check_settings(cfg, "translate")
    early_checks.check_translate(cfg, overrides)
    importlib.import_module("nmt.commands.translate").translate(cfg)


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
            if name == "train":
                given = arguments_for_training(given)
            with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
                cfg = by_choices(name, given, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg.copy())
            with open_dict(cfg):
                del cfg["hydra"]
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
        finally:
            HydraConfig.instance().cfg = None
    for stream in (out, err):
        stream.flush()
    return Ended(status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


@contextlib.contextmanager
def unread() -> Iterator[TextIO]:
    """A standard output whose reader has gone, as after `| head`, and that takes each line at once."""
    theirs, ours = os.pipe()
    os.close(theirs)
    stream = io.TextIOWrapper(entry._Output(ours, "wb"), encoding="utf-8", write_through=True)
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
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "default"} | environment,
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
            env={**os.environ, "HF_HUB_OFFLINE": "1"} | environment,
            timeout=300,
        )
    finally:
        os.close(ours)
    return ended.returncode, ended.stderr.decode()


def free_port() -> int:
    """One that no socket is given by itself in the seconds until it is listened to."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")
