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

P_EMPTY, TENSION, DIRICHLET = 0.08, 4.0, 0.01  # as in fast_align, which then adapts the tension
NUM_ITERATIONS = 5
LEAST = 0.1
LETTERS = 6
MOST_OF_A_PAIR = 2**20  # cells

_AROUND = re.compile(r"^\W+|\W+$")

Numbers = NDArray[np.integer[Any]]
Shares = NDArray[np.float64]


class UnitText(NamedTuple):
    """Sentences as numbers of their units: all ids one after another, and the number of units of each sentence [N]."""

    ids: Numbers
    lengths: Numbers

    @property
    def starts(self) -> Numbers:
        return np.cumsum(self.lengths) - self.lengths

    @property
    def places(self) -> Numbers:
        """The place of each unit in its sentence, from 0."""
        return _places(np.zeros_like(self.lengths), self.lengths)

    @property
    def shares(self) -> Shares:
        """The middle of each unit as a share of its sentence."""
        return (self.places + 0.5) / self.lengths.repeat(self.lengths)

    def select(self, rows: Numbers) -> "UnitText":
        return UnitText(self.ids[_places(self.starts[rows], self.lengths[rows])], self.lengths[rows])


class LinkedUnits(NamedTuple):
    """Links of a text: sentence pair, source unit and target unit of each [L], sorted by pair, target and source."""

    pair: Numbers
    src: Numbers
    tgt: Numbers


class _Cells(NamedTuple):
    """Each source unit with each target unit of its pair, all [C]: the number of either among all units, the number of
    the pair of their types, and exp(-TENSION distance from the diagonal)."""

    src: Numbers
    tgt: Numbers
    types: Numbers
    near: Shares


class _Lexicon:
    """q(made | given) of K pairs of types, and q0(made). `given` [K]: the given type of each pair."""

    def __init__(self, given: Numbers, num_made: int) -> None:
        self.given, self.num_made = given, num_made
        self.table = np.full(len(given) + 1, 1 / num_made)  # the last is of all other pairs of types
        self.empty = np.full(num_made, 1 / num_made)
        self._forget()

    def posterior(
        self, entry: Numbers, near: Shares, made: Numbers, made_ids: Numbers
    ) -> tuple[Shares, Shares]:
        """The probability of each cell [C] given its made unit, and that a made unit [J] comes of the empty word.

        entry, made [C]: the pair of types of a cell, -1 for others, and its made unit.
        """
        weights = near * self.table[entry]
        of_empty = P_EMPTY * self.empty[made_ids]
        share = (1 - P_EMPTY) / np.bincount(made, near)
        total = share * np.bincount(made, weights) + of_empty
        return weights * (share / total)[made], of_empty / total

    def count(self, entry: Numbers, near: Shares, made: Numbers, made_ids: Numbers) -> None:
        """Add what is expected of these cells."""
        posterior, of_empty = self.posterior(entry, near, made, made_ids)
        self._counts += np.bincount(entry, posterior, minlength=len(self._counts))
        self._empty_counts += np.bincount(made_ids, of_empty, minlength=self.num_made)

    def update(self) -> None:
        """Take q and q0 from the counts."""
        totals = np.bincount(self.given, self._counts)
        self.table[:-1] = _expected(self._counts, totals[self.given], self.num_made)
        self.table[-1] = 0
        self.empty = _expected(self._empty_counts, self._empty_counts.sum(), self.num_made)
        self._forget()

    def _forget(self) -> None:
        self._counts, self._empty_counts = np.zeros(len(self.given)), np.zeros(self.num_made)


