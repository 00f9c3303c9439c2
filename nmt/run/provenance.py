"""Where a training or a benchmark comes from: its command, commit and machine."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from nmt.run.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]
RESUMED = "resumed.yaml"


def provenance(command: str | None, device: torch.device) -> dict[str, Any]:
    """What a person needs to repeat a result: `{"command", "commit", "machine"}`."""
    return {"command": command, "commit": commit(), "machine": machine(device)}


def typed(script: str, overrides: Sequence[str]) -> str:
    """A command as it is typed: `python scripts/train.py attention=bahdanau`, or `nmt train …` under `nmt`."""
    start = ["nmt", script] if "NMT_COMMAND" in os.environ else ["python", f"scripts/{script}.py"]
    return shlex.join([*start, *overrides])


def commands_of(run_dir: Path) -> str | None:
    """What was typed to start the run, and to resume it with other settings; None where Hydra did not start it."""
    started, resumed = (run_dir / ".hydra" / name for name in ("overrides.yaml", RESUMED))
    if not started.exists():
        return None
    starts = [_read(started), *_read(resumed)]
    return "; ".join(typed("train", overrides) for overrides in starts)


def note_resumption(run_dir: Path, overrides: Sequence[str]) -> None:
    """Keep what was typed to resume the run with other settings, beside what Hydra wrote at its start."""
    file = run_dir / ".hydra" / RESUMED
    given = [each.removeprefix("++") for each in overrides]  # the command adds ++
    file.parent.mkdir(exist_ok=True)
    write_atomically(file, OmegaConf.to_yaml(OmegaConf.create([*_read(file), given])))


def _read(file: Path) -> list[Any]:
    return OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else []  # type: ignore[return-value]


def commit() -> str | None:
    """What git calls the package's checkout, with `-dirty` after uncommitted changes; None outside a checkout."""
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
    """What results depend on beside the code."""
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
