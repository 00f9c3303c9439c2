"""The interactive HTML page: point at a word to see its attention weights.

One file with no scripts, styles or fonts from elsewhere. All data is text and attributes of the HTML, escaped; the
one script is that of `page.js`, and the page's own policy lets a browser run no other.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from pathlib import Path

from nmt.alignment import SEPARATOR, sentences_of
from nmt.plotting.sentence import Group, Sentence, drawable, fitting

HELP = """Point at a word, tap it, or go to it with Tab and the arrow keys: the shade and the number below each word of
the other side are its attention weights, in hundredths; so is the width of the curves. A click or Enter holds the
choice, Escape lets it go. In a table, columns are source words and rows target words; outlined cells are gold links."""
STYLE, SCRIPT = (Path(__file__).with_name(name).read_text("utf-8") for name in ("page.css", "page.js"))


def alignment_page(
    sentences: Sequence[Sentence | Group],
    *,
    title: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    is_part: bool = False,
    note: str | None = None,
) -> str:
    """An HTML page of sentences: pointing at a word (or Tab and the arrow keys) shades the words of the other side.

    A click or Enter holds the choice. The sentences of a document are shaded by their weight, for the whole output
    while no word is chosen. Below stands the whole of the weights [T, S] as a table, in hundredths, which a browser
    without scripts shows too; gold links are outlined. The languages (such as "zh") tell the browser which fonts and
    voices fit. A page that `is_part` of another has no heading; `note` is its last line. Raises ValueError where the
    labels of a sentence do not fit its weights.
    """
    numbers, langs = count(1), (source_lang, target_lang)
    sections = [
        _group(each, numbers, *langs) if isinstance(each, Group) else _section(next(numbers), each, *langs)
        for each in sentences
    ]
    heading = "" if is_part else f'<h1 dir="auto">{_text(title)}</h1>\n<p>{HELP}</p>\n'
    # The policy, with the script's digest, stops whatever a mistake in escaping might let through.
    digest = base64.b64encode(hashlib.sha256(f"\n{SCRIPT}".encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<style>
{STYLE}</style>
</head>
<body{' class="part"' if is_part else ""}>
<main>
{heading}{"".join(sections)}{f"<p>{_text(note)}</p>" if note else ""}</main>
<script>
{SCRIPT}</script>
</body>
</html>
"""


def _group(group: Group, numbers: Iterator[int], source_lang: str | None, target_lang: str | None) -> str:
    sections = "".join(_section(next(numbers), each, source_lang, target_lang) for each in group.sentences)
    last, slider = len(group.sentences) - 1, ""
    if group.is_series:
        slider = f'<input type="range" min="0" max="{last}" value="{last}">'
        slider = f"<label hidden>validation {slider}<output></output></label>"
    return f"""<div class="group {"series" if group.is_series else "beside"}">
<h2 dir="auto">{_text(group.title)}</h2>
{slider}<div class="members">
{sections}</div>
</div>
"""


def _section(number: int, sentence: Sentence, source_lang: str | None, target_lang: str | None) -> str:
    weights = fitting(sentence.weights, sentence.source, sentence.target)
    gold = set(sentence.gold or ())
    title = sentence.title or f"Sentence {number}"
    head = "".join(
        f'<th scope="col"{_lang(source_lang)}><span dir="auto">{_text(word)}</span></th>'
        for word in sentence.source
    )
    rows = "".join(
        f'<tr><th scope="row" dir="auto"{_lang(target_lang)}>{_text(word)}</th>'
        + "".join(_cell(float(weight), (i, j) in gold) for i, weight in enumerate(weights[j]))
        + "</tr>\n"
        for j, word in enumerate(sentence.target)
    )
    return f"""<section aria-labelledby="title-{number}">
<h2 id="title-{number}" dir="auto">{_text(title)}</h2>
{"" if sentence.note is None else f'<p class="note" dir="auto">{_text(sentence.note)}</p>'}
<div class="pair"><svg aria-hidden="true"></svg>
{_words("source", sentence.source, source_lang)}{_words("target", sentence.target, target_lang)}</div>
<p class="said" aria-live="polite"></p>
<div class="scroll" role="region" aria-label="weights of sentence {number}" tabindex="0">
<table>
<thead><tr><td></td>{head}</tr></thead>
<tbody>
{rows}</tbody>
</table>
</div>
</section>
"""


def _words(side: str, words: Sequence[str], lang: str | None) -> str:
    parts = [
        f'<button type="button" class="word" aria-pressed="false">{_text(word)}</button>\n' for word in words
    ]
    if side == "source" and SEPARATOR in words:  # a document: each sentence in a line of its own
        numbers = sentences_of(words)
        sentences = ["".join(part for part, own in zip(parts, numbers, strict=True) if own == number)
                     for number in sorted(set(numbers))]  # fmt: skip
        parts = [f'<div class="sentence"><span class="share"></span>\n{each}</div>\n' for each in sentences]
    buttons = "".join(parts)
    name = f'<div class="name">{side}</div>\n'
    list_of_words = f"""<div class="words {side}" role="group" aria-label="{side} words" dir="auto"{_lang(lang)}>
{buttons}</div>
"""
    return name + list_of_words if side == "source" else list_of_words + name  # the curves are between


def _cell(weight: float, is_gold: bool) -> str:
    shade = f' style="--w:{weight:.3f}"' if weight >= 0.0005 else ""
    gold = ' class="gold"' if is_gold else ""
    return f"<td{gold}{shade}>{f'{100 * weight:.0f}' if weight >= 0.005 else ''}</td>"


def _lang(lang: str | None) -> str:
    return "" if lang is None else f' lang="{_text(lang)}"'


def _text(text: str) -> str:
    return escape(drawable(text))
