"""A variant of a benchmark, measured in turns with other variants."""

import copy
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from nmt.benchmark.markdown import LABELS, summary
from nmt.benchmark.resources import peak_memory_of
from nmt.benchmark.steps import TrainingStep, decode_seconds, first_batches, num_target_tokens, train_seconds
from nmt.data.batching import Batch
from nmt.kernels import using
from nmt.models.base import Translator


class Decoding(NamedTuple):
    """The decoding settings of a variant.

    num_batches: number of batches to translate. length: pieces per translation. prepare: changes a copy of the model
    for decoding, such as to int8; None if the model decodes as it trains.
    """

    num_batches: int
    beam_size: int
    length: int
    prepare: Callable[[Translator], None] | None = None


class Subject:
    """A variant that trains on the batches of its turns, and its measurements.

    build: makes the model and its training step, with the same first weights at every call.
    """

    def __init__(
        self, build: Callable[[], TrainingStep], turns: Sequence[Sequence[Batch]], *, decoding: Decoding
    ) -> None:
        self.turns, self.decoding = turns, decoding
        self.device = turns[0][0].src.device
        batches = itertools.chain.from_iterable(turns)
        largest = max(batches, key=lambda batch: batch.src.numel() + batch.tgt_in.numel())
        memory = peak_memory_of(lambda: train_seconds(build(), [largest] * 2), self.device)
        self.figures = {"memory_mib": [memory / 2**20]}
        self.step = build()

    def take_turn(self, turn: int, loader: Iterable[Batch]) -> None:
        """Measure everything once, on the batches of this turn. Turn 0 does not count."""
        batches = self.turns[turn]
        if self.device.type == "cuda":
            train_seconds(self.step, batches)  # records the CUDA graphs, which a long training does once
        seconds = train_seconds(self.step, batches)
        waiting = self._waiting_seconds(loader, len(batches))
        sources = [batch.src for batch in batches[: self.decoding.num_batches]]
        num_sentences = sum(len(src) for src in sources)
        decode = partial(self._decode_seconds, self._decoder(), sources)
        figures = {
            "train_tokens_per_second": num_target_tokens(batches, self.step.module.translator.pad_id)
            / seconds,
            "loader_share": waiting / (waiting + seconds),
            "greedy_sentences_per_second": num_sentences / decode(beam_size=1),
            "beam_sentences_per_second": num_sentences / decode(beam_size=self.decoding.beam_size),
        }
        if turn > 0:
            for key, value in figures.items():
                self.figures.setdefault(key, []).append(value)

    def _decoder(self) -> Translator:
        """The model with its current weights, prepared for decoding."""
        translator = self.step.module.translator
        if self.decoding.prepare is None:
            return translator
        translator = copy.deepcopy(translator).eval()
        self.decoding.prepare(translator)
        return translator

    def _decode_seconds(self, translator: Translator, sources: Sequence[Tensor], *, beam_size: int) -> float:
        with using(self.step.kernels):
            return decode_seconds(translator, sources, beam_size=beam_size, length=self.decoding.length)

    def _waiting_seconds(self, loader: Iterable[Batch], num_batches: int) -> float:
        """Seconds to load `num_batches` batches and move them to the device."""
        started = time.perf_counter()
        first_batches(loader, num_batches, self.device)
        return time.perf_counter() - started

    def result(self) -> dict[str, Any]:
        return {
            "num_parameters": sum(p.numel() for p in self.step.module.parameters()),
            "measures": {key: summary(self.figures[key]) for key in LABELS if key in self.figures},
        }
