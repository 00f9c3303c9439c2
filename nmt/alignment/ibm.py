"""Word alignment by counting: IBM Model 2 with a prior along the diagonal, as fast_align has it (Dyer et al. 2013).

Unit t_j of a target of n units comes from the empty word, with probability P_EMPTY, or from source unit s_i of m:

    p(t_j | s) = P_EMPTY q0(t_j) + (1 - P_EMPTY) sum_i d(i | j) q(t_j | s_i)      d(i | j) ~ exp(-TENSION |i/m - j/n|)

q and q0 are learned by expectation-maximisation with a Dirichlet prior (variational Bayes), in both directions. Units i
and j are linked if p(i | j) of the one direction times p(j | i) of the other reaches LEAST (Liang et al. 2006).
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.alignment.links import Links
from nmt.alignment.numbered_words import Ints, Words

P_EMPTY, TENSION, DIRICHLET = 0.08, 4.0, 0.01  # as in fast_align, which then adapts the tension
NUM_ITERATIONS = 5
LEAST = 0.1
LETTERS = 6
MOST_OF_A_PAIR = 2**20  # cells

_AROUND = re.compile(r"^\W+|\W+$")

Shares = NDArray[np.float64]


class LinkedUnits(NamedTuple):
    """Links of a text: sentence pair, source unit and target unit of each [L], sorted by pair, target and source."""

    pair: Ints
    src: Ints
    tgt: Ints


class _Lexicon:
    """q(made | given) of K pairs of types, and q0(made). `given` [K]: the given type of each pair."""

    def __init__(self, given: Ints, num_made: int) -> None:
        self.given, self.num_made = given, num_made
        self.table = np.append(
            np.full(len(given), 1 / num_made), 0
        )  # the last is of all other pairs of types
        self.empty = np.full(num_made, 1 / num_made)
        self._forget()

    def posterior(
        self, entry: NDArray[np.integer[Any]], near: Shares, made: Ints, made_ids: Ints
    ) -> tuple[Shares, Shares]:
        """The probability of each cell [C] given its made unit, and that a made unit [J] comes of the empty word.

        entry, made [C]: the pair of types of a cell, -1 for others, and its made unit.
        """
        weights = near * self.table[entry]
        of_empty = P_EMPTY * self.empty[made_ids]
        share = (1 - P_EMPTY) / np.bincount(made, near)
        total = share * np.bincount(made, weights) + of_empty
        return weights * (share / total)[made], of_empty / total

    def count(self, entry: NDArray[np.integer[Any]], near: Shares, made: Ints, made_ids: Ints) -> None:
        """Add the expected counts of these cells."""
        posterior, of_empty = self.posterior(entry, near, made, made_ids)
        self._counts += np.bincount(entry, posterior, minlength=len(self._counts))
        self._empty_counts += np.bincount(made_ids, of_empty, minlength=self.num_made)

    def update(self) -> None:
        """Take q and q0 from the counts."""
        totals = np.bincount(self.given, self._counts)
        self.table[:-1] = _expected_shares(self._counts, totals[self.given], self.num_made)
        self.empty = _expected_shares(self._empty_counts, self._empty_counts.sum(), self.num_made)
        self._forget()

    def _forget(self) -> None:
        self._counts, self._empty_counts = np.zeros(len(self.given)), np.zeros(self.num_made)


def align_text(src: Words, tgt: Words, *, most_cells: int = 2**24, block_cells: int = 2**20) -> LinkedUnits:
    """Links between the units of N > 0 sentence pairs with at least one unit on either side.

    A pair has as many cells as pairs of units. Of a text with more than `most_cells`, evenly spaced pairs with as many
    are learned from. `block_cells`, about as many as are in memory together, changes rounding alone.
    """
    sizes = src.lengths * tgt.lengths
    every = np.arange(len(sizes))
    number = min(len(sizes), max(1, len(sizes) * most_cells // int(sizes.sum())))
    some = np.linspace(0, len(sizes) - 1, number).round().astype(np.int64)
    num_src, num_tgt = int(src.codes.max()) + 1, int(tgt.codes.max()) + 1
    blocks = [(src.at(rows), tgt.at(rows)) for rows in _blocks(sizes, some, block_cells)]
    known, ahead, back = _learn(blocks, num_src, num_tgt)
    found = []
    for rows in _blocks(sizes, every, block_cells):
        of_src, of_tgt = src.at(rows), tgt.at(rows)
        in_tgt, in_src = of_tgt.beside(of_src)
        types = _types(of_src, of_tgt, in_src, in_tgt, num_tgt)
        entry = np.searchsorted(known, types)
        entry[known.take(entry, mode="clip") != types] = -1
        near = _nearness(of_src, of_tgt, in_src, in_tgt)
        there, _ = ahead.posterior(entry, near, in_tgt, of_tgt.codes)
        again, _ = back.posterior(entry, near, in_src, of_src.codes)
        linked = there * again >= LEAST
        in_src, in_tgt = in_src[linked], in_tgt[linked]
        found.append((rows.repeat(of_tgt.lengths)[in_tgt], of_src.places[in_src], of_tgt.places[in_tgt]))
    return LinkedUnits(*map(np.concatenate, zip(*found, strict=True)))


def align_words(sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> Iterator[Links]:
    """Links between the words of sentence pairs: none for a pair with an empty side or more than MOST_OF_A_PAIR cells.

    Words count as one if their first LETTERS letters are equal, whatever their case and the punctuation around them.
    """
    src, tgt = _number_words(sources), _number_words(targets)
    sizes = src.lengths * tgt.lengths
    rows = np.flatnonzero((sizes > 0) & (sizes <= MOST_OF_A_PAIR))
    nothing = np.zeros(0, np.int64)
    pair, i, j = align_text(src.at(rows), tgt.at(rows)) if len(rows) else (nothing, nothing, nothing)
    links = zip(i.tolist(), j.tolist(), strict=True)
    for count in np.bincount(rows[pair], minlength=len(sizes)).tolist():
        yield {*islice(links, count)}


def _number_words(sentences: Iterable[Sequence[str]]) -> Words:
    numbers: dict[str, int] = {}
    ids, lengths = array("q"), array("q")
    for words in sentences:
        lengths.append(len(words))
        for word in words:
            ids.append(numbers.setdefault((_AROUND.sub("", word) or word).lower()[:LETTERS], len(numbers)))
    return Words(np.array(ids, np.int64), np.array(lengths, np.int64))


def _learn(
    blocks: Sequence[tuple[Words, Words]], num_src: int, num_tgt: int
) -> tuple[Ints, _Lexicon, _Lexicon]:
    """The pairs of types that occur together in these blocks, sorted, and the lexicon of either direction."""
    types = []
    for src, tgt in blocks:
        in_tgt, in_src = tgt.beside(src)
        types.append(_types(src, tgt, in_src, in_tgt, num_tgt))
    known = _distinct(np.concatenate([*map(_distinct, types)]))
    entries = [np.searchsorted(known, each).astype(np.int32) for each in types]
    del types
    ahead, back = _Lexicon(known // num_tgt, num_tgt), _Lexicon(known % num_tgt, num_src)
    for _ in tqdm(range(NUM_ITERATIONS), desc="align", unit="iterations", disable=None):
        for (src, tgt), entry in zip(blocks, entries, strict=True):
            in_tgt, in_src = tgt.beside(src)
            near = _nearness(src, tgt, in_src, in_tgt)
            ahead.count(entry, near, in_tgt, tgt.codes)
            back.count(entry, near, in_src, src.codes)
        ahead.update()
        back.update()
    return known, ahead, back


def _types(src: Words, tgt: Words, in_src: Ints, in_tgt: Ints, num_tgt: int) -> Ints:
    """The types of a source and a target unit as one number."""
    found: Ints = src.codes[in_src] * num_tgt + tgt.codes[in_tgt]
    return found


def _nearness(src: Words, tgt: Words, in_src: Ints, in_tgt: Ints) -> Shares:
    """exp(-TENSION |i/m - j/n|), the middle of each unit taken as its place."""
    shares, others = ((each.places + 0.5) / each.lengths.repeat(each.lengths) for each in (src, tgt))
    return np.exp(-TENSION * np.abs(shares[in_src] - others[in_tgt]))


def _blocks(sizes: Ints, rows: Ints, block_cells: int) -> list[Ints]:
    """Split the rows into blocks of about `block_cells` cells."""
    part = np.cumsum(sizes[rows]) // block_cells
    return np.split(rows, np.flatnonzero(np.diff(part)) + 1)


def _distinct(numbers: Ints) -> Ints:
    """The distinct numbers, sorted; `np.unique` hashes them, which takes several times as long."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])]


def _expected_shares(counts: Shares, total: Any, num_types: int) -> Shares:
    """exp E[log q] under the Dirichlet distribution that the counts of an outcome among `num_types` give."""
    from scipy.special import digamma  # late: only counting needs it

    found: Shares = np.exp(digamma(counts + DIRICHLET) - digamma(total + DIRICHLET * num_types))
    return found
