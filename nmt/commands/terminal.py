"""Escaping of control characters for the terminal, as text of a run could otherwise control it."""

import io
import logging
import re
import sys

from nmt.errors import printable

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


class _Terminal(io.TextIOWrapper):
    def write(self, text: str) -> int:
        return super().write(_CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text))


def escape_controls() -> None:
    """Write control characters to standard output as escapes (`\\x1b`) if it is a terminal, else unchanged."""
    if sys.stdout.isatty():
        stream = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115
        sys.stdout = _Terminal(stream, encoding="utf-8", errors=sys.stdout.errors, line_buffering=True)


class OneLine(logging.Formatter):
    """Formats a message as one printable line."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
