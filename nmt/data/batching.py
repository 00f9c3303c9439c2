"""Group sentence pairs of similar lengths into batches under a budget of padded tokens, and pad them to tensors."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Sampler

from nmt.errors import UserError


class Batch(NamedTuple):
    """B sentence pairs; positions after the end hold the padding id.

    indices: row numbers in the data set [B].
    src: source pieces, ending with EOS [B, S].
    tgt_in: input of the decoder, BOS y_1 ... y_n [B, T].
    tgt_out: its expected output, y_1 ... y_n EOS [B, T].
    guide: given alignments [B, T, S], or None if attention is not guided. A row is uniform over the source pieces that
        its target piece is linked to, or zero.
    """

    indices: Tensor
    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    guide: Tensor | None


def collate(rows: Sequence[dict[str, Any]], *, pad_id: int, bos_id: int) -> Batch:
    """Pad `rows` to a Batch. A row has "index", and "src_ids" and "tgt_ids", lists that end with EOS.

    "links", if given, is a flat list t_1, s_1, t_2, s_2, … of linked target and source pieces.
    """
    src = _pad([row["src_ids"] for row in rows], pad_id)
    tgt_out = _pad([row["tgt_ids"] for row in rows], pad_id)
    guided = "links" in rows[0]
    return Batch(
        indices=torch.tensor([row["index"] for row in rows], dtype=torch.long),
        src=src,
        tgt_in=_pad([[bos_id, *row["tgt_ids"][:-1]] for row in rows], pad_id),
        tgt_out=tgt_out,
        guide=_guide([row["links"] for row in rows], tgt_out.size(1), src.size(1)) if guided else None,
    )


def of_few_shapes(batch: Batch, *, pad_id: int, bos_id: int, eos_id: int, max_length: int | None) -> Batch:
    """Pad the batch so that few different shapes occur: B, S and T grow by at most a sixteenth, or by 1 to an even
    number.

    Added rows have an empty source, only padding as target, and index -1. Nothing is padded beyond `max_length`.
    """
    (num_rows, num_src), num_tgt = batch.src.shape, batch.tgt_in.size(1)
    src_more, tgt_more = (
        max(0, min(_round_up(n), max_length or _round_up(n)) - n) for n in (num_src, num_tgt)
    )
    rows_more = _round_up(num_rows) - num_rows

    def more(ids: Tensor, columns: int, first_id: int) -> Tensor:
        ids = F.pad(ids, (0, columns, 0, rows_more), value=pad_id)
        ids[num_rows:, 0] = first_id
        return ids

    return Batch(
        F.pad(batch.indices, (0, rows_more), value=-1),
        more(batch.src, src_more, eos_id),
        more(batch.tgt_in, tgt_more, bos_id),
        more(batch.tgt_out, tgt_more, pad_id),
        None if batch.guide is None else F.pad(batch.guide, (0, src_more, 0, tgt_more, 0, rows_more)),
    )


def _round_up(number: int) -> int:
    """Round up to a multiple of 2 and of 1/32 of the next power of two."""
    step = max(2, (1 << (number - 1).bit_length()) // 32)
    return -(-number // step) * step


def _guide(links: Sequence[Sequence[int]], num_tgt: int, num_src: int) -> Tensor:
    """Rows [B, T, S] that are uniform over the linked source pieces."""
    guide = torch.zeros(len(links), num_tgt, num_src)
    for each, flat in zip(guide, links, strict=True):
        pairs = torch.tensor(flat, dtype=torch.long).view(-1, 2)
        each[pairs[:, 0], pairs[:, 1]] = 1
    return guide / guide.sum(dim=-1, keepdim=True).clamp_min(1)


def _pad(sentences: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    longest = max(len(ids) for ids in sentences)
    return torch.tensor([[*ids, *[pad_id] * (longest - len(ids))] for ids in sentences], dtype=torch.long)


def mix_seed(seed: int, number: int) -> int:
    """Derive the seed of an epoch, or of a pass over a text, from a seed and its number."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


