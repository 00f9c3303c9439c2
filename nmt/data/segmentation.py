"""Sample segmentations of words into the pieces of a SentencePiece model (subword regularisation).

SentencePiece's samples differ between processes with the same seed, so no run could be resumed exactly. Here all
randomness comes from the generator that is passed in.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate
from random import Random
from typing import NamedTuple

from nmt.data.pieces import SPACE
from nmt.errors import UserError

_NEVER = 2.0**60  # merges
_WORDS = 2**16  # words whose segmentations are cached


class Piece(NamedTuple):
    """A piece of a model.

    score: the log probability in a unigram model, minus the rank of the merge in a BPE model. is_text: True for a
    normal piece: not unknown, control, user-defined, byte or unused.
    """

    text: str
    score: float
    is_text: bool


class Segmenter(ABC):
    """Draws other pieces for the same text, word by word; a word begins at a piece with `▁`.

    Pieces that are not text (unknown, control, user-defined and byte pieces) stay as they are. So do words with a
    letter that is no piece.
    """

    def __init__(self, pieces: Sequence[Piece], alpha: float) -> None:
        self.alpha = alpha
        self._texts = [each.text if each.is_text else None for each in pieces]
        self._ids = {text: number for number, text in enumerate(self._texts) if text is not None}
        self._scores = {each.text: each.score for each in pieces if each.is_text}
        self._longest = max(map(len, self._scores), default=0)
        self._lengths = [len(each.text) for each in pieces]

    @abstractmethod
    def draw(self, ids: Sequence[int], generator: Random) -> list[int]:
        """Pieces of the same text as `ids`, drawn from the generator."""

    def origins(self, ids: Sequence[int], drawn: Sequence[int]) -> list[int]:
        """For each drawn piece, the place in `ids` of the last piece that overlaps it."""
        ends = list(accumulate(self._lengths[each] for each in ids))
        return [bisect(ends, end - 1) for end in accumulate(self._lengths[each] for each in drawn)]

    def _words(self, ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the pieces of each word. A piece that is not text counts as a word."""
        word: list[int] = []
        for each in ids:
            text = self._texts[each]
            if word and (text is None or text[0] == SPACE):
                yield tuple(word)
                word = []
            word.append(each)
            if text is None:
                yield tuple(word)
                word = []
        if word:
            yield tuple(word)

    def _text(self, word: tuple[int, ...]) -> str | None:
        """The text of a word, or None if the word stays as it is."""
        texts = [self._texts[each] for each in word]
        joined = "".join(text for text in texts if text is not None)
        return joined if None not in texts and all(letter in self._ids for letter in joined) else None


class BPEDropout(Segmenter):
    """Leave out each merge of a byte-pair encoding with probability alpha (Provilkov et al. 2020).

    Merges are tried from the best on. As in SentencePiece, and unlike the paper's algorithm 1, a merge that was left
    out is not tried again.
    """

    def __init__(self, pieces: Sequence[Piece], alpha: float) -> None:
        super().__init__(pieces, alpha)
        self._num_merges = lru_cache(_WORDS)(self._count_merges)

    def draw(self, ids: Sequence[int], generator: Random) -> list[int]:
        # Draw the number of merges before the next omission, not a number per merge: most words stay as they are.
        drawn: list[int] = []
        left = self._gap(generator)
        for word in self._words(ids):
            num_merges = self._num_merges(word)
            if left >= num_merges:
                left -= num_merges
                drawn += word
            else:
                pieces, left = self._merge(self._text(word) or "", left, generator)
                drawn += pieces
        return drawn

    def _gap(self, generator: Random) -> int:
        """Number of merges before the next omission: n with probability `(1 - alpha)^n alpha`."""
        return int(min(math.log1p(-generator.random()) / math.log1p(-self.alpha), _NEVER))

    def _count_merges(self, word: tuple[int, ...]) -> int:
        """Number of merges of a word without omissions."""
        text = self._text(word)
        return 0 if text is None else len(text) - len(self._merge(text, len(text), Random(0))[0])

    def _merge(self, text: str, left: int, generator: Random) -> tuple[list[int], int]:
        """The pieces of a word if `left` more merges come before the next omission, and the new `left`."""
        size, scores = len(text), self._scores
        after, before = list(range(1, size + 2)), list(range(-1, size))  # the neighbours of each cut
        agenda = [
            (-scores[text[a : a + 2]], a, a + 1, a + 2) for a in range(size - 1) if text[a : a + 2] in scores
        ]
        heapify(agenda)
        while agenda:
            _, a, b, c = heappop(agenda)
            if after[a] != b or after[b] != c:
                continue  # a part already belongs to another piece
            if left == 0:
                left = self._gap(generator)
                continue
            left -= 1
            after[a], after[b], before[c] = c, -1, a
            if a > 0 and (score := scores.get(text[before[a] : c])) is not None:
                heappush(agenda, (-score, before[a], a, c))
            if c < size and (score := scores.get(text[a : after[c]])) is not None:
                heappush(agenda, (-score, a, c, after[c]))
        pieces, a = [], 0
        while a < size:
            pieces.append(self._ids[text[a : after[a]]])
            a = after[a]
        return pieces, left


