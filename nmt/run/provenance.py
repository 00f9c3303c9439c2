"""The origin of a training or a benchmark: its command, commit and machine."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.atomic import read_at_most
from nmt.errors import command
from nmt.run.paths import write_atomically

ROOT = Path(__file__).resolve().parents[2]
_MOST_BYTES = 2**20
COMMANDS = "commands.json"  # a list of settings per start
# A path or word that Hydra reads the same without its quotes
_QUOTED_WORD = re.compile(r"='(?!(?:true|false|null|nan|inf)')([a-z_./][\w./-]*)'$", re.IGNORECASE)


def provenance(command: str | None, device: torch.device) -> dict[str, Any]:
    """The facts needed to repeat a result: `{"command", "commit", "machine"}`."""
    return {"command": command, "commit": commit(), "machine": machine(device)}


def commands_of(run_dir: Path) -> str | None:
    """The command that started the run, and the commands that resumed it with other settings; None if unknown."""
    starts = _read(run_dir / COMMANDS)
    return "; ".join(command("train", overrides) for overrides in starts) or None


def note_command(run_dir: Path, overrides: Sequence[str], *, resumes: bool) -> None:
    """Record the settings typed to start a run, or to resume it with other settings."""
    earlier = _read(run_dir / COMMANDS) if resumes else []
    # The command adds ++ to settings of a resumed run, and quotes around text
    given = [each.removeprefix("++") for each in overrides] if resumes else list(overrides)
    given = [_QUOTED_WORD.sub(r"=\1", each) for each in given]
    write_atomically(run_dir / COMMANDS, json.dumps([*earlier, given], indent=1, ensure_ascii=False) + "\n")


def _read(file: Path) -> list[list[str]]:
    try:
        return [list(map(str, each)) for each in json.loads(read_at_most(file, _MOST_BYTES).decode("utf-8"))]
    # Lost or damaged: the run goes on without its command
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def commit() -> str | None:
    """The name that git gives the package's checkout, `-dirty` after uncommitted changes; None outside a checkout."""
    if not (ROOT / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, encoding="utf-8"
        )
    except OSError:  # no git
        return None
    return described.stdout.strip() or None


def machine(device: torch.device) -> dict[str, Any]:
    """The hardware and software that results depend on."""
    return {
        "cpu": f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}",
        "num_cores": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
