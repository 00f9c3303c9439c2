"""Words out of the tokens of any vocabulary: WordPiece, byte-level BPE, SentencePiece."""

import re
from collections.abc import Sequence

import numpy as np

from nmt.alignment import words_from_pieces
from nmt.analysis.attentions import Attentions

SPECIAL = re.compile(r"\[[A-Z]+\]|<(?!0x)[^<>]+>")  # as [CLS], </s>, <|endoftext|>
_FALLBACK = re.compile(r"(?:<0x[0-9A-F]{2}>)+")  # SentencePiece's bytes of a character that has no piece
# How GPT-2 writes the bytes that have no sign of their own.
_SIGNS = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_BYTES = {chr(byte): byte for byte in _SIGNS} | {
    chr(256 + place): byte for place, byte in enumerate(byte for byte in range(256) if byte not in _SIGNS)
}


def words_of(tokens: Sequence[str]) -> tuple[list[str], list[int]]:
    """The words that tokens spell, and for each token the number of its word.

    A token with `##` goes on (WordPiece); where some have `Ġ` (byte-level BPE) or `▁` (SentencePiece), those begin a
    word and others go on; `<0xF0>` is a byte. A special token is a word of its own. Tokens without any mark are words.
    """
    mark = next((mark for mark in "Ġ▁" if any(token.startswith(mark) for token in tokens)), None)
    spelled: list[list[str]] = []
    numbers = []
    after_special = True
    for token in tokens:
        special = SPECIAL.fullmatch(token) is not None
        goes_on = token.startswith("##") if mark is None else not token.startswith(mark)
        if special or after_special or not goes_on:
            spelled.append([])
        text = token.removeprefix("##") if mark is None else token.removeprefix(mark)
        spelled[-1].append(token if special else text)
        numbers.append(len(spelled) - 1)
        after_special = special
    words = [_FALLBACK.sub(_from_fallback, "".join(parts)) for parts in spelled]
    return [_from_bytes(word) for word in words] if mark == "Ġ" else words, numbers


def _from_bytes(word: str) -> str:
    if any(sign not in _BYTES for sign in word):
        return word
    return bytes(_BYTES[sign] for sign in word).decode("utf-8", errors="replace")


def _from_fallback(found: re.Match[str]) -> str:
    return bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", errors="replace")


def between_words(attentions: Attentions) -> Attentions:
    """The same between words: a source word has the sum of its tokens' weights, a target word the mean of its rows."""
    source, of_source = words_of(attentions.source)
    target, of_target = words_of(attentions.target)
    weights = [
        [
            words_from_pieces(
                head, of_target, of_source, num_tgt_words=len(target), num_src_words=len(source)
            )
            for head in layer
        ]
        for layer in attentions.weights
    ]
    return Attentions(attentions.kind, np.array(weights), tuple(source), tuple(target))
