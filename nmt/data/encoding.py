"""Encode, filter and sample the sentence pairs of a corpus, in blocks of rows."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, List, Value
from numpy.typing import NDArray

from nmt import alignment
from nmt.config.types import Units
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError

log = logging.getLogger(__name__)

RATIO_FLOOR = 6  # pairs with at most this many pieces on both sides are kept at any ratio
BLOCK = 200_000  # pairs encoded and cached at a time

_ROWS_A_BATCH = 10_000
_VERSION = 2  # of the output of `encode_rows`: cached pieces of another version are not read

Lengths = NDArray[np.int32]  # of one side, in pieces with the end of sentence


def add_alignment(text: Dataset) -> Dataset:
    """The text with the column `alignment`: links between its words by counting, between the characters of scripts
    without spaces (`units="auto"`)."""
    sides = (map(alignment.split_units, texts(text, side)) for side in ("src", "tgt"))
    return text.add_column("alignment", [*map(alignment.format_pharaoh, alignment.align_words(*sides))])


def encode(
    dataset: Dataset, tokenizer: Tokenizer, *, guided: bool = False, units: Units = "words"
) -> Dataset:
    """The columns `index`, `src_ids` and `tgt_ids` (pieces and end of sentence), cached by content.

    With `guided`, also `links`: t_1, s_1, t_2, s_2, … of linked pieces, from the column `alignment`, which counts
    `units`. Each BLOCK of pairs is cached separately, so that an interrupted run loses at most one block. SentencePiece
    uses all cores.
    """
    blocks = [
        dataset.select(range(start, min(start + BLOCK, len(dataset)))).map(
            encode_rows,
            batched=True,
            with_indices=True,
            fn_kwargs={
                "tokenizer": tokenizer,
                "guided": guided,
                "first": start,
                "units": units,
                "version": _VERSION,
            },
            remove_columns=dataset.column_names,
            features=features(guided),
            desc=f"encoding pairs from {start:,} of {len(dataset):,}",
        )
        for start in range(0, max(1, len(dataset)), BLOCK)
    ]
    return datasets.concatenate_datasets(blocks)


def encode_rows(
    rows: dict[str, Sequence[str]],
    indices: list[int],
    tokenizer: Tokenizer,
    guided: bool,
    first: int,
    units: Units = "words",
    version: int = _VERSION,
) -> dict[str, Any]:
    """The columns of `encode` for rows numbered `indices`, counted from `first`.

    `version` is a part of the cache's key, as all arguments are.
    """
    columns: dict[str, Any] = {
        "index": [first + index for index in indices],
        "src_ids": tokenizer.encode_source(rows["src"]),
        "tgt_ids": tokenizer.encode_target(rows["tgt"]),
    }
    if guided:
        columns["links"] = [
            _linked_pieces(*row, tokenizer, units)
            for row in zip(rows["src"], rows["tgt"], rows["alignment"], strict=True)
        ]
    return columns


def features(guided: bool) -> datasets.Features:
    """The types of the columns of `encode`."""
    columns: dict[str, Any] = {"index": Value("int64")}
    for name in ("src_ids", "tgt_ids", *(["links"] if guided else [])):
        columns[name] = List(Value("int32"))
    return datasets.Features(columns)


def _linked_pieces(src: str, tgt: str, links: str, tokenizer: Tokenizer, units: Units) -> list[int]:
    """The sure links of a pair as t_1, s_1, t_2, s_2, … over pieces."""
    of_src, of_tgt = tokenizer.source_side(src, units), tokenizer.target_side(tgt, units)
    sure, _ = alignment.parse_talp(links)
    src_groups, tgt_groups = of_src.label_groups(), of_tgt.label_groups()
    groups = {(src_groups[i], tgt_groups[j]) for i, j in sure}
    pairs = alignment.piece_links(groups, of_tgt.groups, of_src.groups)
    return [place for pair in pairs for place in pair]


def lengths(rows: Dataset) -> tuple[Lengths, Lengths]:
    """Number of pieces of each pair on either side: 8 bytes per pair."""
    none = np.zeros(0, np.int32)
    sides: tuple[list[Any], list[Any]] = ([none], [none])  # for a data set without rows
    for batch in rows.select_columns(["src_ids", "tgt_ids"]).with_format("arrow").iter(_ROWS_A_BATCH):
        for side, name in zip(sides, ("src_ids", "tgt_ids"), strict=True):
            side.append(pc.list_value_length(batch[name]).to_numpy().astype(np.int32))
    return np.concatenate(sides[0]), np.concatenate(sides[1])


def rows_with(rows: Dataset, column: str, piece: int) -> list[int]:
    """Numbers of the rows that hold `piece` in this column."""
    places: list[int] = []
    for start, batch in enumerate(rows.select_columns([column]).with_format("arrow").iter(_ROWS_A_BATCH)):
        lists = batch[column].combine_chunks()
        holding = pc.list_parent_indices(lists).filter(pc.equal(pc.list_flatten(lists), piece))
        places += (start * _ROWS_A_BATCH + np.unique(holding)).tolist()
    return places


def digest_pairs(rows: Dataset) -> str:
    """A digest of all columns, row by row."""
    found = hashlib.sha256()
    for batch in rows.with_format("arrow").iter(_ROWS_A_BATCH):
        for row in batch.to_pylist():
            found.update(repr(sorted(row.items())).encode())
    return found.hexdigest()


class Rows(NamedTuple):
    """Encoded pairs (the columns of `encode`), and the number of pieces of each pair on either side."""

    dataset: Dataset
    src_lengths: Lengths
    tgt_lengths: Lengths

    @classmethod
    def of(cls, dataset: Dataset) -> "Rows":
        return cls(dataset, *lengths(dataset))

    def only(self, keep: NDArray[np.bool_]) -> "Rows":
        """The rows that the mask `keep` selects."""
        if keep.all():
            return self
        chosen = self.dataset.select(np.flatnonzero(keep))
        return Rows(chosen, self.src_lengths[keep], self.tgt_lengths[keep])


def filter_pairs(dataset: Dataset, *, max_length: int, max_ratio: float) -> tuple[Rows, dict[str, int]]:
    """The encoded pairs to train on, and the counts of `fit_to_learn`. Raises UserError if no pair is kept."""
    rows = Rows.of(dataset)
    keep, counts = fit_to_learn(
        rows.src_lengths, rows.tgt_lengths, max_length=max_length, max_ratio=max_ratio
    )
    if not counts["kept"]:
        dropped = f"{counts['empty']} empty, {counts['too_long']} too long, {counts['ratio']} by ratio"
        limits = f"data.max_length={max_length} or data.max_ratio={max_ratio}"
        raise UserError(f"no training pair is left of {len(dataset)} ({dropped}): raise {limits}")
    return rows.only(keep), counts


def fit_to_learn(
    src: Lengths, tgt: Lengths, *, max_length: int, max_ratio: float
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """A mask of the pairs to train on, and the numbers of pairs `kept`, `empty`, `too_long`, or left out by `ratio`.

    Lengths are in pieces with the end of sentence: a side of length 1 is empty. The longer side may have `max_length`
    pieces. It may have `max_ratio` times the pieces of the shorter side, unless both have at most `RATIO_FLOOR`. A pair
    counts under the first reason that applies.
    """
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    empty = shorter <= 1
    too_long = ~empty & (longer > max_length)
    most = np.round(max_ratio * shorter, 6)  # 4.1 * 30 is 123, not 122.999...
    ratio = ~empty & ~too_long & (longer > RATIO_FLOOR) & (longer > most)
    keep = ~(empty | too_long | ratio)
    counts = {"kept": keep, "empty": empty, "too_long": too_long, "ratio": ratio}
    return keep, {name: int(which.sum()) for name, which in counts.items()}


def warn_of_left_out(counts: Mapping[str, int], limits: Mapping[str, float], pairs: str) -> None:
    """Warn of a limit that leaves out over a tenth of the pairs, by the counts of `fit_to_learn`."""
    for reason, setting in (("too_long", "max_length"), ("ratio", "max_ratio")):
        if (share := counts[reason] / sum(counts.values())) > 0.1:
            log.warning(
                "%.0f %% of the %s are left out by data.%s=%s: raise it, unless they are faulty",
                *(100 * share, pairs, setting, limits[setting]),
            )


def length_ratio(src: Lengths, tgt: Lengths, *, extra: float) -> int:
    """The least whole number so that `ratio * |x| + extra` pieces are enough for 999 of 1,000 targets.

    |x| counts the end of sentence, as all given lengths do; the pieces of a target do not.
    """
    ratios = np.sort(-(-(tgt.astype(np.int64) - 1 - int(extra)) // src))  # rounded up
    return int(ratios[len(ratios) - 1 - len(ratios) // 1000])


def sample_rows(dataset: Dataset, num_pairs: int) -> Dataset:
    """At most `num_pairs` pairs, evenly spaced from the first to the last, in order."""
    if len(dataset) <= num_pairs:
        return dataset
    return dataset.select(np.linspace(0, len(dataset) - 1, num_pairs).round().astype(np.int64))


def texts(dataset: Dataset, column: str) -> Iterator[str]:
    """Yield the texts of a column, read in blocks."""
    for batch in dataset.select_columns([column]).with_format("arrow").iter(_ROWS_A_BATCH):
        yield from batch[column].to_pylist()


def count_shared(held_out: Dataset, train: Dataset) -> int:
    """Number of rows of `held_out` with the same text on both sides as a row of `train`, neither side empty."""
    rows = pa.chunked_array(_join_sides(held_out), pa.large_string())
    found: set[str] = set()
    for chunk in _join_sides(train):  # chunk by chunk: all training text would not fit in memory
        found.update(chunk.filter(pc.is_in(chunk, value_set=rows)).to_pylist())
    return sum(row in found for row in rows.to_pylist() if all(map(str.strip, row.split("\0"))))


def _join_sides(dataset: Dataset) -> Iterator[pa.Array]:
    """Both sides of each pair as one string, a block of rows at a time. Text that was read holds no NUL."""
    for batch in dataset.select_columns(["src", "tgt"]).with_format("arrow").iter(_ROWS_A_BATCH):
        for part in batch.to_batches():
            sides = [part.column(name).cast(pa.large_string()) for name in ("src", "tgt")]
            yield pc.binary_join_element_wise(*sides, pa.scalar("\0", pa.large_string()))
