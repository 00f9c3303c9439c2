"""Count the lines of parallel text by length, ratio and script, with a few numbers for any amount of text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nmt.alignment.numbered_words import Ints
from nmt.preparation.codes import SCRIPTS, Codes

LONGEST = 1_000  # words; longer lines count as this long
_PIECES = {"words": 2, "characters": 1}  # at most, in most lines of a text
RATIOS = 2 ** np.linspace(-4, 4, 81)  # of the characters of both sides


@dataclass
class Counts:
    """units: of lengths, words or (in a language without spaces) characters."""

    units: tuple[str, str]
    lengths: Ints = field(default_factory=lambda: np.zeros((2, LONGEST + 1), np.int64))  # lines by length
    ratios: Ints = field(default_factory=lambda: np.zeros(len(RATIOS), np.int64))  # pairs by ratio
    totals: Ints = field(default_factory=lambda: np.zeros(2, np.int64))  # of units
    characters: Ints = field(default_factory=lambda: np.zeros(2, np.int64))
    scripts: Ints = field(default_factory=lambda: np.zeros((2, len(SCRIPTS)), np.int64))

    def add(self, src: Sequence[str], tgt: Sequence[str]) -> Ints:
        """Count these lines. Returns the length of the longer side of each pair."""
        codes, longest = (Codes(src), Codes(tgt)), np.zeros(len(src), np.int64)
        for side, lines in enumerate((src, tgt)):
            parts = (line.split() if self.units[side] == "words" else line for line in lines)
            lengths = np.fromiter(map(len, parts), np.int64, len(lines))
            self.lengths[side] += np.bincount(np.minimum(lengths, LONGEST), minlength=LONGEST + 1)
            self.totals[side] += lengths.sum()
            self.characters[side] += codes[side].lengths.sum()
            self.scripts[side] += codes[side].scripts.sum(axis=0)
            longest = np.maximum(longest, lengths)
        ratios = (codes[1].lengths + 1) / (codes[0].lengths + 1)
        places = np.searchsorted(RATIOS, ratios).clip(max=len(RATIOS) - 1)
        self.ratios += np.bincount(places, minlength=len(RATIOS))
        return longest

    def num_pieces(self, share: float) -> int:
        """The pieces that a share of the lines of each side do not exceed, by `_PIECES`, which is rather too many."""
        return max(
            _PIECES[unit] * int(np.searchsorted(np.cumsum(lengths), share * lengths.sum()))
            for unit, lengths in zip(self.units, self.lengths, strict=True)
        )

    def ratio_of_pieces(self, share: float) -> float:
        """The ratio of the longer side's pieces to the shorter side's that a share of the pairs do not exceed."""
        pieces = [_PIECES[unit] * total for unit, total in zip(self.units, self.totals, strict=True)]
        each_side = np.maximum(self.characters, 1) / np.maximum(pieces, 1)  # characters a piece
        ratios = np.maximum(RATIOS * each_side[0] / each_side[1], each_side[1] / (RATIOS * each_side[0]))
        order = np.argsort(ratios)
        ends = np.cumsum(self.ratios[order])
        return float(ratios[order][np.searchsorted(ends, share * ends[-1])])
