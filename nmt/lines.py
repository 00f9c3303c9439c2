"""Read the lines of UTF-8 text files, plain or packed. A line has a bound; errors name the file and the line."""

import bz2
import codecs
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import UserError

# By the end of a file's name
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
LONGEST_LINE = 2**20  # bytes of a line, its end included


def read_lines(path: Path, *, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or packed, without line ends. Only \n and \r\n end a line."""
    with open_unpacked(path) as handle:
        yield from decode_lines(handle, str(path), longest=longest)


def decode_lines(handle: BinaryIO, name: str, *, longest: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of an open file or pipe called `name`, as `read_lines` gives them.

    Raises UserError naming the line that `decode` refuses.
    """
    for number, line in enumerate(read_bounded(handle, longest), 1):
        try:
            yield decode(line, longest)
        except UserError as error:
            raise UserError(f"{name}, line {number}: {error}") from error


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or packed, as `read_bounded` does."""
    with open_unpacked(path) as handle:
        yield from read_bounded(handle)


def read_bounded(handle: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Yield the lines of a binary file with their ends, without a byte order mark at its beginning.

    Of a line of more than `longest` bytes, only the first `longest + 1` are read into memory and yielded.
    """
    mark, most = codecs.BOM_UTF8, longest + 1
    line = handle.readline(most + len(mark)).removeprefix(mark)
    while line:
        yield line
        if len(line) > longest and not line.endswith(b"\n"):
            while (rest := handle.readline(most)) and not rest.endswith(b"\n"):
                pass
        line = handle.readline(most)


def decode(line: bytes, longest: int = LONGEST_LINE, *, keep_end: bool = False) -> str:
    """The text of a line. Raises UserError, without the line's place, if it is too long, not UTF-8, or holds NUL."""
    if len(line) > longest:
        raise UserError(f"more than {longest:,} bytes: it must be text with a sentence or a document a line")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
        raise UserError(f"not UTF-8 ({byte}); convert it to UTF-8") from error
    if "\0" in text:
        raise UserError("a NUL byte; it must be UTF-8 text, not UTF-16 or binary")
    if keep_end or not text.endswith("\n"):
        return text
    return text[:-1].removesuffix("\r")


def digest_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with readable(path), path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open the bytes of a file, unpacked if its name ends in .gz, .xz or .bz2."""
    with readable(path), opener(path)(path, "rb") as handle:
        yield handle


def opener(path: Path) -> Any:
    """The function that opens a file, plain or packed, by the end of its name."""
    return OPENERS.get(path.suffix.lower(), open)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of reading `path` into a UserError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise UserError(f"{path} is broken, cut off or no {path.suffix} file ({error})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read it ({error.strerror or error})") from error
