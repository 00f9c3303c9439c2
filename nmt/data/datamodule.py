"""Lightning data modules: batches of piece ids from a corpus in memory-mapped tables, or from a stream."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import lightning as L
import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from nmt.config.types import Units
from nmt.data import encoding
from nmt.data.batching import Batch, TokenBatchSampler, collate, mix_seed
from nmt.data.encoding import Rows
from nmt.data.pair_sampler import PairSampler
from nmt.data.streaming import BatchStream, Place, TextStream
from nmt.data.tokenizer import Tokenizer
from nmt.data.unknown_characters import unknown_message
from nmt.errors import UserError

log = logging.getLogger(__name__)

_PAIRS_MEASURED = 10_000  # of a stream
_PAIRS_TRIED = 1_000


class TranslationDataModule(L.LightningDataModule):
    """Batches of a corpus with the columns `src` and `tgt` (text), and perhaps `alignment`.

    Training pairs are filtered by length and ratio. All validation lines are kept, in order. Held-out pairs that are
    also training pairs give a warning. `max_tokens` bounds the padded tokens of a batch. With `guided`, training
    batches carry the alignments of the corpus. With `sampling`, training text is segmented anew for each epoch.
    """

    def __init__(
        self,
        splits: dict[str, Dataset],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        max_ratio: float,
        max_tokens: int,
        seed: int,
        guided: bool,
        sampling: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.max_length, self.max_ratio, self.max_tokens = max_length, max_ratio, max_tokens
        self.seed, self.guided = seed, guided
        self._collate = partial(collate, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
        self.val_text = splits["val"]
        some = self.val_text["tgt"][:1000]
        if (share := tokenizer.count_rewritten(some) / len(some)) > 0.05:
            log.warning(
                "%.0f %% of the validation references hold characters or words that the vocabulary rewrites or does "
                "not know: no translation can equal them. See data.tokenizer.normalization, character_coverage and "
                "vocab_size",
                100 * share,
            )
        self.val = encoding.encode(splits["val"], tokenizer)
        self._warn_of_unknown(self.val, splits["val"], {"src": "validation sources"})
        self._rows = {"val": Rows.of(self.val)}
        self._pair_sampler = None
        if sampling:
            limit = min(max_length, max_tokens)
            self._pair_sampler = PairSampler(tokenizer, sampling, max_length=limit, seed=seed)
        self._drawn: tuple[int, Rows] | None = None  # an epoch and its pairs
        self._start = (0, 0)  # epoch, number of its finished batches
        self._prepare_training(splits)

    def _prepare_training(self, splits: dict[str, Dataset]) -> None:
        for split in splits.keys() - {"train"}:
            if shared := encoding.count_shared(splits[split], splits["train"]):
                log.warning(
                    "%s of %s %s pairs are training pairs too: leave them out of one, or its scores flatter",
                    f"{shared:,}",
                    f"{len(splits[split]):,}",
                    split,
                )
        text = splits["train"]
        limits: dict[str, Any] = {"max_length": self.max_length, "max_ratio": self.max_ratio}
        units: Units = "words"
        if self.guided and "alignment" not in text.column_names:
            log.info("the training text has no alignments: its words are aligned by counting (IBM Model 2)")
            some = encoding.encode(encoding.sample_rows(text, _PAIRS_TRIED), self.tokenizer)
            encoding.filter_pairs(some, **limits)  # before minutes of counting: is any pair kept?
            text, units = encoding.add_alignment(text), "auto"
        encoded = encoding.encode(text, self.tokenizer, guided=self.guided, units=units)
        kinds = {"src": "training sources", "tgt": "training targets"}
        self._warn_of_unknown(encoded, splits["train"], kinds)
        self._rows["train"], self.filter_counts = encoding.filter_pairs(encoded, **limits)
        self.train = self._rows["train"].dataset
        self._check_budget(splits["train"])
        counts = {name: f"{count:,}" for name, count in self.filter_counts.items()}
        said = "training pairs: %(kept)s kept; left out: %(empty)s empty, %(too_long)s too long, %(ratio)s too uneven"
        log.info(said, counts)
        encoding.warn_of_left_out(self.filter_counts, limits, "training pairs")

    def _warn_of_unknown(self, encoded: Dataset, text: Dataset, kinds: dict[str, str]) -> None:
        for side, kind in kinds.items():
            if places := encoding.rows_with(encoded, f"{side}_ids", self.tokenizer.unk_id):
                some = text.select(places[:100])[side]
                found = [*chain(*self.tokenizer.unknown_characters(some, is_target=side == "tgt"))]
                number = sum(
                    each.count(self.tokenizer.unk_id) for each in encoded.select(places)[f"{side}_ids"]
                )
                share = number / encoding.lengths(encoded)[side == "tgt"].sum()
                words = (
                    word
                    for word in chain(*map(str.split, some))
                    if any(each in word or each in word.lower() for each in found)
                )
                examples = ", ".join(islice(dict.fromkeys(words), 3))
                log.warning(
                    "%s (%.2g %% of the pieces, as in %s)",
                    *(unknown_message(len(places), len(text), kind, found), 100 * share, examples),
                )

    def _check_budget(self, text: Dataset) -> None:
        """Raise UserError for a training pair larger than a batch may be, naming its place in the text."""
        _, src, tgt = self._rows["train"]
        longest = int(np.maximum(src, tgt).argmax())
        if max(src[longest], tgt[longest]) > self.max_tokens:
            row = self.train[longest]["index"]
            raise UserError(
                f"pair {row + 1} of the training text ({text[row]['src'][:60]} …) has {src[longest]} source and "
                f"{tgt[longest]} target pieces, more than data.max_tokens={self.max_tokens}: raise it, or lower "
                f"data.max_length={self.max_length}, which leaves out longer pairs"
            )

    def rows(self, split: str, *, epoch: int = 0) -> Rows:
        """Encoded pairs of a split in this epoch."""
        if split == "val" or self._pair_sampler is None:
            return self._rows[split]
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = None  # so that two epochs are never in memory at once
            self._drawn = epoch, Rows.of(self._pair_sampler.draw(self.train, epoch))
        return self._drawn[1]

    def training_lengths(self) -> tuple[encoding.Lengths, encoding.Lengths]:
        """Numbers of pieces of the training pairs on either side; of a stream, of its first pairs."""
        return self._rows["train"][1:]

    def sampler(self, split: str, *, shuffle: bool, epoch: int = 0) -> TokenBatchSampler:
        """Batches of a split for this rank. Without `shuffle` (validation), the longest pair always fits the budget."""
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

    def num_batches(self, num_processes: int) -> int:
        """Number of batches per process in the first epoch."""
        return -(-len(self.sampler("train", shuffle=True)) // num_processes)

    def start_at(self, epoch: int, position: int) -> None:
        """Make training go on inside `epoch`, after `position` of its batches."""
        self._start = (epoch, position)

    def train_dataloader(self) -> Iterable[Batch]:
        epoch = self.trainer.current_epoch if self.trainer else 0
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        if epoch == self._start[0]:
            sampler.resume(epoch, self._start[1])
        # Lightning asks for an earlier epoch only to count its batches; a resumed epoch was logged at its start.
        if (epoch, 0) >= self._start:
            self._log_padding(epoch, sampler)
        return self._loader(self.rows("train", epoch=epoch).dataset, sampler)

    def largest_batches(self, epoch: int) -> list[Batch]:
        """Training batches of an epoch that need the most memory (see `TokenBatchSampler.largest_batches`)."""
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        rows = self.rows("train", epoch=epoch).dataset
        return [self._collate([rows[row] for row in chosen]) for chosen in sampler.largest_batches()]

    def _log_padding(self, epoch: int, sampler: TokenBatchSampler) -> None:
        share = sampler.padding_shares()["both"]
        log.info("epoch %d: %d batches, %.1f %% padding", epoch + 1, len(sampler), 100 * share)
        if self.trainer:
            for logger in self.trainer.loggers:
                # At the next step, so that a run resumed before that step overwrites it.
                logger.log_metrics({"train/padding": share}, step=self.trainer.global_step + 1)

    def state_dict(self) -> dict[str, Any]:
        """Digests of the training pairs' lengths and of the validation text. Paths of files do not count."""
        return {"text": self._text_digest(), "validation": self._validation_digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raise UserError if the run was trained or scored on other text."""
        for key, text in (
            ("text", "the training text is not the one that the run was trained on"),
            ("validation", "the validation set is not the one that the run was scored on"),
        ):
            if state_dict[key] != self.state_dict()[key]:
                raise UserError(f"{text}: put that back, or give its place as data.path=")

    def _text_digest(self) -> str:
        """A digest of the numbers of pieces of all training pairs."""
        _, src_lengths, tgt_lengths = self._rows["train"]
        return hashlib.sha256(src_lengths.tobytes() + tgt_lengths.tobytes()).hexdigest()

    @cached_property
    def _validation_digest(self) -> str:
        return encoding.digest_pairs(self.val_text)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.val, self.sampler("val", shuffle=False))

    def _loader(self, rows: Dataset, sampler: TokenBatchSampler) -> DataLoader[Batch]:
        return DataLoader(
            rows,
            batch_sampler=sampler,
            collate_fn=self._collate,
            # A separate generator, so that the loader does not draw from dropout's.
            generator=torch.Generator().manual_seed(mix_seed(self.seed, sampler.epoch)),
        )


class StreamingDataModule(TranslationDataModule):
    """A data module that reads its training text, a TextStream, as needed, without a prepared copy.

    An epoch has `epoch_batches` batches per rank and continues at the end of the epoch before. After the last pair the
    text begins again. A resumed run gets the same batches as an uninterrupted run. There is no check for validation
    pairs inside the training text.
    """

    def __init__(self, *arguments: Any, epoch_batches: int, buffer_pairs: int, **keywords: Any) -> None:
        if keywords["max_length"] > keywords["max_tokens"]:
            limits = (
                f"data.max_length={keywords['max_length']} above data.max_tokens={keywords['max_tokens']}"
            )
            raise UserError(f"{limits}: a pair that is still to be read could fit into no batch")
        self.epoch_batches, self.buffer_pairs = epoch_batches, buffer_pairs
        super().__init__(*arguments, **keywords)

    def _prepare_training(self, splits: dict[str, Any]) -> None:
        text: TextStream = splits["train"]
        log.info("training pairs are read as they are needed, from %d files", len(text.shards))
        self.stream = BatchStream(
            text,
            self.tokenizer,
            self._collate,
            buffer_pairs=self.buffer_pairs,
            max_length=self.max_length,
            max_ratio=self.max_ratio,
            max_tokens=self.max_tokens,
            seed=self.seed,
            guided=self.guided,
            pair_sampler=self._pair_sampler,
        )

    def training_lengths(self) -> tuple[encoding.Lengths, encoding.Lengths]:
        return self.stream.first_lengths(_PAIRS_MEASURED)

    def num_batches(self, num_processes: int) -> int:
        return self.epoch_batches

    def train_dataloader(self) -> Iterable[Batch]:
        trainer = self.trainer
        epoch = trainer.current_epoch if trainer else 0
        return StreamedEpoch(
            self.stream,
            first=epoch * self.epoch_batches,
            length=self.epoch_batches,
            done=self._start[1] if epoch == self._start[0] else 0,
            num_replicas=trainer.world_size if trainer else 1,
            rank=trainer.global_rank if trainer else 0,
        )

    def largest_batches(self, epoch: int) -> list[Batch]:
        """The largest possible batches, of unknown pieces: by cells, and by pairs of positions."""
        shapes = [(n, min(self.max_length, self.max_tokens // n)) for n in range(1, self.max_tokens + 1)]
        most_cells = max(shapes, key=lambda shape: shape[0] * shape[1])
        most_pairs = max(shapes, key=lambda shape: shape[0] * shape[1] ** 2)
        return [self._unknown(*shape) for shape in dict.fromkeys((most_cells, most_pairs))]

    def _unknown(self, num_sentences: int, length: int) -> Batch:
        pieces = [self.tokenizer.unk_id] * (length - 1) + [self.tokenizer.eos_id]
        row = {"index": 0, "src_ids": pieces, "tgt_ids": pieces} | ({"links": []} if self.guided else {})
        return self._collate([row] * num_sentences)

    def _text_digest(self) -> str:
        return self.stream.text.digest

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"place": asdict(self.stream.place)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.stream.place = Place(**state_dict["place"])


@dataclass(frozen=True)
class StreamedEpoch:
    """`length` batches of a stream from number `first` on, without the first `done` batches."""

    stream: BatchStream
    first: int
    length: int
    done: int
    num_replicas: int
    rank: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches. Raises UserError if the place, which a checkpoint may give, is not just before them.

        It is checked at the first batch, as Lightning also asks for iterators that it does not use.
        """
        first = self.first + self.done
        ahead = first - self.stream.place.batch  # in a block, which has no more batches than pairs
        if self.done > self.length or not 0 <= ahead <= self.stream.buffer_pairs:
            raise UserError(
                "the checkpoint's state StreamingDataModule.place is not that of its batch: start the run anew"
            )
        batches = self.stream.batches(first, num_replicas=self.num_replicas, rank=self.rank)
        yield from islice(batches, self.length - self.done)


def make_datamodule(
    settings: Mapping[str, Any], splits: dict[str, Any], tokenizer: Tokenizer, *, seed: int, guided: bool
) -> TranslationDataModule:
    """The data module of a `data` node: a stream if `streaming` gives the number of batches per epoch."""
    keywords: dict[str, Any] = {
        name: settings[name] for name in ("max_length", "max_ratio", "max_tokens")
    } | {"seed": seed, "guided": guided, "sampling": settings["tokenizer"].get("sampling", 0.0)}
    epoch_batches = settings.get("streaming")
    if epoch_batches is None:
        return TranslationDataModule(splits, tokenizer, **keywords)
    keywords |= {"epoch_batches": epoch_batches, "buffer_pairs": settings["buffer_pairs"]}
    return StreamingDataModule(splits, tokenizer, **keywords)