class UnigramSampling(Segmenter):
    """Draw a segmentation with probability in proportion to `p^alpha`, p being the product of its pieces'
    probabilities.

    Kudo 2018, 3.1, over all segmentations: forward filtering, backward sampling.
    """

    def __init__(self, pieces: Sequence[Piece], alpha: float) -> None:
        super().__init__(pieces, alpha)
        self._lattice = lru_cache(_WORDS)(self._build_lattice)

    def draw(self, ids: Sequence[int], generator: Random) -> list[int]:
        drawn: list[int] = []
        for word in self._words(ids):
            lattice = self._lattice(word)
            if lattice is None:
                drawn += word
                continue
            pieces, end = [], len(lattice) - 1
            while end > 0:
                shares, begins = lattice[end]
                begin = begins[bisect(shares, generator.random(), hi=len(shares) - 1)]
                pieces.append((begin, end))
                end = begin
            text = self._text(word) or ""
            drawn += [self._ids[text[begin:end]] for begin, end in reversed(pieces)]
        return drawn

    def _build_lattice(self, word: tuple[int, ...]) -> list[tuple[list[float], list[int]]] | None:
        """For each end of a piece: the cumulative probabilities of its possible beginnings, and the beginnings."""
        text = self._text(word)
        if text is None:
            return None
        totals = [0.0]  # log of the sum of p^alpha over all segmentations of the text up to here
        lattice: list[tuple[list[float], list[int]]] = [([], [])]
        for end in range(1, len(text) + 1):
            begins = [
                begin for begin in range(max(0, end - self._longest), end) if text[begin:end] in self._ids
            ]
            weights = [totals[begin] + self.alpha * self._scores[text[begin:end]] for begin in begins]
            highest = max(weights)
            sums = list(accumulate(math.exp(weight - highest) for weight in weights))
            totals.append(highest + math.log(sums[-1]))
            lattice.append(([each / sums[-1] for each in sums], begins))
        return lattice


def segmenter(model: bytes, alpha: float) -> Segmenter:
    """The segmenter for a serialized SentencePiece model. Raises UserError if it cannot sample."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

    key = f"data.tokenizer.sampling={alpha}"
    proto = ModelProto.FromString(model)
    kind, spec = proto.trainer_spec.model_type, proto.trainer_spec
    pieces = [Piece(each.piece, each.score, each.type == each.NORMAL) for each in proto.pieces]
    if kind == spec.BPE:
        if not 0 < alpha < 1:
            raise UserError(f"{key}: give a number above 0 and below 1 for a bpe model, or 0 for no sampling")
        return BPEDropout(pieces, alpha)
    if kind == spec.UNIGRAM:
        if not 0 < alpha < math.inf:
            raise UserError(f"{key}: give a number above 0 for a unigram model, or 0 for no sampling")
        return UnigramSampling(pieces, alpha)
    raise UserError(f"{key}: a model of words or characters has one way to cut a text; use unigram or bpe")
