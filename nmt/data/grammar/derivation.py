"""Derivations of a synchronous grammar: each rule builds both languages, their links and the core at once."""

from functools import cache
from typing import NamedTuple


class Phrase(NamedTuple):
    """A node of the derivation: its words on either side, and the links between them.

    core: the English words outside all brackets. kind: the type of a clause (past, open question, …), else empty.
    """

    en: tuple[str, ...]
    vi: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    core: tuple[str, ...]
    kind: str

    @property
    def size(self) -> int:
        """Words on the longer side."""
        return max(len(self.en), len(self.vi))


EMPTY = Phrase((), (), (), (), "")


def unlinked_word(english: str) -> Phrase:
    """A word without a counterpart, as `does` in a question with a question word."""
    return Phrase((english,), (), (), (english,), "")


@cache
def _symbols(side: str) -> tuple[tuple[str, str | None, bool], ...]:
    """Tokens of a side with their links, and True if the core has them; a slot has the link None.

    `A not/1 [B]` -> (A, None, True), (not, 1, True), (B, None, False)
    """
    found: list[tuple[str, str | None, bool]] = []
    depth = 0
    for token in side.split():
        depth += token.startswith("[")
        text, _, number = token.strip("[]").rpartition("/")
        slot = not text and len(number) == 1 and number.isupper() and number != "I"
        found.append((text or number, None if slot else number if text else "", depth == 0))
        depth -= token.endswith("]")
    return tuple(found)


def rule(english: str, vietnamese: str, **parts: Phrase) -> Phrase:
    """X → ⟨english, vietnamese⟩: a capital letter is a constituent, other tokens are words.

    All words with the same number after a slash are linked. Both sides name the same constituents. Words in brackets on
    the English side are not in the core. The kind comes from the first constituent outside brackets that has a kind.
    """
    words: tuple[list[str], list[str]] = ([], [])
    core: list[str] = []
    kind = ""
    starts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    numbered: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for side, text in enumerate((english, vietnamese)):
        out = words[side]
        for symbol, number, kept in _symbols(text):
            if number is None:
                starts[side][symbol] = len(out)
                part = parts[symbol]
                out.extend(part.vi if side else part.en)
                if kept and side == 0:
                    core.extend(part.core)
                    kind = kind or part.kind
            else:
                if kept and side == 0:
                    core.append(symbol)
                if number:
                    numbered[side].setdefault(number, []).append(len(out))
                out.append(symbol)
    assert starts[0].keys() == starts[1].keys() == parts.keys(), (english, vietnamese, sorted(parts))
    links = [
        (i + start, j + starts[1][symbol])
        for symbol, start in starts[0].items()
        for i, j in parts[symbol].links
    ]
    links += [
        (i, j) for number, ones in numbered[0].items() for i in ones for j in numbered[1].get(number, ())
    ]
    return Phrase(tuple(words[0]), tuple(words[1]), tuple(links), tuple(core), kind)


@cache
def word(english: str, vietnamese: str) -> Phrase:
    """Words that translate each other as a whole: teacher, `giáo viên`."""
    en, vi = tuple(english.split()), tuple(vietnamese.split())
    return Phrase(en, vi, tuple((i, j) for i in range(len(en)) for j in range(len(vi))), en, "")
