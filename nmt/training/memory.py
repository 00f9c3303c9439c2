"""The memory of a process, and errors when it runs out."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import psutil
import torch

from nmt.data.batching import Batch
from nmt.errors import UserError


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


@contextlib.contextmanager
def explain_too_large(batch: Batch, max_tokens: int) -> Iterator[None]:
    """Raise UserError if memory runs out in the block, which reads `batch`, one of the largest."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"the largest batch ({len(batch.src)} pairs of {batch.src.size(1)} source and "
            f"{batch.tgt_out.size(1)} target pieces) does not fit into memory: "
            f"lower data.max_tokens={max_tokens}"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out. On the CPU torch raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error) if isinstance(error, RuntimeError) else ""
    return any(each in said for each in ("can't allocate memory", "not enough memory", "bad_alloc"))
