"""Read the lines of UTF-8 text files, plain or gzipped. Errors name the file and the line."""

import codecs
import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nmt.errors import UserError


def read_lines(path: Path, *, with_ends: bool = False) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or .gz, with or without their ends. Only \n and \r\n end a line."""
    with opened(path) as handle:
        yield from decoded(handle, str(path), with_ends=with_ends)


def decoded(lines: Iterable[bytes], name: str, *, with_ends: bool = False) -> Iterator[str]:
    """Decode lines of bytes that come from a file or pipe called `name`, as `read_lines` does.

    A byte order mark at the beginning is left out. Raises UserError for a line that is not UTF-8 or holds NUL.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
            if not line:  # the file holds a byte order mark only
                continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
            raise UserError(f"{name}, line {number}: not UTF-8 ({byte}); convert it to UTF-8") from error
        if "\0" in text:
            raise UserError(f"{name}, line {number}: a NUL byte; it must be UTF-8 text, not UTF-16 or binary")
        if text.endswith("\n") and not with_ends:
            text = text[:-1].removesuffix("\r")
        yield text


def digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with readable(path), path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if it is a .gz."""
    with readable(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
        yield handle  # type: ignore[misc]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of reading `path` into a UserError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is broken, cut off or no gzip file ({error})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read it ({error.strerror or error})") from error
