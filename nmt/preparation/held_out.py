"""Keys by which a training source is recognised as nearly that of a held-out pair."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.numbered_words import Bools, line_sums
from nmt.preparation.codes import Codes

_LEAST_WORDS = 6  # of lines that may differ by a word
Keys = NDArray[np.uint64]


def all_keys(lines: Sequence[str]) -> Keys:
    """The keys of held-out sources."""
    return np.concatenate(_keys(lines)[:2])


def are_near(lines: Sequence[str], keys: Keys) -> Bools:
    """True for the lines that are held-out lines, but for one word at most. `keys` are sorted."""
    whole, parts, owners = _keys(lines)
    found = _are_in(whole, keys) & (whole != 0)
    found[owners[_are_in(parts, keys)]] = True
    return found


def _are_in(values: Keys, keys: Keys) -> Bools:
    places = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return keys[places] == values if len(keys) else np.zeros(len(values), bool)


def _keys(lines: Sequence[str]) -> tuple[Keys, Keys, NDArray[np.int64]]:
    """The key of each line, those of each line without one of its words, and the numbers of the latter's lines.

    The words count in any order; case, punctuation and the digits of numbers do not. Lines without letters have none.
    """
    codes = Codes([re.sub(r"\d+", "0", line) if any(map(str.isalpha, line)) else "" for line in lines])
    words = codes.words
    mixed = (words.codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    whole = line_sums(mixed, words.lengths)
    owners = np.repeat(np.arange(len(lines)), words.lengths)
    is_long = codes.num_words[owners] >= _LEAST_WORDS
    return whole, (whole[owners] - mixed)[is_long], owners[is_long]
