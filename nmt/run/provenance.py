"""Where a result comes from: the command, the commit and the machine, written beside every score."""

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[2]


def provenance(script: str, overrides: Sequence[str] | None, device: torch.device) -> dict[str, Any]:
    """What a person needs to repeat a result: `{"command", "commit", "machine"}`; no command without `overrides`."""
    command = None if overrides is None else " ".join([f"python scripts/{script}.py", *overrides])
    return {"command": command, "commit": commit(), "machine": machine(device)}


def overrides_of(run_dir: Path) -> list[str] | None:
    """What was typed to start the run, by what Hydra wrote there; None where Hydra did not start it."""
    file = run_dir / ".hydra" / "overrides.yaml"
    return [str(each) for each in OmegaConf.load(file)] if file.exists() else None


def commit() -> str | None:
    """What git calls the package's checkout, with `-dirty` after uncommitted changes; None outside a checkout."""
    if not (ROOT / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
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
