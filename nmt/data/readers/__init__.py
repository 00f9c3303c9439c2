"""The files of a parallel corpus: where they are, and their rows one by one. A fault is named by its line."""

from nmt.data.readers.layout import ALIASES, FORMATS, Files, Languages, find, missing
from nmt.data.readers.lines import decoded, digest, read_lines
from nmt.data.readers.rows import Row, read_rows, row_from_mapping

__all__ = [
    "ALIASES",
    "FORMATS",
    "Files",
    "Languages",
    "Row",
    "decoded",
    "digest",
    "find",
    "missing",
    "read_lines",
    "read_rows",
    "row_from_mapping",
]
