"""A corpus as ordinary files, and the command that writes them."""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from nmt.data.grammar.sentences import MIN_WORDS, Pair, corpus
from nmt.errors import UserError
from nmt.files import replacing

FORMATS = ("text", "jsonl", "tsv", "csv", "parquet")


def pharaoh(alignment: Iterable[tuple[int, int]]) -> str:
    """Links in the order given: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in alignment)


def _text(pairs: Sequence[Pair]) -> dict[str, str]:
    return {
        "en": "".join(f"{pair.en}\n" for pair in pairs),
        "vi": "".join(f"{pair.vi}\n" for pair in pairs),
        "align": "".join(f"{pharaoh(pair.alignment)}\n" for pair in pairs),
    }


def write_files(directory: str | Path, splits: dict[str, list[Pair]], *, format: str) -> list[Path]:
    """Write each split into `directory` and return the files' paths.

    text: SPLIT.en, SPLIT.vi and SPLIT.align (Pharaoh links, English first). jsonl, csv and parquet: the columns
    en, vi and alignment; tsv: the same three in this order, with no header. Each file appears whole or not at
    all. Raises UserError for another format, and where the directory cannot be written to.
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: choose one of {', '.join(FORMATS)}")
    folder = Path(directory).expanduser()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, pairs in splits.items():
            if format == "text":
                for ending, text in _text(pairs).items():
                    written.append(_replace(folder / f"{split}.{ending}", partial(_write_text, text=text)))
            else:
                written.append(_replace(folder / f"{split}.{format}", partial(_WRITERS[format], pairs=pairs)))
    except OSError as error:
        raise UserError(f"{folder}: cannot write there ({error.strerror}): choose another folder") from error
    return written


def _replace(path: Path, write: Callable[[Path], None]) -> Path:
    with replacing(path, shared=True) as new:
        write(new)
    return path


def _columns(pair: Pair) -> dict[str, str]:
    return {"en": pair.en, "vi": pair.vi, "alignment": pharaoh(pair.alignment)}


def _write_text(path: Path, *, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_jsonl(path: Path, *, pairs: Sequence[Pair]) -> None:
    lines = (json.dumps(_columns(pair), ensure_ascii=False) for pair in pairs)
    _write_text(path, text="".join(f"{line}\n" for line in lines))


def _write_tsv(path: Path, *, pairs: Sequence[Pair]) -> None:
    _write_text(path, text="".join("\t".join(_columns(pair).values()) + "\n" for pair in pairs))


def _write_csv(path: Path, *, pairs: Sequence[Pair]) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, ["en", "vi", "alignment"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_columns, pairs))


def _write_parquet(path: Path, *, pairs: Sequence[Pair]) -> None:
    import pyarrow as pa  # half a second, which generating sentences does not need
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in ("en", "vi", "alignment")])
    pq.write_table(pa.Table.from_pylist([_columns(pair) for pair in pairs], schema=schema), path)


_WRITERS: dict[str, Callable[..., None]] = {
    "jsonl": _write_jsonl,
    "tsv": _write_tsv,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def main(arguments: Sequence[str] | None = None) -> int:
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
