"""Segment training pairs anew for each epoch (subword regularisation)."""

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from nmt import alignment
from nmt.data.segmentation import Segmenter
from nmt.data.tokenizer import Tokenizer

_ROWS_A_BLOCK = 10_000


class PairSampler:
    """Draws the pieces of all training pairs for an epoch.

    The pieces of a pair depend only on its text, its `index`, the seed and the epoch. A side that would get more than
    `max_length` pieces keeps its given pieces. Raises UserError if the tokenizer cannot sample.
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float, *, max_length: int, seed: int) -> None:
        self.source, self.target = tokenizer.segmenters(alpha)
        self.max_length, self.seed = max_length, seed

    def draw(self, encoded: Dataset, epoch: int, *, first: int = 0) -> Dataset:
        """`encoded` with newly drawn `src_ids` and `tgt_ids`, and `links` if it has them; held in memory.

        first: the smallest `index` of the block of these rows.
        """
        if not len(encoded):
            return encoded
        ids = pa.list_(pa.int32())
        schema = pa.schema(dict.fromkeys(encoded.column_names, ids) | {"index": pa.int64()})
        blocks = [pa.Table.from_pylist(rows, schema=schema) for rows in self._blocks(encoded, epoch, first)]
        # Given, since datasets would compute a fingerprint from all rows. Nothing is cached by it.
        return Dataset(pa.concat_tables(blocks), fingerprint=f"{self.seed}-{epoch}")

    def _blocks(self, encoded: Dataset, epoch: int, first: int) -> Iterator[list[dict[str, Any]]]:
        number = max(encoded["index"]) - first + 1
        seeds = np.random.default_rng([self.seed, epoch, first]).integers(2**63, size=number, dtype=np.uint64)
        for start in range(0, len(encoded), _ROWS_A_BLOCK):
            columns = encoded[start : start + _ROWS_A_BLOCK]
            rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
            yield [self._row(row, Random(int(seeds[row["index"] - first]))) for row in rows]

    def _row(self, row: dict[str, Any], generator: Random) -> dict[str, Any]:
        src_ids = self._side(self.source, row["src_ids"], generator)
        tgt_ids = self._side(self.target, row["tgt_ids"], generator)
        drawn = {"index": row["index"], "src_ids": src_ids, "tgt_ids": tgt_ids}
        if "links" in row:
            src_origins = self.source.origins(row["src_ids"], src_ids)
            tgt_origins = self.target.origins(row["tgt_ids"], tgt_ids)
            old = set(zip(row["links"][1::2], row["links"][::2], strict=True))
            moved = alignment.piece_links(old, tgt_origins, src_origins)  # a piece's "word" is the old piece
            drawn["links"] = [place for pair in moved for place in pair]
        return drawn

    def _side(self, segmenter: Segmenter, ids: list[int], generator: Random) -> list[int]:
        drawn = segmenter.draw(ids, generator)
        return drawn if len(drawn) <= self.max_length else ids
