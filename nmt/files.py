"""Writing files so that each is whole, or stays as it was."""

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from nmt.errors import WriteError, printable


def json_text(value: Any) -> str:
    """A value as indented JSON; NaN and infinity, which JSON does not have, are null."""
    return TypeAdapter(Any).dump_json(value, indent=2).decode() + "\n"


def markdown(text: str) -> str:
    """One line that Markdown shows as it is, HTML included. The | of tables is left to the caller."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", printable(text)).replace("<", "&lt;")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside `path`: it takes the name `path` at the end, or is removed after an exception."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # a file system that is read-only refuses this too
            temporary.unlink()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, which is missing or empty: it takes the name `path` at the end, or is removed after
    an exception. Raises WriteError."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()  # Windows replaces no folder
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together: where one cannot be written, all are as they were. Raises WriteError."""
    path = next(iter(contents))
    try:
        with contextlib.ExitStack() as all_written:
            for path, content in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                new = all_written.enter_context(replacing(path))
                new.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise WriteError(path, error) from error
