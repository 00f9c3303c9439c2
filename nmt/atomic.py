"""Write files completely or not at all, and check directories that somebody else may have made."""

import contextlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from nmt.errors import UserError, WriteError, printable


def json_text(value: Any) -> str:
    """A value as indented JSON; NaN and infinity, which JSON does not have, are null."""
    return TypeAdapter(Any).dump_json(value, indent=2).decode() + "\n"


def escape_markdown(text: str) -> str:
    """A line that Markdown shows as it is, HTML included. The | of tables is left to the caller."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", printable(text)).replace("<", "&lt;")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a new file beside `path`. It takes the name `path` at the end, or is removed after an exception."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # a read-only file system refuses this too
            temporary.unlink()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, which must be missing or empty.

    It takes the name `path` at the end, or is removed after an exception. Raises WriteError.
    """
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


def is_stream(path: Path) -> bool:
    """True for a path that is no plain file or folder, or that a process has open, as a redirected /dev/stdout."""
    while True:
        path = path.parent.resolve() / path.name
        if path.is_relative_to("/proc") or path.is_relative_to("/dev/fd"):  # on Linux, on macOS
            return True
        if not path.is_symlink():
            return path.exists() and not path.is_file() and not path.is_dir()
        path = path.parent / path.readlink()


def follow_link(path: Path) -> Path:
    """The path that a link leads to; a path that is no link as it is."""
    return path.resolve() if path.is_symlink() else path


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together: if any cannot be written, all stay as they were. Raises WriteError.

    A stream, as /dev/stdout, is written to directly. A link stays a link.
    """
    path = next(iter(contents))
    try:
        with contextlib.ExitStack() as all_written:
            for path, content in contents.items():
                content = content.encode() if isinstance(content, str) else content
                if is_stream(path):
                    with path.open("ab") as stream:
                        stream.write(content)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                all_written.enter_context(replace_file(follow_link(path))).write_bytes(content)
    except OSError as error:
        raise WriteError(path, error) from error


def check_folder(directory: Path) -> None:
    """Raise UserError if a directory holds anything but folders and files with a single name.

    A link, a second name of a file, a FIFO or a device could lead out of a directory that somebody else made. The
    directory itself may be a link. In its folder `wandb`, links may lead to files beside or below them, and the link
    `debug-core.log`, which W&B makes for each start in a new folder, to W&B's own log.
    """
    folders = [directory]
    while folders:
        folder = folders.pop()
        for path in map(folder.joinpath, os.listdir(folder)):
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode) and path.is_relative_to(directory / "wandb"):
                target = path.readlink()
                is_inside = not target.is_absolute() and ".." not in target.parts
                if is_inside or path.match("wandb/*/logs/debug-core.log"):
                    continue
            is_junction = getattr(about, "st_reparse_tag", 0) == 0xA0000003  # Windows' link of a folder
            if stat.S_ISDIR(about.st_mode) and not is_junction:
                if path.suffix in (".json", ".yaml", ".txt", ".ckpt", ".npz"):
                    raise UserError(f"{path} is a folder with the name of a file: remove it")
                folders.append(path)
            elif not stat.S_ISREG(about.st_mode):
                raise UserError(f"{path} is no plain file or folder, and a run has nothing else: remove it")
            elif about.st_nlink > 1:
                raise UserError(f"{path} has a second name: a run has its files for itself; copy the run")


def read_at_most(file: Path, limit: int) -> bytes:
    """The bytes of a file. Raises UserError if there are more than `limit`, and OSError."""
    with file.open("rb") as handle:
        content = handle.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{file} is too large: more than {limit:,} bytes")
    return content
