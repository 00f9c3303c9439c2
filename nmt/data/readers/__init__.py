"""The files of a parallel corpus: where they are, and their rows one by one. A fault is named by its line."""

from nmt.data.readers.layout import ALIASES, FORMATS, Files, Languages, find, missing
from nmt.data.readers.lines import decoded, digest, read_lines
from nmt.data.readers.rows import Row, read_rows, read_shards, row_from_mapping, table_rows, wanted_columns

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
    "read_shards",
    "row_from_mapping",
    "table_rows",
    "wanted_columns",
]