class TokenBatchSampler(Sampler[list[int]]):
    """Sampler of batches of similar lengths; each row comes once per epoch.

    A batch of n pairs keeps to the budget `n * max(longest source, longest target) <= max_tokens`, with EOS counted.
    With `shuffle`, batches and their order are drawn anew for each (seed, epoch); without, both stay the same. Replica
    `rank` takes every `num_replicas`-th batch of the common list. The largest batches are halved until all replicas
    take equally many; no row is dropped or repeated. Raises UserError if a pair exceeds the budget, or if there are
    fewer rows than replicas.
    """

    def __init__(
        self,
        src_lengths: ArrayLike,
        tgt_lengths: ArrayLike,
        *,
        max_tokens: int,
        shuffle: bool,
        seed: int,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        self.src_lengths = np.asarray(src_lengths, dtype=np.int32)
        self.tgt_lengths = np.asarray(tgt_lengths, dtype=np.int32)
        if self.src_lengths.size < num_replicas:
            raise UserError(
                f"{self.src_lengths.size} sentence pairs cannot be dealt to {num_replicas} replicas"
            )
        self._sizes = np.maximum(self.src_lengths, self.tgt_lengths)  # size of a batch of this pair alone
        longest = int(self._sizes.argmax())
        if self._sizes[longest] > max_tokens:
            raise UserError(
                f"sentence pair {longest} has {self.src_lengths[longest]} source and "
                f"{self.tgt_lengths[longest]} target pieces, more than max_tokens={max_tokens}; "
                "raise max_tokens or leave out longer pairs"
            )
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self._resume_at = 0  # batches that the next iterator skips
        self._dealt: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of `epoch`, unless it is already the current epoch."""
        if epoch != self.epoch:
            self._resume_at = 0
        self.epoch = epoch

    def resume(self, epoch: int, position: int) -> None:
        """Make the next iterator start after the first `position` batches of `epoch`."""
        self.epoch, self._resume_at = epoch, position

    def __len__(self) -> int:
        """Number of this replica's batches in the current epoch, at any position."""
        return len(self._deal()[1]) // self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this replica's batches. After `resume`, the first iteration skips the batches before its position."""
        order, spans = self._deal()
        own = spans[self.rank :: self.num_replicas]
        position, self._resume_at = self._resume_at, 0
        for start, end in own[position:].tolist():
            yield order[start:end].tolist()

    def padding_shares(self) -> dict[str, float]:
        """Share of padding in all cells of this epoch on all replicas: source, target, and both together."""
        _, num_sentences, *longest = self._shapes()
        cells = [int((num_sentences * lengths).sum()) for lengths in longest]
        real = [int(lengths.sum()) for lengths in (self.src_lengths, self.tgt_lengths)]
        shares = [1 - r / c for r, c in zip([*real, sum(real)], [*cells, sum(cells)], strict=True)]
        return dict(zip(("source", "target", "both"), shares, strict=True))

    def num_bytes(self) -> int:
        """Memory of this epoch's batches and of the lengths of all rows."""
        return sum(array.nbytes for array in (self.src_lengths, self.tgt_lengths, self._sizes, *self._deal()))

    def largest_batches(self) -> list[list[int]]:
        """Rows of this epoch's batch with the most cells, and of the batch with the largest attention `B * T * S`."""
        starts, num_sentences, src_lengths, tgt_lengths = self._shapes()
        sizes = num_sentences * (src_lengths + tgt_lengths), num_sentences * src_lengths * tgt_lengths
        order, _ = self._deal()
        largest = dict.fromkeys(int(size.argmax()) for size in sizes)
        return [order[starts[each] :][: num_sentences[each]].tolist() for each in largest]

    def _shapes(self) -> tuple[NDArray[np.int64], ...]:
        """Start of each batch in this epoch's order, ascending, and its B, S and T with padding."""
        order, spans = self._deal()
        starts = np.sort(spans[:, 0])
        num_sentences = np.diff(np.append(starts, len(order)))
        src_lengths = np.maximum.reduceat(self.src_lengths[order], starts)
        tgt_lengths = np.maximum.reduceat(self.tgt_lengths[order], starts)
        return starts, num_sentences, src_lengths, tgt_lengths

    def _deal(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """This epoch's order of rows, and the batches of all replicas as spans (start, end) of that order."""
        if self._dealt is None or self._dealt[0] != self.epoch:
            rng = np.random.default_rng([self.seed, self.epoch if self.shuffle else 0])
            order = self._order(rng)
            spans = self._fill(self._sizes[order])
            rng.shuffle(spans)
            self._dealt = self.epoch, order, self._divide(spans)
        return self._dealt[1:]

    def _order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sort the rows so that neighbours are similar in both lengths.

        Rows fall into bands by the longer of their two lengths. A band is sorted by the difference of the lengths,
        upwards and downwards by turns, so that neighbours are alike across the edge of two bands: bands that are all
        sorted upwards give a fifth to two fifths more padding. Let a length have
        rows for m batches, and let the differences have the spread d. A band of w lengths then holds w * m batches,
        each about d / (w * m) differences wide: w = sqrt(d / m) makes batches as wide in one direction as in the other.
        Chance moves the edges of the bands, and each difference by up to two pieces: a row gets new neighbours in each
        epoch, for a hundredth more padding.
        """
        difference = (self.src_lengths - self.tgt_lengths).astype(np.float64)
        spread = max(1.0, float(difference.std()))
        num_batches = np.bincount(self._sizes, weights=self._sizes) / self.max_tokens  # [longest + 1]
        bands_per_length = np.minimum(1.0, np.sqrt(num_batches / spread))
        edge = rng.random() if self.shuffle else 0.0
        band_of_length = np.floor(np.cumsum(bands_per_length) - bands_per_length + edge)
        if self.shuffle:
            difference += 2.0 * rng.random(len(difference))
        # Sort key: the band plus the difference as a fraction, mirrored in every other band.
        lowest, width = difference.min(), np.ptp(difference) + 1.0
        key = difference  # in place: a corpus has millions of rows
        key -= lowest
        key /= width
        mirrored = (band_of_length % 2 != 0)[self._sizes]
        np.subtract(1.0 - 1.0 / width, key, out=key, where=mirrored)
        key += band_of_length[self._sizes]
        return np.argsort(key, kind="stable")  # the same on every machine, ties included

    def _fill(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Cut rows of these sizes, in order, into spans [num_batches, 2] as long as the budget allows."""
        counts = np.arange(1, self.max_tokens + 1)
        cuts = [0]
        while cuts[-1] < len(sizes):
            start = cuts[-1]
            most = self.max_tokens // max(1, int(sizes[start]))
            largest = np.maximum.accumulate(sizes[start : start + most])
            cells = largest * counts[: len(largest)]
            cuts.append(start + int(np.searchsorted(cells, self.max_tokens, side="right")))
        return np.stack((cuts[:-1], cuts[1:]), axis=1)

    def _divide(self, spans: NDArray[np.int64]) -> NDArray[np.int64]:
        """Halve the longest spans until `num_replicas` divides their number. Raises UserError if that fails."""
        while len(spans) % self.num_replicas:
            longest = int((spans[:, 1] - spans[:, 0]).argmax())
            start, end = spans[longest]
            if end - start == 1:
                raise UserError(
                    f"{len(spans)} batches of one pair each cannot be dealt to {self.num_replicas} processes: "
                    f"give more than data.max_tokens={self.max_tokens}"
                )
            middle = (start + end) // 2
            spans = np.concatenate((spans, [[middle, end]]))
            spans[longest, 1] = middle
        return spans
