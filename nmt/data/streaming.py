"""Stream training text from its files: blocks of pairs, and the batches of each block."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from nmt import lines
from nmt.data import encoding
from nmt.data.batching import Batch, TokenBatchSampler, mix_seed
from nmt.data.encoding import Rows
from nmt.data.find import Files, Languages
from nmt.data.formats import Row, read_rows
from nmt.data.pair_sampler import PairSampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError, command

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 5_000  # encoded together: Python lists take ten times the memory of a table


class TextStream:
    """The pairs of a split's files. The order of the shards is drawn for each pass; rows keep their order."""

    def __init__(self, files: Files, languages: Languages, *, skip_bad: bool = False) -> None:
        self.shards, self.languages, self.skip_bad = files.shards, languages, skip_bad

    @cached_property
    def digest(self) -> str:
        """A digest of all bytes of the files. Their paths do not count."""
        digests = [lines.digest_file(path) for shard in self.shards for path in shard.paths]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def rows(self, seed: int, number: int) -> Iterator[Row]:
        """Yield the rows of a pass. Raises UserError naming file and line if the text is not sound."""
        return read_rows(self._shuffle_shards(seed, number), self.languages, skip_bad=self.skip_bad)

    def _shuffle_shards(self, seed: int, number: int) -> Iterator[Files]:
        for shard in np.random.default_rng([seed, number]).permutation(len(self.shards)):
            log.info("pass %d reads %s", number, self.shards[shard].paths[0].name)
            yield self.shards[shard]

    def first_pairs(self, num_pairs: int) -> Iterator[Row]:
        """Yield the first pairs of the shards: equally many per shard, at most `num_pairs` together."""
        share = max(1, num_pairs // len(self.shards))
        return islice(read_rows(self.shards, self.languages, share, skip_bad=self.skip_bad), num_pairs)


@dataclass(frozen=True)
class Place:
    """The start of a block: `row` rows of its pass and `batch` batches of the stream come before it."""

    batch: int = 0
    number: int = 0  # of the pass
    block: int = 0
    row: int = 0


class BatchStream:
    """The endless training batches of a rank, pass after pass over a TextStream.

    The rows of a pass are cut into blocks of `buffer_pairs`. A block is filtered, then dealt into batches like a whole
    corpus, while a thread prepares the next block. The batches depend only on (seed, pass, block) and the text. All
    ranks read all rows. A block with fewer pairs than ranks is left out. The `indices` of a batch count the rows of its
    pass.
    """

    def __init__(
        self,
        text: TextStream,
        tokenizer: Tokenizer,
        collate: Callable[[list[dict[str, Any]]], Batch],
        *,
        buffer_pairs: int,
        max_length: int,
        max_ratio: float,
        max_tokens: int,
        seed: int,
        guided: bool,
        pair_sampler: PairSampler | None = None,
    ) -> None:
        self.pair_sampler = pair_sampler
        self.text, self.tokenizer, self.collate = text, tokenizer, collate
        self.buffer_pairs, self.max_tokens, self.seed, self.guided = buffer_pairs, max_tokens, seed, guided
        self._limits: dict[str, Any] = {"max_length": max_length, "max_ratio": max_ratio}
        self.place = Place()  # the block of the last batch
        self._next: int | None = None  # number of the next batch of the open iterator
        self._open: Iterator[Batch] = iter(())

    def batches(self, first: int, *, num_replicas: int, rank: int) -> Iterator[Batch]:
        """Yield the batches from number `first` on, a batch of the block at `place` or after it."""
        if self._next != first:
            self._open = self._from(self.place, num_replicas, rank)
            for _ in range(first - self.place.batch):
                next(self._open)
        while True:
            batch = next(self._open)
            first += 1
            self._next = first
            yield batch

    def _from(self, place: Place, num_replicas: int, rank: int) -> Iterator[Batch]:
        """Yield all batches from the beginning of the block at `place`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="blocks")
        try:
            blocks = self._blocks(place, num_replicas)
            coming: Future[tuple[Place, Rows]] = thread.submit(next, blocks)
            number_of_batch = place.batch
            while True:
                at, rows = coming.result()
                coming = thread.submit(next, blocks)
                if len(rows.dataset) < num_replicas:
                    continue
                sampler = TokenBatchSampler(
                    rows.src_lengths,
                    rows.tgt_lengths,
                    max_tokens=self.max_tokens,
                    shuffle=True,
                    seed=mix_seed(self.seed, at.number),
                    num_replicas=num_replicas,
                    rank=rank,
                )
                sampler.set_epoch(at.block)
                self.place = Place(number_of_batch, at.number, at.block, at.row)
                for chosen in sampler:
                    number_of_batch += 1
                    yield self.collate(rows.dataset.__getitems__(chosen))
        finally:
            # Without waiting: garbage collection closes this generator in any thread, also in one that holds a lock
            thread.shutdown(wait=False)

    def first_lengths(self, num_pairs: int) -> tuple[encoding.Lengths, encoding.Lengths]:
        """Numbers of pieces on either side of the first pairs of the text, after filtering."""
        rows = Rows.of(self._encode(list(self.text.first_pairs(num_pairs)), 0))
        keep, _ = encoding.fit_to_learn(rows.src_lengths, rows.tgt_lengths, **self._limits)
        if not keep.any():
            raise self._none_left(0, len(keep))
        return rows.src_lengths[keep], rows.tgt_lengths[keep]

    def _blocks(self, place: Place, num_replicas: int) -> Iterator[tuple[Place, Rows]]:
        """Yield the start of each block, without its number of batches, and its filtered pairs."""
        row, block = place.row, place.block
        for number in count(place.number):
            from_the_start, most = row == 0, 0
            rows = islice(self.text.rows(self.seed, number), row, None)
            while some := list(islice(rows, self.buffer_pairs)):
                kept, counts = self._fit(some, row)
                if number == row == 0:
                    encoding.warn_of_left_out(counts, self._limits, f"first {len(some):,} training pairs")
                most = max(most, len(kept.dataset))
                if self.pair_sampler is not None:
                    kept = Rows.of(self.pair_sampler.draw(kept.dataset, number, first=row))
                yield Place(0, number, block, row), kept
                row, block = row + len(some), block + 1
            if from_the_start and most < num_replicas:
                raise self._none_left(most, row)
            row = block = 0

    def _none_left(self, number: int, total: int) -> UserError:
        limits = ", ".join(f"data.{name}={value}" for name, value in self._limits.items())
        return UserError(f"{number} of {total:,} training pairs are left: raise one of {limits}")

    def _fit(self, some: list[Row], first: int) -> tuple[Rows, dict[str, int]]:
        """Encode and filter rows that are numbered from `first`. Also returns the counts of the filter."""
        parts = [
            self._encode(some[start : start + _ROWS_AT_ONCE], first + start)
            for start in range(0, len(some), _ROWS_AT_ONCE)
        ]
        rows = Rows.of(concatenate_datasets(parts))
        keep, counts = encoding.fit_to_learn(rows.src_lengths, rows.tgt_lengths, **self._limits)
        shown = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        log.info("pairs from %s on: %s", f"{first:,}", shown)
        return rows.only(keep), counts

    def _encode(self, some: list[Row], first: int) -> Dataset:
        if self.guided and len(some[0]) < 3:
            raise UserError(
                "guided_alignment of a stream needs alignments of all training pairs, and some have none: a file "
                f"train.align, which {command('align')} writes, or guided_alignment=0"
            )
        columns: dict[str, Any] = dict(
            zip(("src", "tgt", "alignment"), zip(*some, strict=True), strict=False)
        )
        encoded = encoding.encode_rows(columns, list(range(len(some))), self.tokenizer, self.guided, first)
        return Dataset.from_dict(encoded, features=encoding.features(self.guided))
