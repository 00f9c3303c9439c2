"""Warnings of characters that a vocabulary does not know."""

import logging
from collections.abc import Iterable, Sequence

from nmt.data.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_NUM_SHOWN = 10  # characters


class UnknownCharacters:
    """Counts lines with characters that the vocabulary does not know, and warns of them at the end of a `with` block.

    Each kind of lines gives a single warning, for any number of blocks.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._counts: dict[str, tuple[int, int, str]] = {}  # kind -> unknown lines, all lines, characters

    def count(self, lines: Sequence[str], kind: str, *, is_target: bool = False) -> None:
        """Count the lines of a block. `kind` is a plural noun for them."""
        found = self.tokenizer.unknown_characters(lines, is_target=is_target)
        number, total, characters = self._counts.get(kind, (0, 0, ""))
        characters = "".join(dict.fromkeys(characters + "".join(found)))[: _NUM_SHOWN + 1]
        self._counts[kind] = number + len(found), total + len(lines), characters

    def __enter__(self) -> "UnknownCharacters":
        return self

    def __exit__(self, *_: object) -> None:
        for kind, (number, total, characters) in self._counts.items():
            if number:
                log.warning(unknown_message(number, total, kind, characters))


def unknown_message(number: int, total: int, kind: str, characters: Iterable[str]) -> str:
    """`3 of 10 lines hold characters that the vocabulary does not know (…)`, with the first of these characters."""
    distinct = list(dict.fromkeys(characters))
    shown = ", ".join(distinct[:_NUM_SHOWN]) + (", …" if len(distinct) > _NUM_SHOWN else "")
    return (
        f"{number:,} of {total:,} {kind} hold characters that the vocabulary does not know ({shown}): "
        "the model has one unknown piece for all of them"
    )
