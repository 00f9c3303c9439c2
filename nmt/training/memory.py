"""The memory of a process, and recognition of out-of-memory errors."""

import contextlib
import ctypes
import sys

import psutil
import torch


def held_memory(pid: int | None = None) -> int:
    """Bytes that a process (by default this one) holds now; 0 if it has ended.

    On Linux, without mapped files, which the system can drop.
    """
    try:
        info = psutil.Process(pid).memory_info()
    except psutil.NoSuchProcess:
        return 0
    return info.rss - getattr(info, "shared", 0)


def most_memory() -> int:
    """The most bytes that this process has held at once, mapped files included."""
    try:
        import resource
    except ImportError:  # on Windows
        info = psutil.Process().memory_info()
        return getattr(info, "peak_wset", info.rss)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_back() -> None:
    """Return freed memory that glibc keeps to the system; other C libraries have no call for it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: on Windows
        ctypes.CDLL(None).malloc_trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out. On the CPU torch raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error) if isinstance(error, RuntimeError) else ""
    return "can't allocate memory" in said or "not enough memory" in said
