"""Files of checkpoints: those kept to be averaged (`step_000123.ckpt`, after 123 steps), and broken ones."""

import pickle
import re
from pathlib import Path

# What reading a file raises that is no checkpoint, or half of one
BROKEN = (
    *(pickle.UnpicklingError, OSError, RuntimeError, EOFError),
    *(LookupError, AttributeError, TypeError, ValueError),
)
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
