"""Count the lines of parallel text by length, ratio and script, with a few numbers for any amount of text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nmt.alignment.numbered_words import Ints
from nmt.preparation.codes import SCRIPTS, Codes

LONGEST = 1_000  # words; longer lines count as this long
RATIOS = 2 ** np.linspace(-4, 4, 81)  # of the characters of both sides


@dataclass
class Counts:
    """units: of lengths, words or (in a language without spaces) characters."""

    units: tuple[str, str]
    lengths: Ints = field(default_factory=lambda: np.zeros((2, LONGEST + 1), np.int64))  # lines by length
    ratios: Ints = field(default_factory=lambda: np.zeros(len(RATIOS), np.int64))  # pairs by ratio
    characters: Ints = field(default_factory=lambda: np.zeros(2, np.int64))
    scripts: Ints = field(default_factory=lambda: np.zeros((2, len(SCRIPTS)), np.int64))

    def add(self, src: Sequence[str], tgt: Sequence[str]) -> Ints:
        """Count these lines. Returns the length of the longer side of each pair."""
        codes, longest = (Codes(src), Codes(tgt)), np.zeros(len(src), np.int64)
        for side, lines in enumerate((src, tgt)):
            parts = (line.split() if self.units[side] == "words" else line for line in lines)
            lengths = np.fromiter(map(len, parts), np.int64, len(lines))
            self.lengths[side] += np.bincount(np.minimum(lengths, LONGEST), minlength=LONGEST + 1)
            self.characters[side] += codes[side].lengths.sum()
            self.scripts[side] += codes[side].scripts.sum(axis=0)
            longest = np.maximum(longest, lengths)
        ratios = (codes[1].lengths + 1) / (codes[0].lengths + 1)
        places = np.searchsorted(RATIOS, ratios).clip(max=len(RATIOS) - 1)
        self.ratios += np.bincount(places, minlength=len(RATIOS))
        return longest
