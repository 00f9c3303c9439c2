"""File names of checkpoints kept for averaging (`step_000123.ckpt`, after 123 steps), and errors of broken files."""

import pickle
import re
from pathlib import Path

# Errors of reading a file that is no checkpoint, or an incomplete checkpoint
BROKEN = (
    *(pickle.UnpicklingError, OSError, RuntimeError, EOFError),
    *(LookupError, AttributeError, TypeError, ValueError),
)
_NAME = re.compile(r"step_(\d+)\.ckpt")


def kept_file(directory: Path, step: int) -> Path:
    return directory / f"step_{step:06d}.ckpt"


def is_kept(file: Path) -> bool:
    """True if a file has the name of a kept checkpoint."""
    return _NAME.fullmatch(file.name) is not None


def kept_files(directory: Path) -> dict[int, Path]:
    """The kept checkpoints in a directory by step, in ascending order."""
    found = [(_NAME.fullmatch(file.name), file) for file in directory.glob("step_*.ckpt")]
    return dict(sorted((int(match[1]), file) for match, file in found if match))
