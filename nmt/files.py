"""Files that stand whole under their names, or as they were before."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """A file beside `path` to be written, which takes that name at the end, or is gone where an exception comes first.

    With `shared` it has a name of its own, since other processes may write the same file now.
    """
    own = f".{uuid.uuid4().hex}" if shared else ""
    temporary = path.with_name(f".{path.name}{own}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # a file system that is read-only refuses this too
            temporary.unlink()
