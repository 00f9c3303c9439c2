"""Read the pairs of a split in blocks, with the places where they stand."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmt.data.find import Files, Languages
from nmt.data.formats import Located, Row, located_rows, sound_rows


def pairs_at_once(first: int) -> int:
    """The size of the block that begins with pair `first`. Small at first, so that little text too has many."""
    return 50 if first < 1_000 else 500


class Block(NamedTuple):
    """Consecutive pairs. first: the number of the first, from 0. places: as `line 5`; of shards with the file."""

    first: int
    places: tuple[str, ...]
    rows: tuple[Row, ...]
    src: tuple[str, ...]
    tgt: tuple[str, ...]


def read_blocks(files: Files, languages: Languages, *, skip_bad: bool, is_first: bool) -> Iterator[Block]:
    """Yield the sound pairs of a split. The first reading alone reports bad rows, as `sound_rows` does."""
    place = ""

    def note_places() -> Iterator[Located]:
        nonlocal place
        for shard in files.shards:
            for file, number, row in located_rows(shard, languages):
                place = f"{Path(file).name if len(files.shards) > 1 else file.rpartition(', ')[2]} {number}"
                yield file, number, row

    rows: Iterator[Row] = (row for *_, row in note_places() if isinstance(row, tuple))
    if is_first:
        rows = sound_rows(note_places(), str(files.paths[0]), skip_bad=skip_bad)
    placed, first = ((place, row) for row in rows), 0
    while some := list(islice(placed, pairs_at_once(first))):
        places, block = zip(*some, strict=True)
        yield Block(first, places, block, *list(zip(*(row[:2] for row in block), strict=True)))
        first += len(block)
