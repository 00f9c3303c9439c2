"""One of the variants that take turns: what was measured of it so far."""

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from nmt.benchmark.products import Cost, measure_products, measure_square, products_of
from nmt.benchmark.profiles import operator_shares, peak_memory
from nmt.benchmark.steps import TrainingStep, decode_seconds, first, num_target_tokens, train_seconds
from nmt.benchmark.tables import LABELS, summary
from nmt.data.batching import Batch
from nmt.kernels import using
from nmt.models.base import Translator


class Decoding(NamedTuple):
    """How many batches' sources are translated, by a beam of which size, into how many pieces each; `prepare`:
    what is done to a copy of the model before, where it does not translate as it trains."""

    num_batches: int
    beam_size: int
    length: int
    prepare: Callable[[Translator], None] | None = None


class Subject:
    """A model in training on `batches`, built by `build`, which gives the same first weights each time."""

    def __init__(
        self, build: Callable[[], TrainingStep], batches: Sequence[Batch], *, decoding: Decoding
    ) -> None:
        self.batches, self.decoding = batches, decoding
        self.device = batches[0].src.device
        self.figures: dict[str, list[float]] = {}
        self.operators: dict[str, float] = {}
        self.costs: dict[str, Cost] = {}
        largest = max(batches, key=lambda batch: batch.src.numel() + batch.tgt_in.numel())
        memory = peak_memory(lambda: train_seconds(build(), [largest] * 2), self.device)
        if memory is not None:
            self.figures["memory_mib"] = [memory / 2**20]
        self.step = build()
        self.products = products_of(self.step, batches)

    def take_turn(self, loader: Iterable[Batch], *, counts: bool) -> None:
        """Measure everything once. The products stand just before and after the training they are held against."""
        before = measure_products(self.products, self.device)
        seconds = train_seconds(self.step, self.batches)
        after = measure_products(self.products, self.device)
        translator = self.step.module.translator
        alone = sum(cost.seconds for cost in [*before.values(), *after.values()]) / 2
        operations = sum(cost.operations for cost in before.values())
        waiting = self._waiting_seconds(loader)
        sources = [batch.src for batch in self.batches[: self.decoding.num_batches]]
        num_sentences = sum(len(src) for src in sources)
        decode = partial(self._decode_seconds, self._decoder(), sources)
        figures = {
            "train_tokens_per_second": num_target_tokens(self.batches, translator.pad_id) / seconds,
            "efficiency": alone / seconds,
            "train_gflops": operations / seconds / 1e9,
            "products_gflops": operations / alone / 1e9,
            "square_gflops": measure_square(self.device, next(iter(self.products)).dtype).gflops,
            "loader_share": waiting / (waiting + seconds),
            "greedy_sentences_per_second": num_sentences / decode(beam_size=1),
            "beam_sentences_per_second": num_sentences / decode(beam_size=self.decoding.beam_size),
        }
        if counts:
            self.costs = after
            for key, value in figures.items():
                self.figures.setdefault(key, []).append(value)

    def _decoder(self) -> Translator:
        """The model with the weights that it has now, as it translates."""
        translator = self.step.module.translator
        if self.decoding.prepare is None:
            return translator
        translator = copy.deepcopy(translator).eval()
        self.decoding.prepare(translator)
        return translator

    def _decode_seconds(self, translator: Translator, sources: Sequence[Tensor], *, beam_size: int) -> float:
        with using(self.step.kernels):
            return decode_seconds(translator, sources, beam_size=beam_size, length=self.decoding.length)

    def _waiting_seconds(self, loader: Iterable[Batch]) -> float:
        """Seconds for as many batches from the loader, and to bring them to the device."""
        started = time.perf_counter()
        first(loader, len(self.batches), self.device)
        return time.perf_counter() - started

    def find_operators(self, num_operators: int) -> None:
        """Profile the training; after the turns, as it slows what it watches."""
        self.operators = operator_shares(self.step, self.batches, num_operators=num_operators)

    def result(self) -> dict[str, Any]:
        total = sum(cost.seconds for cost in self.costs.values())
        return {
            "num_parameters": sum(p.numel() for p in self.step.module.parameters()),
            "measures": {key: summary(self.figures[key]) for key in LABELS if key in self.figures},
            "products": {
                name: {"share": cost.seconds / total, "gflops": cost.gflops}
                for name, cost in self.costs.items()
            },
            "operators": self.operators,
        }
