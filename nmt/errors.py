"""Exceptions for faults that the user can fix, and text for their messages."""

import errno
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ADVICE = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EFBIG: "make room there",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "choose a place that can be written to",
}


def printable(text: str) -> str:
    """The text as a line without effects on a terminal: spaces for line breaks, escapes for control characters."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def reason_of(error: BaseException) -> str:
    """The start of an error's message as a single line; its type if it has none."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class UserError(ValueError):
    """A fault in the user's input (a file, a line, a setting). Its message is a line that names the remedy."""


def check_lines(**given: Any) -> None:
    """Raise UserError for a string in place of a list of lines, since its letters would count as lines."""
    for name, lines in given.items():
        if isinstance(lines, str | bytes):
            raise UserError(f"{name} is one string: give a list of lines, such as [{lines[:40]!r}]")


class WriteError(UserError):
    """A file that cannot be written: `FILE: cannot write (No space left on device): make room there`.

    The old content of the file is unchanged.
    """

    def __init__(self, path: str | Path, error: OSError) -> None:
        advice = _ADVICE.get(error.errno or 0)
        super().__init__(f"{path}: cannot write ({error.strerror or error}){f': {advice}' if advice else ''}")


_IS_CHECKOUT = (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()


def install(extra: str) -> str:
    """The command that installs an extra of this package: in a checkout, or for an installed wheel."""
    return f"pip install -e '.[{extra}]'" if _IS_CHECKOUT else f"pip install 'attention-nmt[{extra}]'"


def command(name: str, settings: Sequence[str] = ()) -> str:
    """A command of this package as typed: `python scripts/train.py seed=2`, or `nmt train …` if installed."""
    by_script = _IS_CHECKOUT and "NMT_COMMAND" not in os.environ
    return " ".join(
        (f"python scripts/{name}.py" if by_script else f"nmt {name}", *map(shlex.quote, settings))
    )
