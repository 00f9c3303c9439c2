"""Exploration of translations: searches, the alternatives to each piece, attention set by hand.

This module does not depend on the browser. Positions count pieces from 0 and include the end of sentence.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt import alignment
from nmt.attention import holding
from nmt.attention.masks import padding_mask
from nmt.decoding import Constraints, DecodingSettings, force_decode, search
from nmt.decoding.constraints import log_softmax
from nmt.errors import UserError
from nmt.plotting import Sentence
from nmt.run.directory import Run
from nmt.run.translation import Translation

NUM_ALTERNATIVES = 8
NUM_BEST = 5
END = "(end)"
NOTHING = alignment.Side([], [], [])

Unit = Literal["words", "pieces"]  # words are characters in text without spaces


@dataclass(frozen=True)
class Choices:
    """A user's choices for a translation.

    prefix: its first target pieces; an end of sentence as the last one ends it there. pins: for a target position, the
    source positions that it attends to, with equal weights. layer: the Transformer layer whose attention is held.
    """

    prefix: tuple[int, ...] = ()
    pins: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    layer: int = 0


class Alternative(NamedTuple):
    """A piece that the model could have written at a position, and its probability."""

    piece: int
    label: str
    probability: float


@dataclass(frozen=True)
class Explored:
    """A translation with its pieces, alternatives and attention.

    best: text, log-probability and words; `.others` are the rest of the n-best list. ids, labels: its pieces and their
    texts, the end included. alternatives: for each position. weights [L, K, T, S]: by layer and head. source, target:
    their words. An empty line, or a long line translated in parts, has only `best`, with weights between words.
    """

    best: Translation
    ids: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    source_labels: tuple[str, ...] = ()
    source: alignment.Side = NOTHING
    target: alignment.Side = NOTHING
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    weights: np.ndarray | None = None

    def sentence(
        self, unit: Unit = "words", layer: int | None = None, head: int | None = None, **more: Any
    ) -> Sentence:
        """The translation to draw, by words or pieces; layer and head count from 0, None is the mean over them."""
        source, target = self.best.source_words, self.best.target_words
        if self.weights is None:
            weights = np.zeros((len(target), len(source))) if self.best.weights is None else self.best.weights
            return Sentence(weights, source, target, **more)
        layers = self.weights.mean(axis=0) if layer is None else self.weights[layer]
        weights = layers.mean(axis=0) if head is None else layers[head]
        if unit == "pieces":
            return Sentence(weights, self.source_labels, self.labels, **more)
        between = alignment.weights_between(weights, self.target, self.source)
        return Sentence(between, source, target, **more)

    def position(self, unit: Unit, number: int) -> int | None:
        """The position of a piece, or of a word's first piece; None if it has no alternatives."""
        if unit == "pieces" and self.weights is not None:
            return number if number < len(self.ids) else None
        places = self.target.pieces_of([number])  # words are drawn
        return places[0] if places else None

    def pieces_of(self, words: list[int]) -> tuple[int, ...]:
        """The positions of the pieces of these source words."""
        return tuple(self.source.pieces_of(words))


