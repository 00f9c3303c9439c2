"""The checkpoints that a run keeps to be averaged: `step_000123.ckpt` holds the weights after 123 steps."""

import re
from pathlib import Path

_NAME = re.compile(r"step_(\d+)\.ckpt")


def kept_file(directory: Path, step: int) -> Path:
    return directory / f"step_{step:06d}.ckpt"


def is_kept(file: Path) -> bool:
    """Whether a file's name is that of a kept checkpoint."""
    return _NAME.fullmatch(file.name) is not None


def kept_files(directory: Path) -> dict[int, Path]:
    """The kept checkpoints in a directory by their steps, from the earliest to the latest."""
    found = [(_NAME.fullmatch(file.name), file) for file in directory.glob("step_*.ckpt")]
    return dict(sorted((int(match[1]), file) for match, file in found if match))
