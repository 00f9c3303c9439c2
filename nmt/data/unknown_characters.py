"""Warnings of characters and words that a vocabulary does not know."""

import logging
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from nmt.data.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_NUM_SHOWN = 10  # characters or words


class UnknownCharacters:
    """Counts lines with text that the vocabulary does not know, and warns of them at the end of a `with` block.

    Each kind of lines gives a single warning, for any number of blocks.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._counts: dict[str, tuple[int, int, list[str]]] = {}  # kind -> unknown lines, all lines, text

    def count(self, lines: Sequence[str], kind: str, *, is_target: bool = False) -> None:
        """Count the lines of a block. `kind` is a plural noun for them."""
        found = self.tokenizer.unknown_characters(lines, is_target=is_target)
        number, total, texts = self._counts.get(kind, (0, 0, []))
        texts = list(dict.fromkeys(chain(texts, *found)))[: _NUM_SHOWN + 1]
        self._counts[kind] = number + len(found), total + len(lines), texts

    def __enter__(self) -> "UnknownCharacters":
        return self

    def __exit__(self, *_: object) -> None:
        for kind, (number, total, texts) in self._counts.items():
            if number:
                log.warning(unknown_message(number, total, kind, texts))


def unknown_message(number: int, total: int, kind: str, texts: Iterable[str]) -> str:
    """`3 of 10 lines hold characters that the vocabulary does not know (…)`, with the first of these, or of words."""
    distinct = list(dict.fromkeys(texts))
    unit = "words" if max(map(len, distinct)) > 1 else "characters"
    named = (each if each.isprintable() else " ".join(f"U+{ord(c):04X}" for c in each) for each in distinct)
    shown = ", ".join(islice(named, _NUM_SHOWN)) + (", …" if len(distinct) > _NUM_SHOWN else "")
    return (
        f"{number:,} of {total:,} {kind} hold {unit} that the vocabulary does not know ({shown}): "
        "the model has one unknown piece for all of them"
    )
