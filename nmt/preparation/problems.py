"""The problems that are looked for, and the search for those that a single pair shows by itself."""

import unicodedata

import numpy as np
import regex
from numpy.typing import NDArray

PROBLEMS = {  # in the order in which a dropped pair counts under one of them
    "empty": "a side is empty or blank",
    "equal": "both sides are the same text",
    "duplicate": "the same pair stands further up",
    "targets": "the source has other targets further up",
    "long": "a side is too long",
    "swapped": "the sides are swapped",
    "untranslated": "a side is in the language of the other side",
    "script": "a side is not in the letters of its language",
    "foreign": "a side is in a language that is neither of the two",
    "mojibake": "damaged encoding, as Ã© in place of é",
    "shifted": "a stretch of lines is shifted against the other side",
    "ratio": "one side is far too long for the other",
    "mismatched": "the words of the two sides do not belong together",
    "truncated": "a side breaks off",
    "held_out": "the pair stands in a held-out split",
    "near": "the source stands in a held-out split, except for case, punctuation, numbers or one word",
    "numbers": "a number stands on one side only",
    "links": "a URL or an e-mail address stands on one side only",
    "markup": "markup or entities, as <b> or &amp;",
    "characters": "control characters or invisible characters",
    "forms": "letters are composed, or decomposed, unlike most of the text",
}
# Found in comparison with the whole text
NEED_KNOWLEDGE = ("swapped", "untranslated", "foreign", "shifted", "mismatched", "truncated")
BIT = {name: np.uint32(1 << number) for number, name in enumerate(PROBLEMS)}
BOUNDS = {  # of the rules that have one, if the rule is true
    "targets": 1.0,  # targets of a source
    "long": 250.0,  # words, or characters of a language without spaces
    "ratio": 4.0,  # times the usual ratio of the characters of both sides
    "script": 0.5,  # of the letters of a side
    **dict.fromkeys(("swapped", "untranslated", "foreign"), 10.0),  # log-odds, in nats
    **dict.fromkeys(("mismatched", "truncated"), 0.0),  # log-odds, in nats
}

_LINK = regex.compile(r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)]|[\w.+-]+@[\w-]+\.[\w.-]*\w")
_MARKUP = regex.compile(r"</?[a-zA-Z][^<>]{0,200}>|&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});")
_INVISIBLE = regex.compile(  # not joiners, which some scripts need, nor tabs
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\ufeff\ue000-\uf8ff]"
)
_NUMBER = regex.compile(r"\d{2,4000}")  # a single digit is often a word on the other side; int() takes 4,300
_IN_A_NUMBER = regex.compile(r"(?<=\d)[.,'\s\u202f](?=\d{3}\b)")


def _misread(encoding: str, least: int) -> str:
    """A pattern of UTF-8 that was read in `encoding`: at least `least` characters of several bytes in a row.

    Sound text has dashes, quotation marks and no-break spaces beside letters. So one of them begins no single
    character, and after a letter other than those that misread Latin text is full of, they alone do not end one.
    """
    table = [bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in range(256)]
    following = "".join(map(regex.escape, (*table[0x80:0xC0], *map(chr, range(0x80, 0xA0)))))
    kinds = []
    for first, after, more in ((0xC2, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0xF5, 3)):
        leads = [
            each for each in table[first:after] if least > 1 or unicodedata.category(each)[0] not in "PZ"
        ]
        is_sound = rf"(?![^{table[0xC2]}{table[0xC3]}][\p{{P}}\p{{Z}}]{{{more}}})" if least == 1 else ""
        kinds.append(f"{is_sound}[{regex.escape(''.join(leads))}][{following}]{{{more}}}")
    return f"(?:{'|'.join(kinds)}){{{least},}}"


_MISREAD = (("cp1252", 1), ("mac_roman", 1), ("mac_roman", 2), ("cp1251", 2))
_MOJIBAKE = regex.compile("|".join(("\ufffd", *(_misread(*each) for each in _MISREAD))))


def find_problems(src: str, tgt: str) -> int:
    """The bits of the problems that a pair shows without knowledge of the other pairs."""
    if not src.strip() or not tgt.strip():
        return int(BIT["empty"])
    both = f"{src}\n{tgt}"
    checks = {
        "equal": src.strip() == tgt.strip(),
        "mojibake": not both.isascii() and _MOJIBAKE.search(both),
        "characters": _INVISIBLE.search(both),
        "markup": ("<" in both or "&" in both) and _MARKUP.search(both),
        "links": ("@" in both or "//" in both or "www." in both) and _links(src) != _links(tgt),
        "numbers": _numbers(src) != _numbers(tgt),
    }
    return sum(int(BIT[name]) for name, is_found in checks.items() if is_found)


def _links(text: str) -> list[str]:
    return sorted(each.lower() for each in _LINK.findall(text))


def _numbers(text: str) -> list[int]:
    """The numbers of two digits and more, in order of size. Separators of thousands do not count."""
    return sorted(map(int, _NUMBER.findall(_IN_A_NUMBER.sub("", text)))) if _NUMBER.search(text) else []


def form_of(text: str) -> int:
    """1 for text with letters that NFC would compose, -1 for one with composed letters, 0 for neither."""
    if text.isascii():
        return 0
    return 1 if not unicodedata.is_normalized("NFC", text) else unicodedata.is_normalized("NFD", text) - 1


def has(bits: NDArray[np.uint32], *names: str) -> NDArray[np.bool_]:
    """True for the pairs that have one of these problems."""
    return (bits & np.uint32(sum(int(BIT[name]) for name in names))) != 0
