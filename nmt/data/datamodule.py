"""From text to batches of piece ids, for Lightning."""

import logging
from functools import partial
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from nmt import alignment
from nmt.data.batching import Batch, TokenBatchSampler, collate
from nmt.data.corpus import count_shared, filter_pairs
from nmt.data.sampling import PairSampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError

log = logging.getLogger(__name__)


class Rows(NamedTuple):
    """Pairs as pieces: columns `index`, `src_ids`, `tgt_ids` and perhaps `links`; how many pieces each side has."""

    dataset: Dataset
    src_lengths: np.ndarray
    tgt_lengths: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset) -> "Rows":
        table = dataset.with_format("arrow")[:]
        return cls(dataset, _list_lengths(table["src_ids"]), _list_lengths(table["tgt_ids"]))


class TranslationDataModule(L.LightningDataModule):
    """Batches of a corpus whose splits hold the columns `src` and `tgt` (text), and perhaps `alignment`.

    Training pairs are filtered by length and ratio, with the counts logged; validation lines are all kept, in
    order, untouched. Held-out pairs that stand in the training text too are warned of. `max_tokens` bounds the
    padded tokens of a batch. With `guided`, training batches carry the corpus' alignments. With `sampling`, training
    text (after that filter) is cut into other pieces at each epoch, before its batches are made: they keep to
    `max_tokens` and no side becomes longer than `max_length`.
    """

    def __init__(
        self,
        splits: dict[str, Dataset],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        max_ratio: float,
        max_tokens: int,
        num_workers: int,
        seed: int,
        guided: bool,
        sampling: float = 0.0,
    ) -> None:
        super().__init__()
        for split in ("train", "val"):
            if split not in splits:
                raise UserError(f"the data have no {split} split; training needs train and val")
        if guided and "alignment" not in splits["train"].column_names:
            raise UserError("guided_alignment needs alignments of the training text, and the data have none")
        for split in splits.keys() - {"train"}:
            _warn_of_shared(split, splits[split], splits["train"])
        self.tokenizer = tokenizer
        self.max_tokens, self.num_workers, self.seed = max_tokens, num_workers, seed
        self._collate = partial(collate, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
        self.val_text = splits["val"]
        self.val = encode(splits["val"], tokenizer)
        encoded = encode(splits["train"], tokenizer, guided=guided)
        self.train, self.filter_counts = filter_pairs(encoded, max_length=max_length, max_ratio=max_ratio)
        log.info(
            "training pairs: %s", ", ".join(f"{count:,} {what}" for what, count in self.filter_counts.items())
        )
        self._sampler = None
        if sampling:
            limit = min(max_length, max_tokens)
            self._sampler = PairSampler(tokenizer, sampling, max_length=limit, seed=seed)
        self._drawn: tuple[int, Rows] | None = None  # an epoch and its pairs
        self._start = (0, 0)  # epoch, and how many of its batches are done
        self._rows = {"train": Rows.of(self.train), "val": Rows.of(self.val)}

    def rows(self, split: str, *, epoch: int = 0) -> "Rows":
        """The pairs of a split as pieces, in this epoch."""
        if split == "val" or self._sampler is None:
            return self._rows[split]
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = None  # two epochs need not be in memory at once
            self._drawn = epoch, Rows.of(self._sampler.draw(self.train, epoch))
        return self._drawn[1]

    def sampler(self, split: str, *, shuffle: bool, epoch: int = 0) -> TokenBatchSampler:
        """Batches of a split for this rank. A validation pair longer than the budget is a batch of its own."""
        _, src_lengths, tgt_lengths = self.rows(split, epoch=epoch)
        longest = int(max(src_lengths.max(), tgt_lengths.max()))
        trainer = self.trainer
        sampler = TokenBatchSampler(
            src_lengths,
            tgt_lengths,
            max_tokens=self.max_tokens if shuffle else max(self.max_tokens, longest),
            shuffle=shuffle,
            seed=self.seed,
            num_replicas=trainer.world_size if trainer else 1,
            rank=trainer.global_rank if trainer else 0,
        )
        sampler.set_epoch(epoch)
        return sampler

    def start_at(self, epoch: int, position: int) -> None:
        """Let training go on inside `epoch`, after `position` of its batches."""
        self._start = (epoch, position)

    def train_dataloader(self) -> DataLoader[Batch]:
        epoch = self.trainer.current_epoch if self.trainer else 0
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        if epoch == self._start[0]:
            sampler.load_state_dict({"epoch": epoch, "position": self._start[1]})
        # An epoch before that is asked for only to count its batches; one that has begun was logged then.
        if (epoch, 0) >= self._start:
            self._log_padding(epoch, sampler)
        return self._loader(self.rows("train", epoch=epoch).dataset, sampler)

    def largest_batch(self, epoch: int) -> Batch:
        """The training batch of an epoch with the most padded tokens."""
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        rows = self.rows("train", epoch=epoch).dataset
        return self._collate([rows[row] for row in sampler.largest_batch()])

    def _log_padding(self, epoch: int, sampler: TokenBatchSampler) -> None:
        share = sampler.padding_share()
        log.info("epoch %d: %d batches, %.1f %% padding", epoch, len(sampler), 100 * share)
        if self.trainer:
            for logger in self.trainer.loggers:
                # Of the steps to come, so that a run that goes on before them logs it in place of this one.
                logger.log_metrics({"train/padding": share}, step=self.trainer.global_step + 1)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.val, self.sampler("val", shuffle=False))

    def _loader(self, rows: Dataset, sampler: TokenBatchSampler) -> DataLoader[Batch]:
        return DataLoader(
            rows,
            batch_sampler=sampler,
            collate_fn=self._collate,
            num_workers=self.num_workers,
            persistent_workers=False,
            # Workers are seeded by the epoch, and no loader draws from the generator that dropout draws from.
            generator=torch.Generator().manual_seed(_mixed(self.seed, sampler.epoch)),
        )


