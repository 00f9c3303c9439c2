"""Units of attention weights and links: words, pieces or characters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from nmt.alignment.weights import fill_gaps, words_from_pieces
from nmt.languages import SPACELESS_SCRIPTS

# Letters, and punctuation of these scripts
_SPACELESS = "".join(rf"\p{{scx={script}}}" for script in SPACELESS_SCRIPTS)
_LETTER = rf"[[{_SPACELESS}]&&\p{{L}}]"
_ANY = regex.compile(r"[\u0e00-\u1cff\u2e80-\U0003ffff]")  # includes them all, and is quick to search
_GAP = regex.compile(rf"{_LETTER}\p{{M}}*+\s+(?={_LETTER})", regex.V1)
_LETTERS = regex.compile(_LETTER, regex.V1)
_OTHER_WORD = regex.compile(rf"[\w--[{_SPACELESS}]]+", regex.V1)
_LETTERS_PER_SPACE = 6  # words of these scripts, if separated, are shorter

_SPACE = r"\s\x1c-\x1f\u200b"  # as in str.isspace; a zero-width space separates words of Khmer and Thai
_WORD = regex.compile(r"[^\s\x1c-\x1f]+")
_PATTERNS = {
    "words": _WORD,
    "characters": regex.compile(rf"(?=[^{_SPACE}])\X"),
    "mixed": regex.compile(
        rf"(?=[{_SPACELESS}\uff00-\uffef])\X|[^{_SPACE}{_SPACELESS}\uff00-\uffef]+", regex.V1
    ),
}


class Side(NamedTuple):
    """The labels of one side of a sentence pair, and its pieces, grouped by the labels that they spell.

    groups: the group number of each piece, -1 if it spells nothing (end of sentence).
    sizes: the number of labels of each group, in order.

    A group is a label, or the characters that one piece spells together.
    """

    labels: list[str]
    groups: list[int]
    sizes: list[int]

    def label_groups(self) -> list[int]:
        """The group of each label."""
        return [group for group, size in enumerate(self.sizes) for _ in range(size)]

    def pieces_of(self, labels: Sequence[int]) -> list[int]:
        """Places of the pieces that spell these labels."""
        group_of = self.label_groups()
        groups = {group_of[label] for label in labels}
        return [place for place, group in enumerate(self.groups) if group in groups]


def choose_units(text: str, units: str) -> str:
    """Resolve auto: words, or mixed for a text in a script that is written without spaces. Other units stay.

    mixed: the characters of such scripts, and the words of others. A text is mixed if it has more letters of such
    scripts than words of others, and more than 6 for each space between two of them. So words that are separated stay
    words.
    """
    if units != "auto":
        return units
    if not _ANY.search(text):
        return "words"
    least = max(len(_OTHER_WORD.findall(text)), _LETTERS_PER_SPACE * len(_GAP.findall(text)))
    return "mixed" if len(_LETTERS.findall(text)) > least else "words"


def split_units(text: str, units: str = "auto") -> list[str]:
    """The words or the characters of a text, by `choose_units`; a character includes its combining marks.

    Without a vocabulary there are no pieces: pieces become words.
    """
    return _PATTERNS.get(choose_units(text, units), _WORD).findall(text)


def make_side(text: str, pieces: Sequence[str], offsets: Sequence[tuple[int, int]], units: str) -> Side:
    """Build the side of a text from its pieces and their offsets in code points.

    If the units are words, a piece belongs to the last word that it touches. A piece that touches no label (a lone
    `▁`, a byte, a part of a normalised character) belongs to the group of the next piece, or else of the piece
    before.
    """
    units = choose_units(text, units)
    if units == "pieces":
        return Side(list(pieces), list(range(len(pieces))), [1] * len(pieces))
    found = list(_PATTERNS[units].finditer(text))
    label_at = [-1] * len(text)
    for number, match in enumerate(found):
        label_at[match.start() : match.end()] = [number] * len(match[0])
    touched = [
        [] if piece == "▁" else [label for label in label_at[begin:end] if label >= 0]
        for piece, (begin, end) in zip(pieces, offsets, strict=True)
    ]
    starts = np.ones(len(found), dtype=int)
    if units != "words":
        for labels in filter(None, touched):
            starts[labels[0] + 1 : labels[-1] + 1] = 0
    numbers = np.cumsum(starts) - 1
    groups = fill_gaps([int(numbers[labels[-1]]) if labels else -1 for labels in touched])
    return Side([match[0] for match in found], groups, np.bincount(numbers).tolist())


def weights_between(weights: Any, target: Side, source: Side) -> NDArray[np.floating]:
    """Turn weights between pieces [T, S] into weights between labels, by `words_from_pieces`.

    Source characters of a group share its weight equally; target characters of a group all have its row.
    """
    groups = words_from_pieces(
        weights,
        target.groups,
        source.groups,
        num_tgt_words=len(target.sizes),
        num_src_words=len(source.sizes),
    )
    shared = groups / np.asarray(source.sizes, dtype=float)
    return shared.repeat(source.sizes, axis=1).repeat(target.sizes, axis=0)
