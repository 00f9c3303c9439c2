"""Lines as one array of code points: their trigrams, words and scripts by array arithmetic, for any script."""

import functools
import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import regex
from numpy.typing import NDArray

from nmt.alignment.numbered_words import Ints, Words
from nmt.languages import SPACELESS_SCRIPTS

Floats = NDArray[np.float64]

NUM_TRIGRAMS = 2**16  # numbers that trigrams are hashed to
NUM_WORDS = 2**18
_NUM_POINTS = 0x30000  # above are private characters and marks without a glyph
_WORDS = r"[\p{L}\p{N}\p{M}]+"
_SPACELESS = "[" + "".join(rf"\p{{{script}}}" for script in SPACELESS_SCRIPTS) + "]+"
_WORD = regex.compile(rf"{_SPACELESS[:-1]}|[{_WORDS[:-1]}--{_SPACELESS[:-1]}]+", regex.V1)
_ENDS = tuple(".!?…。！？।۔။።:;»”\"')]")
SCRIPTS = (
    *(
        "Other",
        "Latin",
        "Greek",
        "Cyrillic",
        "Armenian",
        "Hebrew",
        "Arabic",
        "Devanagari",
        "Bengali",
        "Gurmukhi",
    ),
    *("Gujarati", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar"),
    *("Georgian", "Hangul", "Ethiopic", "Khmer", "Mongolian", "Han or Kana"),
)
_HAN_OR_KANA = r"[\p{Han}\p{Hiragana}\p{Katakana}ー]+"


def own_words(line: str, other: str) -> str:
    """The words of a line that do not stand in the other line too, as names of settings and files do."""
    shared = set(_WORD.findall(other.lower()))
    return " ".join(word for word in _WORD.findall(line.lower()) if word not in shared)


class Codes:
    """The code points of lower-cased lines, each line with a line break before it and after it."""

    def __init__(self, lines: Sequence[str]) -> None:
        padded = [f"\n{unicodedata.normalize('NFC', line.lower())}\n" for line in lines]
        self.ends_sentence = np.fromiter((line.rstrip().endswith(_ENDS) for line in lines), bool, len(lines))
        self.sizes: Ints = np.fromiter(map(len, padded), np.int64, len(padded))
        points = np.frombuffer("".join(padded).encode("utf-32-le", "replace"), np.uint32)
        self.points = np.minimum(points, _NUM_POINTS - 1)

    @property
    def lengths(self) -> Ints:
        """Characters of each line."""
        return self.sizes - 2

    @cached_property
    def _lines(self) -> Ints:
        """The number of each code point's line."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def _kinds(self) -> NDArray[np.uint8]:
        """1 for code points of words, 2 for characters of scripts without spaces, 0 for all others."""
        return _table(_WORDS, _SPACELESS)[self.points]

    @cached_property
    def trigrams(self) -> Words:
        """Every three characters in a row."""
        points = self.points.astype(np.uint64)
        mixed = points[:-2] * np.uint64(0x9E3779B1)
        mixed += points[1:-1] * np.uint64(0x85EBCA77B5)
        mixed += points[2:] * np.uint64(0xC2B2AE3D27D4EB)
        inside = np.ones(len(points), bool)
        ends = np.cumsum(self.sizes)
        inside[ends - 1] = inside[ends - 2] = False
        return Words(_hash(mixed, NUM_TRIGRAMS)[inside[:-2]], self.sizes - 2)

    @cached_property
    def words(self) -> Words:
        """Every run of letters, digits and marks, or every character of scripts without spaces."""
        kinds = self._kinds
        inside = kinds > 0
        is_start = (kinds == 2) | ((kinds == 1) & (np.concatenate([[0], kinds[:-1]]) != 1))
        lines = self._lines[is_start]
        lengths = np.bincount(lines, minlength=len(self.sizes))
        starts = np.flatnonzero(is_start[inside])
        if not len(starts):
            return Words(np.zeros(0, np.int64), lengths)
        places = np.arange(inside.sum()) - np.repeat(starts, np.diff(np.append(starts, inside.sum())))
        mixed = self.points[inside].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
        return Words(_hash(np.add.reduceat(mixed, starts), NUM_WORDS), lengths)

    @cached_property
    def num_words(self) -> Floats:
        """Words of each line. In a script without spaces, three characters count as one."""
        num_spaceless = np.bincount(self._lines[self._kinds == 2], minlength=len(self.sizes))
        return self.words.lengths - num_spaceless * 2 / 3

    @cached_property
    def scripts(self) -> Ints:
        """Letters of each line by script [lines, scripts]; the first is for all other characters."""
        patterns = (*(rf"\p{{{name}}}+" for name in SCRIPTS[1:-1]), _HAN_OR_KANA)
        found = self._lines * len(SCRIPTS) + _table(*patterns)[self.points]
        return np.bincount(found, minlength=len(self.sizes) * len(SCRIPTS)).reshape(-1, len(SCRIPTS))


def _hash(mixed: NDArray[np.uint64], size: int) -> Ints:
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(65 - size.bit_length())).astype(np.int64)


@functools.cache
def _table(*patterns: str) -> NDArray[np.uint8]:
    """The number of the last pattern, from 1, that matches a character, by code point."""
    characters = "".join(chr(point) if not 0xD800 <= point < 0xE000 else " " for point in range(_NUM_POINTS))
    table = np.zeros(_NUM_POINTS, np.uint8)
    for number, pattern in enumerate(patterns, 1):
        for match in regex.finditer(pattern, characters):
            table[match.start() : match.end()] = number
    return table
