"""Write the built-in corpus to files, as a function and as a command."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nmt.alignment import format_pharaoh
from nmt.atomic import write_together
from nmt.data.grammar.sentences import MIN_WORDS, Pair, corpus
from nmt.errors import UserError

FORMATS = ("text", "jsonl", "tsv", "csv", "parquet")
_COLUMNS = ["en", "vi", "alignment"]


def write_files(directory: str | Path, splits: dict[str, list[Pair]], *, format: str) -> list[Path]:
    """Write each split into `directory` and return the files' paths.

    text: SPLIT.en, SPLIT.vi and SPLIT.align (Pharaoh links, English first). jsonl, csv and parquet: the columns
    en, vi and alignment; tsv: the same three in this order, with no header. Raises WriteError.
    """
    folder = Path(directory).expanduser()
    contents: dict[Path, str | bytes] = {}
    for split, pairs in splits.items():
        rows = [(pair.en, pair.vi, format_pharaoh(pair.alignment)) for pair in pairs]
        if format == "text":
            for number, ending in enumerate(("en", "vi", "align")):
                contents[folder / f"{split}.{ending}"] = "".join(f"{row[number]}\n" for row in rows)
        else:
            contents[folder / f"{split}.{format}"] = _table(rows, format)
    write_together(contents)
    return list(contents)


def _table(rows: Sequence[tuple[str, str, str]], format: str) -> str | bytes:
    objects = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    if format == "jsonl":
        return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in objects)
    if format == "parquet":
        stream = io.BytesIO()
        columns = pa.schema([(name, pa.string()) for name in _COLUMNS])
        pq.write_table(pa.Table.from_pylist(objects, columns), stream)
        return stream.getvalue()
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter="," if format == "csv" else "\t", lineterminator="\n")
    writer.writerows([_COLUMNS, *rows] if format == "csv" else rows)
    return lines.getvalue()


def write_grammar(arguments: Sequence[str] | None = None) -> int:
    """Write a corpus: `python -m nmt.data.grammar DIR`."""
    parser = argparse.ArgumentParser(
        prog="python -m nmt.data.grammar",
        description="Write the built-in English–Vietnamese corpus, with gold word alignments, as ordinary files.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="where the files go; made where it is missing"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="kind of file")
    for split, number in (("train", 20_000), ("val", 300), ("test", 1000)):
        parser.add_argument(f"--num-{split}", metavar="N", type=int, default=number, help=f"pairs in {split}")
    parser.add_argument(
        "--min-words", metavar="N", type=int, default=MIN_WORDS, help="fewest words on a side"
    )
    parser.add_argument("--max-words", metavar="N", type=int, default=30, help="most words on a side")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the same seed gives the same files")
    options = vars(parser.parse_args(arguments))
    directory, form = options.pop("directory"), options.pop("format")
    try:
        for path in write_files(directory, corpus(**options), format=form):
            print(path)
    except UserError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0
