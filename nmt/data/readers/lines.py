"""The lines of a file, and its digest. A fault is named by its line."""

import codecs
import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nmt.errors import UserError

_UTF16_OR_32 = (
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_BE,
)  # BOM_UTF32_LE begins as UTF-16's


def read_lines(path: Path, *, with_ends: bool = False) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or .gz, without their ends or with them: only \n and \r\n end a line."""
    with readable(path), opened(path) as handle:
        yield from decoded(handle, str(path), with_ends=with_ends)


def decoded(lines: Iterable[bytes], name: str, *, with_ends: bool = False) -> Iterator[str]:
    """What `read_lines` gives, of lines of bytes that a file or a pipe called `name` holds."""
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if number == 1:
            if line.startswith(_UTF16_OR_32):
                raise UserError(
                    f"{name} is UTF-16 or UTF-32: convert it to UTF-8, as by iconv -f UTF-16 -t UTF-8"
                )
            line = line.removeprefix(codecs.BOM_UTF8)
            if not line:  # nothing but a byte order mark
                continue
        if b"\0" in line:
            raise UserError(f"{where}: a NUL byte; it must be UTF-8 text, not UTF-16 or binary")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
            raise UserError(f"{where}: not UTF-8 ({byte}); convert it to UTF-8") from error
        if text.endswith("\n") and not with_ends:
            text = text[:-1].removesuffix("\r")
        yield text


def digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with readable(path):
        if path.is_dir():
            raise UserError(f"{path} is a directory, but a file is expected there")
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()


def opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked where it is a .gz."""
    if path.is_dir():
        raise UserError(f"{path} is a directory, but a file is expected there")
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a UserError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is broken, cut off or no gzip file ({first_line(error)})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read it ({error.strerror or first_line(error)})") from error


def first_line(error: BaseException) -> str:
    """What another library's error says, for a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