def _warn_of_shared(split: str, held_out: Dataset, train: Dataset) -> None:
    """Warn where scores on `held_out` would partly be scores on training text."""
    if shared := count_shared(held_out, train):
        log.warning(
            "%s of %s %s pairs are training pairs too: leave them out of one, or its scores flatter",
            f"{shared:,}",
            f"{len(held_out):,}",
            split,
        )


def _mixed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def encode(dataset: Dataset, tokenizer: Tokenizer, *, guided: bool = False) -> Dataset:
    """The columns `index`, `src_ids` and `tgt_ids` (pieces and end of sentence), cached by content.

    With `guided`, also `links`: t_1, s_1, t_2, s_2, … of the linked pieces.
    """
    return dataset.map(
        _encode_rows,
        batched=True,
        with_indices=True,
        fn_kwargs={"tokenizer": tokenizer, "guided": guided},
        remove_columns=dataset.column_names,
        desc="pieces",
    )


def _encode_rows(
    rows: dict[str, list[str]], indices: list[int], tokenizer: Tokenizer, guided: bool
) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "index": indices,
        "src_ids": tokenizer.encode_source(rows["src"]),
        "tgt_ids": tokenizer.encode_target(rows["tgt"]),
    }
    if guided:
        columns["links"] = [
            _linked_pieces(*row, tokenizer)
            for row in zip(rows["src"], rows["tgt"], rows["alignment"], strict=True)
        ]
    return columns


def _linked_pieces(src: str, tgt: str, links: str, tokenizer: Tokenizer) -> list[int]:
    """The sure links of a pair as t_1, s_1, t_2, s_2, … over pieces."""
    sure, _ = alignment.parse_talp(links)
    pairs = alignment.piece_links(sure, tokenizer.align_target(tgt)[1], tokenizer.align_source(src)[1])
    return [place for pair in pairs for place in pair]


def _list_lengths(column: Any) -> np.ndarray:
    return np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks])