def align_text(
    src: UnitText, tgt: UnitText, *, most_cells: int = 2**24, block_cells: int = 2**20
) -> LinkedUnits:
    """Links between the units of N > 0 sentence pairs with at least one unit on either side.

    A pair has as many cells as pairs of units. Of a text with more than `most_cells`, evenly spaced pairs with as many
    are learned from. `block_cells`, about as many as are in memory together, changes rounding alone.
    """
    sizes = src.lengths * tgt.lengths
    every = np.arange(len(sizes))
    number = min(len(sizes), max(1, len(sizes) * most_cells // int(sizes.sum())))
    some = np.linspace(0, len(sizes) - 1, number).round().astype(np.int64)
    num_src, num_tgt = int(src.ids.max()) + 1, int(tgt.ids.max()) + 1
    blocks = [(src.select(rows), tgt.select(rows)) for rows in _blocks(sizes, some, block_cells)]
    known, ahead, back = _learn(blocks, num_src, num_tgt)
    found = []
    for rows in _blocks(sizes, every, block_cells):
        of_src, of_tgt = src.select(rows), tgt.select(rows)
        cells = _cells(of_src, of_tgt, num_tgt)
        entry = np.searchsorted(known, cells.types)
        entry[known.take(entry, mode="clip") != cells.types] = -1
        there, _ = ahead.posterior(entry, cells.near, cells.tgt, of_tgt.ids)
        again, _ = back.posterior(entry, cells.near, cells.src, of_src.ids)
        linked = there * again >= LEAST
        in_src, in_tgt = cells.src[linked], cells.tgt[linked]
        found.append((rows.repeat(of_tgt.lengths)[in_tgt], of_src.places[in_src], of_tgt.places[in_tgt]))
    return LinkedUnits(*map(np.concatenate, zip(*found, strict=True)))


def align_words(sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> Iterator[Links]:
    """Links between the words of sentence pairs: none for a pair with an empty side or more than MOST_OF_A_PAIR cells.

    Words count as one if their first LETTERS letters are equal, whatever their case and the punctuation around them.
    """
    src, tgt = _numbered(sources), _numbered(targets)
    sizes = src.lengths * tgt.lengths
    rows = np.flatnonzero((sizes > 0) & (sizes <= MOST_OF_A_PAIR))
    nothing = np.zeros(0, np.int64)
    pair, i, j = align_text(src.select(rows), tgt.select(rows)) if len(rows) else (nothing, nothing, nothing)
    links = zip(i.tolist(), j.tolist(), strict=True)
    for count in np.bincount(rows[pair], minlength=len(sizes)).tolist():
        yield {*islice(links, count)}


def _numbered(sentences: Iterable[Sequence[str]]) -> UnitText:
    numbers: dict[str, int] = {}
    ids, lengths = array("q"), array("q")
    for words in sentences:
        lengths.append(len(words))
        for word in words:
            ids.append(numbers.setdefault((_AROUND.sub("", word) or word).lower()[:LETTERS], len(numbers)))
    return UnitText(np.array(ids, np.int64), np.array(lengths, np.int64))


def _learn(
    blocks: Sequence[tuple[UnitText, UnitText]], num_src: int, num_tgt: int
) -> tuple[Numbers, _Lexicon, _Lexicon]:
    """The pairs of types that occur together in these blocks, sorted, and the lexicon of either direction."""
    known = _distinct(np.concatenate([_distinct(_cells(*block, num_tgt).types) for block in blocks]))
    entries = [np.searchsorted(known, _cells(*block, num_tgt).types).astype(np.int32) for block in blocks]
    ahead, back = _Lexicon(known // num_tgt, num_tgt), _Lexicon(known % num_tgt, num_src)
    for _ in tqdm(range(NUM_ITERATIONS), desc="align", unit="iterations", disable=None):
        for (src, tgt), entry in zip(blocks, entries, strict=True):
            cells = _cells(src, tgt, num_tgt)
            ahead.count(entry, cells.near, cells.tgt, tgt.ids)
            back.count(entry, cells.near, cells.src, src.ids)
        ahead.update()
        back.update()
    return known, ahead, back


def _cells(src: UnitText, tgt: UnitText, num_tgt: int) -> _Cells:
    length_of_src = src.lengths.repeat(tgt.lengths)  # of the source of each target unit
    in_src = _places(src.starts.repeat(tgt.lengths), length_of_src)
    in_tgt = np.arange(len(tgt.ids)).repeat(length_of_src)
    types = src.ids[in_src] * num_tgt + tgt.ids[in_tgt]
    return _Cells(in_src, in_tgt, types, np.exp(-TENSION * np.abs(src.shares[in_src] - tgt.shares[in_tgt])))


def _places(starts: Numbers, lengths: Numbers) -> Numbers:
    """`starts[0], starts[0] + 1, …`, `lengths[0]` of them, then those from `starts[1]` on, and so on."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + (starts - before).repeat(lengths)


def _blocks(sizes: Numbers, rows: Numbers, block_cells: int) -> list[Numbers]:
    """Split the rows into blocks of about `block_cells` cells."""
    part = np.cumsum(sizes[rows]) // block_cells
    return np.split(rows, np.flatnonzero(np.diff(part)) + 1)


def _distinct(numbers: Numbers) -> Numbers:
    """The distinct numbers, sorted; `np.unique` hashes them, which takes several times as long."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])]


def _expected(counts: Shares, total: Any, num_types: int) -> Shares:
    """exp E[log q] under the Dirichlet distribution that the counts of an outcome among `num_types` give."""
    return np.exp(_digamma(counts + DIRICHLET) - _digamma(total + DIRICHLET * num_types))


def _digamma(x: Shares) -> Shares:
    import torch  # here, as the rest of this package does without it

    found: Shares = torch.digamma(torch.as_tensor(x)).numpy()
    return found
