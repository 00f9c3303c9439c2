"""From text to batches of piece ids, for Lightning."""

import hashlib
import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import lightning as L
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from nmt.data import pairs
from nmt.data.batching import Batch, TokenBatchSampler, collate, mixed
from nmt.data.pairs import Rows
from nmt.data.sampling import PairSampler
from nmt.data.streaming import BatchStream, Place, TextStream
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError

log = logging.getLogger(__name__)

_OTHER_TEXT = (
    "the training text is not the one that the run was trained on: put that back, or give its place as "
    "data.path="
)
_OTHER_VALIDATION = (
    "the validation set is not the one that the run was scored on, and its best checkpoint chosen by: put that back, "
    "or give its place as data.path="
)


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
        self.tokenizer = tokenizer
        self.max_length, self.max_ratio, self.max_tokens = max_length, max_ratio, max_tokens
        self.num_workers, self.seed, self.guided = num_workers, seed, guided
        self._collate = partial(collate, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
        self.val_text = splits["val"]
        self.val = pairs.encode(splits["val"], tokenizer)
        self._rows = {"val": Rows.of(self.val)}
        self._pair_sampler = None
        if sampling:
            limit = min(max_length, max_tokens)
            self._pair_sampler = PairSampler(tokenizer, sampling, max_length=limit, seed=seed)
        self._drawn: tuple[int, Rows] | None = None  # an epoch and its pairs
        self._start = (0, 0)  # epoch, and how many of its batches are done
        self._prepare_training(splits)

    def _prepare_training(self, splits: dict[str, Dataset]) -> None:
        if self.guided and "alignment" not in splits["train"].column_names:
            raise UserError("guided_alignment needs alignments of the training text, and the data have none")
        for split in splits.keys() - {"train"}:
            _warn_of_shared(split, splits[split], splits["train"])
        self._rows["train"], self.filter_counts = pairs.filter_pairs(
            pairs.encode(splits["train"], self.tokenizer, guided=self.guided),
            max_length=self.max_length,
            max_ratio=self.max_ratio,
        )
        self.train = self._rows["train"].dataset
        log.info(
            "training pairs: %s", ", ".join(f"{count:,} {what}" for what, count in self.filter_counts.items())
        )

    def rows(self, split: str, *, epoch: int = 0) -> Rows:
        """The pairs of a split as pieces, in this epoch."""
        if split == "val" or self._pair_sampler is None:
            return self._rows[split]
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = None  # two epochs need not be in memory at once
            self._drawn = epoch, Rows.of(self._pair_sampler.draw(self.train, epoch))
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

    def train_dataloader(self) -> Iterable[Batch]:
        epoch = self.trainer.current_epoch if self.trainer else 0
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        if epoch == self._start[0]:
            sampler.load_state_dict({"epoch": epoch, "position": self._start[1]})
        # An epoch before that is asked for only to count its batches; one that has begun was logged then.
        if (epoch, 0) >= self._start:
            self._log_padding(epoch, sampler)
        return self._loader(self.rows("train", epoch=epoch).dataset, sampler)

    def largest_batches(self, epoch: int) -> list[Batch]:
        """The training batches of an epoch that need the most memory, by `TokenBatchSampler.largest_batches`."""
        sampler = self.sampler("train", shuffle=True, epoch=epoch)
        rows = self.rows("train", epoch=epoch).dataset
        return [self._collate([rows[row] for row in chosen]) for chosen in sampler.largest_batches()]

    def _log_padding(self, epoch: int, sampler: TokenBatchSampler) -> None:
        share = sampler.padding_share()
        log.info("epoch %d: %d batches, %.1f %% padding", epoch, len(sampler), 100 * share)
        if self.trainer:
            for logger in self.trainer.loggers:
                # Of the steps to come, so that a run that goes on before them logs it in place of this one.
                logger.log_metrics({"train/padding": share}, step=self.trainer.global_step + 1)

    def state_dict(self) -> dict[str, Any]:
        """What tells this text from another, whatever its place: the lengths of training pairs, as pieces, and all of
        the validation set."""
        _, src_lengths, tgt_lengths = self._rows["train"]
        lengths = hashlib.sha256(src_lengths.tobytes() + tgt_lengths.tobytes()).hexdigest()
        return {"training_pairs": lengths, "validation": self._validation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises UserError where the run that goes on was trained or scored on other text."""
        if state_dict.get("training_pairs") != self.state_dict()["training_pairs"]:
            raise UserError(_OTHER_TEXT)
        self._check_validation(state_dict)

    @cached_property
    def _validation(self) -> str:
        return pairs.digest(self.val_text)

    def _check_validation(self, state_dict: dict[str, Any]) -> None:
        if state_dict["validation"] != self._validation:
            raise UserError(_OTHER_VALIDATION)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.val, self.sampler("val", shuffle=False))

    def _loader(self, rows: Dataset, sampler: TokenBatchSampler) -> DataLoader[Batch]:
        return _Loader(
            rows,
            batch_sampler=sampler,
            collate_fn=self._collate,
            num_workers=self.num_workers,
            persistent_workers=False,
            worker_init_fn=_leave_signals,
            # Workers are seeded by the epoch, and no loader draws from the generator that dropout draws from.
            generator=torch.Generator().manual_seed(mixed(self.seed, sampler.epoch)),
        )


class StreamingDataModule(TranslationDataModule):
    """As its parent, with a training text that is read as it goes, for what does not fit on a disk.

    `splits["train"]` is a TextStream. An epoch is `epoch_batches` batches of each rank, and goes on where the one
    before it ended; the text is begun anew when it is through. A run that goes on reads past what its pass has had,
    without splitting it into pieces, and then has the batches that it would have had. Whether held-out pairs stand in
    the training text is not looked for.
    """

    def __init__(self, *arguments: Any, epoch_batches: int, buffer_pairs: int, **keywords: Any) -> None:
        if keywords["num_workers"]:
            raise UserError(
                f"data.num_workers={keywords['num_workers']}: a stream has one thread of its own, set it to 0"
            )
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

    def train_dataloader(self) -> Iterable[Batch]:
        trainer = self.trainer
        epoch = trainer.current_epoch if trainer else 0
        num_replicas = trainer.world_size if trainer else 1
        self._check_blocks(num_replicas)
        return StreamedEpoch(
            self.stream,
            first=epoch * self.epoch_batches,
            length=self.epoch_batches,
            done=self._start[1] if epoch == self._start[0] else 0,
            num_replicas=num_replicas,
            rank=trainer.global_rank if trainer else 0,
        )

    def _check_blocks(self, num_replicas: int) -> None:
        """Raise UserError where a block that is still to be read could not be dealt to the processes."""
        if self.buffer_pairs < num_replicas:
            raise UserError(
                f"data.buffer_pairs={self.buffer_pairs}: {num_replicas} processes need as many, or more"
            )
        if num_replicas > 1 and 2 * self.max_length > self.max_tokens:  # batches of one pair cannot be halved
            raise UserError(
                f"data.max_length={self.max_length} above half of data.max_tokens={self.max_tokens}: {num_replicas} "
                "processes could not be dealt equally many batches of a stream"
            )

    def largest_batches(self, epoch: int) -> list[Batch]:
        """The largest there may be, of unknown pieces: with the most cells, and with the most pairs of positions."""
        shapes = [(n, min(self.max_length, self.max_tokens // n)) for n in range(1, self.max_tokens + 1)]
        most_cells = max(shapes, key=lambda shape: shape[0] * shape[1])
        most_pairs = max(shapes, key=lambda shape: shape[0] * shape[1] ** 2)
        return [self._unknown(*shape) for shape in dict.fromkeys((most_cells, most_pairs))]

    def _unknown(self, num_sentences: int, length: int) -> Batch:
        pieces = [self.tokenizer.unk_id] * (length - 1) + [self.tokenizer.eos_id]
        row = {"index": 0, "src_ids": pieces, "tgt_ids": pieces} | ({"links": []} if self.guided else {})
        return self._collate([row] * num_sentences)

    def state_dict(self) -> dict[str, Any]:
        return {
            "text": self.stream.text.digest,
            "validation": self._validation,
            **asdict(self.stream.place),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        place = dict(state_dict)
        text = self.stream.text.digest
        if place.pop("text") != text:
            raise UserError(_OTHER_TEXT)
        self._check_validation(place)
        place.pop("validation")
        self.stream.place = Place(**place)


@dataclass(frozen=True)
class StreamedEpoch:
    """`length` batches of a stream from the one numbered `first` on, without those that are done."""

    stream: BatchStream
    first: int
    length: int
    done: int
    num_replicas: int
    rank: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        batches = self.stream.batches(self.first + self.done, num_replicas=self.num_replicas, rank=self.rank)
        return islice(batches, self.length - self.done)


class _Loader(DataLoader[Batch]):
    """Its workers start with SIGINT and SIGTERM blocked, which would else end one before `_leave_signals`."""

    def __iter__(self) -> Any:
        if not (self.num_workers and hasattr(signal, "sigwaitinfo")):
            return super().__iter__()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_signals(worker: int) -> None:
    """What is sent to a whole group of processes, as Ctrl-C in a terminal is, the main process heeds, which may want a
    batch more: a worker ends by SIGTERM only where that is the main process' own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # only this says who has sent it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_by_parent, daemon=True).start()


def _end_by_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def make_datamodule(
    settings: Mapping[str, Any], splits: dict[str, Any], tokenizer: Tokenizer, *, seed: int, guided: bool
) -> TranslationDataModule:
    """By the settings of a `data` node: of a corpus, or of a stream, `streaming` batches of which are an epoch.

    Raises UserError for a setting that would have no effect.
    """
    keywords: dict[str, Any] = {
        name: settings[name] for name in ("max_length", "max_ratio", "max_tokens", "num_workers")
    } | {"seed": seed, "guided": guided, "sampling": settings["tokenizer"].get("sampling", 0.0)}
    epoch_batches, buffer_pairs = settings.get("streaming"), settings.get("buffer_pairs")
    if epoch_batches is None:
        if buffer_pairs is not None:
            raise UserError(f"data.buffer_pairs={buffer_pairs} is for a stream: set data.streaming too")
        return TranslationDataModule(splits, tokenizer, **keywords)
    return StreamingDataModule(
        splits, tokenizer, epoch_batches=epoch_batches, buffer_pairs=buffer_pairs or 100_000, **keywords
    )


def _warn_of_shared(split: str, held_out: Dataset, train: Dataset) -> None:
    """Warn where scores on `held_out` would partly be scores on training text."""
    if shared := pairs.count_shared(held_out, train):
        log.warning(
            "%s of %s %s pairs are training pairs too: leave them out of one, or its scores flatter",
            f"{shared:,}",
            f"{len(held_out):,}",
            split,
        )
