"""Learn from a sample which words translate each other, and how much of a pair's words the other side explains."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.numbered_words import Ints, Words
from nmt.preparation.codes import NUM_WORDS, Floats

_AT_AN_END = 12  # words that are read at the beginning of a line, and at its end
_LEAST_COUNT = 2  # of a word; rarer words, as names, share a code
_RARE = 0
_MOST_SLOTS = 2**22  # of the table of word pairs; two pairs may share a slot
_ROUNDS = 4
_DISCOUNT = 0.3  # taken off the count of a word pair
_UNEXPLAINED = 0.1  # share of words that come from nowhere
_PAIRS_AT_ONCE = 1_000


@dataclass(frozen=True)
class WordPairs:
    """p(source word | target word) and p(target word | source word) by Model 1 of Brown et al. 1993.

    chances: both, by the slot of a word pair. shares: how frequent the words of each side are, 0 for unknown words.
    """

    chances: NDArray[np.float32]
    shares: tuple[Floats, Floats]

    @classmethod
    def learn(cls, src: Words, tgt: Words) -> "WordPairs":
        shares = _shares(src), _shares(tgt)
        src, tgt = _known(src, shares[0]), _known(tgt, shares[1])
        num_products = int((src.lengths * tgt.lengths).sum())
        chances = np.ones((min(_MOST_SLOTS, 4 << num_products.bit_length()), 2), np.float32)
        for _ in range(_ROUNDS):
            chances = _improve(chances, src, tgt)
        return cls(chances, shares)

    def known(self, src: Words, tgt: Words) -> tuple[Words, Words]:
        """The words that are known, at both ends of each line."""
        return _known(src, self.shares[0]), _known(tgt, self.shares[1])

    def explain(self, src: Words, tgt: Words) -> tuple[Floats, Floats]:
        """How much likelier each known source and target word is beside the other side than by itself, in nats."""
        first, second = src.beside(tgt)
        chances = self.chances[_slots(src, tgt, first, second) % len(self.chances)]
        return (
            _gains(src, tgt, first, chances[:, 0], self.shares[0]),
            _gains(tgt, src, second, chances[:, 1], self.shares[1]),
        )


def _known(words: Words, shares: Floats) -> Words:
    places = words.places
    is_near_an_end = (places < _AT_AN_END) | (np.repeat(words.lengths, words.lengths) - places <= _AT_AN_END)
    codes = np.where(shares[words.codes] > 0, words.codes, _RARE)
    return Words(codes, words.lengths).only(is_near_an_end)


def _shares(words: Words) -> Floats:
    counts = np.bincount(words.codes, minlength=NUM_WORDS)
    is_rare = counts < _LEAST_COUNT
    counts[_RARE] += counts[is_rare].sum() + 1
    is_rare[_RARE] = False
    return np.where(is_rare, 0.0, counts / counts.sum())


def _slots(src: Words, tgt: Words, first: Ints, second: Ints) -> Ints:
    one = (src.codes * 0x9E3779B97F4A7).astype(np.uint64)
    other = (tgt.codes * 0x85EBCA6B2E3D1).astype(np.uint64)
    return ((one[first] + other[second]) >> np.uint64(20)).astype(np.int64)


def _gains(words: Words, others: Words, places: Ints, chances: NDArray[np.float32], shares: Floats) -> Floats:
    total = np.bincount(places, chances, len(words.codes))
    beside = np.repeat(others.lengths + 1, words.lengths)
    return np.log(_UNEXPLAINED + (1 - _UNEXPLAINED) * total / beside / shares[words.codes])


def _improve(chances: NDArray[np.float32], src: Words, tgt: Words) -> NDArray[np.float32]:
    """A round of expectation and maximisation in both directions."""
    counts, totals = np.zeros(chances.shape), np.zeros((NUM_WORDS, 2))
    owners = np.zeros(chances.shape, np.int32)  # the words that the chances of a slot are given
    for begin in range(0, len(src.lengths), _PAIRS_AT_ONCE):
        some = np.arange(begin, min(begin + _PAIRS_AT_ONCE, len(src.lengths)))
        sides = src.at(some), tgt.at(some)
        places = sides[0].beside(sides[1])
        slots = _slots(*sides, *places) % len(chances)
        for way in (0, 1):
            given = sides[1 - way].codes[places[1 - way]]
            weights = chances[slots, way].astype(np.float64)
            total = np.bincount(places[way], weights, len(sides[way].codes))
            weights /= np.maximum(total, 1e-9)[places[way]]
            np.add.at(counts[:, way], slots, weights)
            np.add.at(totals[:, way], given, weights)
            owners[slots, way] = given
            # By the total of another word in its slot, a pair of rare words would seem too likely
            owners[slots[given == _RARE], way] = _RARE
    for way in (0, 1):
        counts[:, way] = np.clip((counts[:, way] - _DISCOUNT) / (totals[owners[:, way], way] + 1), 0, 1)
    return counts.astype(np.float32)
