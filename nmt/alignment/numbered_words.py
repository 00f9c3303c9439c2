"""Words of many lines as one array of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Words:
    """Words (or other units) of lines as numbers, line after line, and how many each line has."""

    codes: Ints
    lengths: Ints

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def places(self) -> Ints:
        """The place of each word in its line, from 0."""
        return _runs(np.zeros_like(self.lengths), self.lengths)

    @classmethod
    def join(cls, parts: Sequence["Words"]) -> "Words":
        codes, lengths = ([getattr(each, name) for each in parts] for name in ("codes", "lengths"))
        return cls(np.concatenate(codes), np.concatenate(lengths))

    def only(self, keep: Bools) -> "Words":
        """The words to keep, of all lines."""
        return Words(self.codes[keep], line_sums(keep, self.lengths))

    def at(self, lines: Ints) -> "Words":
        """The chosen lines, in this order."""
        lengths = self.lengths[lines]
        return Words(self.codes[_runs(self.starts[lines], lengths)], lengths)

    def beside(self, other: "Words") -> tuple[Ints, Ints]:
        """Each word with every word of the other's line: their places among all words."""
        lengths = np.repeat(other.lengths, self.lengths)
        first = np.repeat(np.arange(len(self.codes)), lengths)
        return first, _runs(np.repeat(other.starts, self.lengths), lengths)


def line_sums(values: NDArray[Any], lengths: Ints) -> Any:
    """The sum of the values of each line."""
    sums = np.cumsum(values)
    total = np.concatenate([np.zeros(1, sums.dtype), sums])
    ends = np.cumsum(lengths)
    return total[ends] - total[ends - lengths]


def _runs(starts: Ints, lengths: Ints) -> Ints:
    """`starts[0], starts[0] + 1, …`, `lengths[0]` of them, then those from `starts[1]` on, and so on."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
