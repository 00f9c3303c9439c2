"""The memory that a process holds, and errors when it runs out."""

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

import torch


def held_memory(pid: int | None = None) -> int | None:
    """Bytes that a process (by default this one) holds now, without mapped files, which the system can drop.

    None where the system does not tell (it is not Linux), or the process has ended.
    """
    try:
        _, all_pages, mapped_pages, *_ = Path(f"/proc/{pid or 'self'}/statm").read_text().split()  # Linux
    except OSError:
        return None
    return (int(all_pages) - int(mapped_pages)) * resource.getpagesize()


def most_memory() -> int:
    """The most bytes that this process has held at once, mapped files too."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_back() -> None:
    """Return memory to the system that was freed but that glibc keeps; of other C libraries there is nothing to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out. On the CPU torch has no exception of its own for it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error) if isinstance(error, RuntimeError) else ""
    return "can't allocate memory" in said or "not enough memory" in said
