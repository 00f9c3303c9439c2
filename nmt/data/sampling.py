"""Segment training pairs anew for each epoch (subword regularisation)."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from nmt.data.segmentation import Segmenter
from nmt.data.tokenizer import Tokenizer

_ROWS_A_BLOCK = 10_000


class PairSampler:
    """Draws the pieces of all training pairs for an epoch.

    The pieces of a pair depend on its text, its `index`, the seed and the epoch alone. A side that would get more than
    `max_length` pieces keeps its own. Raises UserError where the tokenizer cannot sample.
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float, *, max_length: int, seed: int) -> None:
        self.source, self.target = tokenizer.segmenters(alpha)
        self.max_length, self.seed = max_length, seed

    def draw(self, encoded: Dataset, epoch: int, *, first: int = 0) -> Dataset:
        """`encoded` with newly drawn `src_ids` and `tgt_ids`, and their `links` where it has them; held in memory.

        first: the smallest `index` of the block that the rows belong to.
        """
        if not len(encoded):
            return encoded
        ids = pa.list_(pa.int32())
        schema = pa.schema(dict.fromkeys(encoded.column_names, ids) | {"index": pa.int64()})
        blocks = [pa.Table.from_pylist(rows, schema=schema) for rows in self._blocks(encoded, epoch, first)]
        # Nothing is cached by the fingerprint, which datasets would otherwise compute from all rows.
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
            drawn["links"] = moved_links(row["links"], tgt_origins, src_origins)
        return drawn

    def _side(self, segmenter: Segmenter, ids: list[int], generator: Random) -> list[int]:
        drawn = segmenter.draw(ids, generator)
        return drawn if len(drawn) <= self.max_length else ids


def moved_links(links: Sequence[int], tgt_origins: Sequence[int], src_origins: Sequence[int]) -> list[int]:
    """Links t_1, s_1, t_2, s_2, … between pieces as links between new pieces, by the old piece each comes from."""
    places: dict[int, list[int]] = {}
    for place, origin in enumerate(src_origins):
        places.setdefault(origin, []).append(place)
    sources: dict[int, list[int]] = {}
    for t, s in zip(links[::2], links[1::2], strict=True):
        sources.setdefault(t, []).extend(places.get(s, []))
    return [each for t, origin in enumerate(tgt_origins) for s in sources.get(origin, []) for each in (t, s)]
