"""The memory that a process holds."""

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

import torch


def held_memory(pid: int | None = None) -> int | None:
    """Bytes that a process (this one) holds now, without the files that it maps, which the system can drop.

    None where the system does not tell, or the process is gone.
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
    """Return to the system what the C library's allocator holds for nobody.

    Of tensors of many sizes it keeps ever more, in gaps that the next ones do not fit. Only glibc has such a call, and
    only it has the need.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory to be had: by Python, or by torch, which on the CPU has no exception of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error) if isinstance(error, RuntimeError) else ""
    return "can't allocate memory" in said or "not enough memory" in said