class Explorer:
    """A run with a decoding method, for exploring its translations."""

    def __init__(self, run: Run, decoding: DecodingSettings | None = None) -> None:
        self.run, self.decoding = run, decoding or run.decoding

    @property
    def num_layers(self) -> int:
        """The number of layers that attend to the source."""
        return max(1, len(self._attentions))

    @property
    def num_heads(self) -> int:
        return max((getattr(each, "num_heads", 1) for each in self._attentions), default=1)

    @property
    def _attentions(self) -> list[torch.nn.Module]:
        return self.run.translator.decoder.cross_attentions  # type: ignore[union-attr, return-value]

    @torch.inference_mode()
    def stream(self, line: str, choices: Choices = Choices()) -> Iterator[str]:
        """The greedy translation after each piece; yields nothing for a line that is empty or too long."""
        if not self._is_one(line):
            return
        model, prefix = self.run.translator, [each for each in choices.prefix if each != self._eos]
        src = self.run.pad(self.run.tokenizer.encode_source([line]))
        mask = padding_mask(src, model.pad_id)
        memory = model.encode(src, mask)
        state = model.init_state(memory)
        settings = self._settings(choices, self.decoding.greedy)
        constraints = Constraints(model, mask.sum(dim=1), settings, self.run.pad([prefix]))
        piece = src.new_full((1,), model.bos_id)
        ids: list[int] = []
        while True:
            with self._holding(choices, src.size(1)):
                logits, state, _ = model.step(piece, state, memory)
            piece = constraints.log_probs(logits, piece.new_zeros(1), len(ids), None)[0].argmax(dim=-1)  # [1]
            if int(piece) == self._eos:
                return
            ids.append(int(piece))
            yield self.run.tokenizer.decode([ids])[0]

    @torch.inference_mode()
    def explore(self, line: str, choices: Choices = Choices()) -> Explored:
        """The best translation with the chosen prefix and the chosen attention."""
        if not self._is_one(line):
            return Explored(self.run.translate([line], self.decoding)[0])
        src = self.run.pad(self.run.tokenizer.encode_source([line]))
        prefix = [each for each in choices.prefix if each != self._eos]
        settings = self._settings(choices, self.decoding)
        num_best = NUM_BEST if settings.sample else min(NUM_BEST, settings.beam_size)
        with self._holding(choices, src.size(1)):
            [found] = search(
                self.run.translator, src, settings, num_best=num_best, prefixes=self.run.pad([prefix])
            )
            texts = self.run.tokenizer.decode([each.ids for each in found])
            best, *others = (
                Translation(line, text, each.score, each.log_prob)
                for text, each in zip(texts, found, strict=True)
            )
            ids = [*found[0].ids, self._eos]
            side = self.run.tokenizer.decoded_side(ids)
            return self._explored(src, ids, side, replace(best, others=tuple(others)))

    @torch.inference_mode()
    def force(self, line: str, target: str) -> Explored:
        """A given translation, by forced decoding. Raises UserError if it or the line is too long for the model."""
        [src_ids] = self.run.tokenizer.encode_source([line])
        [ids] = self.run.tokenizer.encode_target([target])
        longest = self.run.translator.max_length
        if longest is not None and max(len(src_ids), len(ids)) > longest:
            raise UserError(f"a sentence has more than the {longest} pieces that the model can read")
        src, tgt = self.run.pad([src_ids]), self.run.pad([ids])
        [found] = force_decode(self.run.translator, src, self._shifted(tgt), tgt)
        best = Translation(line, target, found.score, found.log_prob)
        return self._explored(src, ids, self.run.tokenizer.target_side(target), best)

    def free(self, line: str, choices: Choices) -> Explored:
        """The best translation with the chosen prefix and free attention: the baseline for the cost of holding it."""
        return self.explore(line, replace(choices, pins={}))

    def _explored(self, src: Tensor, ids: list[int], target: alignment.Side, best: Translation) -> Explored:
        """`best` with the alternatives and attention of its pieces `ids`, which include the end, for `src` [1, S]."""
        model, tokenizer = self.run.translator, self.run.tokenizer
        tgt_in, src_mask = self._shifted(self.run.pad([ids])), padding_mask(src, model.pad_id)
        log_probs = log_softmax(model.forward(model.encode(src, src_mask), tgt_in).logits)[0]  # [T, V]
        log_probs[:, [model.pad_id, model.bos_id]] = float("-inf")
        most, pieces = log_probs.topk(min(NUM_ALTERNATIVES, log_probs.size(1) - 2), dim=1)
        alternatives = tuple(
            tuple(Alternative(*each) for each in zip(row, self._labels(row), chances, strict=True))
            for row, chances in zip(pieces.tolist(), most.exp().tolist(), strict=True)
        )
        cross = model.attentions(src, src_mask, tgt_in).cross
        source = tokenizer.source_side(best.source)
        return Explored(
            replace(best, source_words=source.labels, target_words=target.labels),
            tuple(ids),
            tuple(self._labels(ids)),
            (*tokenizer.source_pieces(src[0, :-1].tolist()), END),
            source,
            target,
            alternatives,
            None if cross is None else cross[0].float().cpu().numpy(),
        )

    def _labels(self, ids: list[int]) -> list[str]:
        texts = self.run.tokenizer.target_pieces(ids)
        return [END if each == self._eos else text for each, text in zip(ids, texts, strict=True)]

    def _shifted(self, tgt: Tensor) -> Tensor:
        """The decoder's input [1, T] for `tgt`: BOS first, without the last piece."""
        return torch.nn.functional.pad(tgt[:, :-1], (1, 0), value=self.run.translator.bos_id)

    def _holding(self, choices: Choices, length: int) -> AbstractContextManager[None]:
        """A context in which the chosen attention over `length` source positions is held."""
        rows = {}
        for position, sources in choices.pins.items():
            rows[position] = torch.zeros(length, device=self.run.device)
            rows[position][list(sources)] = 1 / len(sources)
        return holding(self._attentions[choices.layer], rows) if rows else nullcontext()

    def _settings(self, choices: Choices, settings: DecodingSettings) -> DecodingSettings:
        """The settings; if the prefix contains the end of sentence, with the length limited to that prefix."""
        if self._eos not in choices.prefix:
            return settings
        return replace(settings, max_length=len(choices.prefix) - 1, min_length=0)

    def _is_one(self, line: str) -> bool:
        """Whether a line is translated in one part: it is not empty, and not too long."""
        [ids] = self.run.tokenizer.encode_source([line])
        return 1 < len(ids) <= self.run.most_pieces

    @property
    def _eos(self) -> int:
        return self.run.translator.eos_id
