"""The memory that a process holds."""

import resource
import sys
from pathlib import Path


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
