"""Words from the tokens of any vocabulary: WordPiece, byte-level BPE, SentencePiece."""

import re
from collections.abc import Sequence

import numpy as np

from nmt.alignment import fill_gaps, words_from_pieces
from nmt.analysis.attentions import LayerAttentions

SPECIAL = re.compile(r"\[[A-Z]+\]|<(?!0x)[^<>]+>")  # such as [CLS], </s>, <|endoftext|>
_FALLBACK = re.compile(r"(?:<0x[0-9A-F]{2}>)+")  # bytes of a character without a piece, in SentencePiece
# The signs by which GPT-2 writes bytes: printable bytes stand for themselves.
_SIGNS = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_BYTES = {chr(byte): byte for byte in _SIGNS} | {
    chr(256 + place): byte for place, byte in enumerate(byte for byte in range(256) if byte not in _SIGNS)
}
# Ġ is a space, Ċ a new line
_SPACES = str.maketrans({chr(256 + byte): chr(byte) for byte in b"\t\n\x0b\x0c\r "})


def words_of(tokens: Sequence[str], *, byte_level: bool | None = None) -> tuple[list[str], list[int]]:
    """The words between spaces that tokens spell, and the word number of each token.

    `▁` (SentencePiece) and, in byte-level BPE, `Ġ` and `Ċ` are spaces. Without them a token with `##` continues a
    word, and any other token begins a word (WordPiece). A special token is a word, `<0xF0>` is a byte. A token of
    spaces belongs to the word of the next token, or else of the token before. `byte_level`: True for byte-level BPE;
    None guesses from `Ġ`, `Ċ`, bytes of UTF-8 and special tokens such as `</s>`: ASCII tokens without these are
    words.
    """
    ordinary = [token for token in tokens if SPECIAL.fullmatch(token) is None]
    has_mark = any("▁" in token for token in ordinary)
    if byte_level is None:
        byte_level = not has_mark and _looks_byte_level(tokens, ordinary)
    words: list[str] = []
    numbers = []
    goes_on = False
    for token in tokens:
        number = -1
        if SPECIAL.fullmatch(token):
            words.append(token)
            number, goes_on = len(words) - 1, False
        else:
            for part in re.findall(r"\s+|\S+", _restore_spaces(token, byte_level, has_mark)):
                if not part.isspace():
                    words += [] if goes_on else [""]
                    words[-1] += part
                    number = len(words) - 1
                goes_on = not part.isspace()
        numbers.append(number)
    spelled = [_from_bytes(word) if byte_level else _FALLBACK.sub(_from_fallback, word) for word in words]
    return spelled, fill_gaps(numbers)


def _looks_byte_level(tokens: Sequence[str], ordinary: Sequence[str]) -> bool:
    if any(token.startswith("##") for token in ordinary) and not any("Ġ" in token for token in ordinary):
        return False
    if any(re.match("Ġ|Ċ[ĊĠĉč]*$", token) for token in ordinary):
        return True
    text = "".join(ordinary)
    try:
        if not text.isascii() and bytes(_BYTES[sign] for sign in text).decode():
            return True
    except (KeyError, UnicodeDecodeError):
        return False
    special = [token for token in tokens if SPECIAL.fullmatch(token)]
    return any(token[0] == "<" for token in special) and not any(token[0] == "[" for token in special)


def _restore_spaces(token: str, byte_level: bool, has_mark: bool) -> str:
    """Replace the marks of spaces in a token by spaces."""
    if byte_level:
        return token.translate(_SPACES)
    if has_mark:
        return re.sub("▁|<0x(09|0A|0D|20)>", " ", token)
    return token.removeprefix("##") if token.startswith("##") else f" {token}"


def _from_bytes(word: str) -> str:
    if any(sign not in _BYTES for sign in word):
        return word
    return bytes(_BYTES[sign] for sign in word).decode("utf-8", errors="replace")


def _from_fallback(found: re.Match[str]) -> str:
    return bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", errors="replace")


def between_words(attentions: LayerAttentions, *, byte_level: bool | None = None) -> LayerAttentions:
    """Turn attentions between tokens into attentions between words.

    A source word has the sum of the weights of its tokens, a target word the mean of the rows of its tokens.
    `byte_level` as for `words_of`.
    """
    source, of_source = words_of(attentions.source, byte_level=byte_level)
    target, of_target = words_of(attentions.target, byte_level=byte_level)
    weights = [
        [
            words_from_pieces(
                head, of_target, of_source, num_tgt_words=len(target), num_src_words=len(source)
            )
            for head in layer
        ]
        for layer in attentions.weights
    ]
    return LayerAttentions(attentions.kind, np.array(weights), tuple(source), tuple(target))
