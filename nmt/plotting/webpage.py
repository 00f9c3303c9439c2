"""The interactive HTML page: point at a word to see its attention weights.

One file with no scripts, styles or fonts from elsewhere. All data is text and attributes of the HTML, escaped; the
one script is the constant below, and the page's own policy lets a browser run no other.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from nmt.plotting.sentence import Sentence, drawable, fitting

STYLE = """
:root { color-scheme: light dark; --shade: 59 130 246; --gold: #d97706; }
body { background: Canvas; color: CanvasText; font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
section { border-top: 1px solid color-mix(in srgb, CanvasText 25%, Canvas); padding: 1.2rem 0; }
.words { display: flex; flex-wrap: wrap; gap: .25rem; margin: .5rem 0; }
.name { font-size: .8rem; opacity: .75; }
.word, tbody td { background: rgb(var(--shade) / calc(var(--w, 0) * .65)); }
.word { border: 1px solid transparent; border-radius: .3rem; color: inherit; cursor: pointer; font: inherit;
  font-size: 1.1rem; max-width: 100%; min-width: 1.8rem; overflow-wrap: anywhere; padding: .1rem .35rem 1.1rem;
  position: relative; }
.word::after { bottom: 0; content: attr(data-percent); font-size: .7rem; inset-inline: 0; position: absolute; }
.word:hover, .word:focus-visible { outline: 2px solid CanvasText; }
.word.chosen { border-color: CanvasText; }
.word.gold { border-color: var(--gold); }
.said { font-size: .9rem; min-height: 1.5em; margin: .25rem 0; }
.scroll { max-width: 100%; overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; }
th { font-weight: normal; white-space: nowrap; }
thead th { padding: .2rem 0; text-align: center; vertical-align: bottom; }
thead th span { writing-mode: vertical-rl; }
tbody th { padding: 0 .4rem 0 0; text-align: right; }
tbody td { border: 1px solid color-mix(in srgb, CanvasText 15%, Canvas); height: 1.5rem; min-width: 1.7rem; padding: 0;
  text-align: center; }
td.gold { outline: 2px solid var(--gold); outline-offset: -2px; }
td.chosen:not(.column) { border-block: 2px solid CanvasText; }
td.chosen.column { border-inline: 2px solid CanvasText; }
"""

SCRIPT = """
"use strict";
for (const section of document.querySelectorAll("section")) {
  const words = side => Array.from(section.querySelectorAll(`.${side} .word`));
  const lists = {source: words("source"), target: words("target")};
  const cells = Array.from(section.querySelectorAll("tbody tr"), row => Array.from(row.querySelectorAll("td")));
  const said = section.querySelector(".said");
  const other = {source: "target", target: "source"};
  let pinned = null;

  const clear = () => {
    for (const element of section.querySelectorAll(".word, td")) element.classList.remove("chosen", "column");
    for (const word of [...lists.source, ...lists.target]) {
      word.classList.remove("gold");
      word.style.removeProperty("--w");
      delete word.dataset.percent;
    }
    said.textContent = "";
  };
  const show = (side, index) => {
    clear();
    lists[side][index].classList.add("chosen");
    const line = side === "target" ? cells[index] : cells.map(row => row[index]);
    for (const cell of line) {
      cell.classList.add("chosen");
      cell.classList.toggle("column", side === "source");
    }
    const weights = line.map(cell => Number(cell.style.getPropertyValue("--w")) || 0);
    lists[other[side]].forEach((word, position) => {
      word.style.setProperty("--w", weights[position]);
      word.classList.toggle("gold", line[position].classList.contains("gold"));
      if (line[position].textContent) word.dataset.percent = line[position].textContent;
    });
    const largest = weights.map((_, position) => position).filter(position => line[position].textContent)
      .sort((a, b) => weights[b] - weights[a]).slice(0, 3)
      .map(position => `${lists[other[side]][position].textContent} ${line[position].textContent}`);
    // Isolates keep words of one direction from reordering a sentence of another.
    said.textContent = `\\u2068${lists[side][index].textContent}\\u2069 `
      + (side === "target" ? "attends to: " : "is attended by: ")
      + (largest.map(text => `\\u2068${text}\\u2069`).join(", ") || "nothing");
  };
  const rest = () => pinned ? show(...pinned) : clear();
  const pin = (side, index) => {
    const same = pinned && pinned[0] === side && pinned[1] === index;
    pinned = same ? null : [side, index];
    for (const name of ["source", "target"]) lists[name].forEach((word, position) =>
      word.setAttribute("aria-pressed", String(!same && name === side && position === index)));
    rest();
  };

  for (const side of ["source", "target"]) lists[side].forEach((word, index) => {
    // One stop of the Tab key for each list; the arrow keys go from word to word.
    word.tabIndex = index ? -1 : 0;
    word.addEventListener("pointerenter", () => show(side, index));
    word.addEventListener("pointerleave", rest);
    word.addEventListener("focus", () => show(side, index));
    word.addEventListener("blur", rest);
    word.addEventListener("click", () => pin(side, index));
    word.addEventListener("keydown", event => {
      const rightwards = getComputedStyle(word).direction === "rtl" ? -1 : 1;
      const last = lists[side].length - 1;
      const next = {ArrowRight: index + rightwards, ArrowLeft: index - rightwards, Home: 0, End: last}[event.key];
      if (event.key === "Escape") { pinned = [side, index]; pin(side, index); }
      if (next === undefined || next < 0 || next > last) return;
      event.preventDefault();
      word.tabIndex = -1;
      lists[side][next].tabIndex = 0;
      lists[side][next].focus();
    });
  });
}
"""


def alignment_page(
    sentences: Sequence[Sentence],
    *,
    title: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> str:
    """An HTML page of sentences: pointing at a word (or Tab and the arrow keys) shades the words of the other side.

    A click or Enter holds the choice. Below stands the whole of the weights [T, S] as a table, in hundredths,
    which a browser without scripts shows too; gold links are outlined. The languages (such as "zh") tell the
    browser which fonts and voices fit. Raises ValueError where the labels of a sentence do not fit its weights.
    """
    sections = [
        _section(number, sentence, source_lang, target_lang)
        for number, sentence in enumerate(sentences, start=1)
    ]
    # The policy, with the script's digest, stops whatever a mistake in escaping might let through.
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1 dir="auto">{_text(title)}</h1>
<p>Point at a word, tap it, or go to it with Tab and the arrow keys: the shade and the number below each word of the
other side are its attention weights, in hundredths. A click or Enter holds the choice, Escape lets it go.
In a table, columns are source words and rows target words; outlined cells are gold links.</p>
{"".join(sections)}</main>
<script>{SCRIPT}</script>
</body>
</html>
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
{_words("source", sentence.source, source_lang)}{_words("target", sentence.target, target_lang)}
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
    buttons = "".join(
        f'<button type="button" class="word" aria-pressed="false">{_text(word)}</button>\n' for word in words
    )
    return f"""<div class="name">{side}</div>
<div class="words {side}" role="group" aria-label="{side} words" dir="auto"{_lang(lang)}>
{buttons}</div>
"""


def _cell(weight: float, is_gold: bool) -> str:
    shade = f' style="--w:{weight:.3f}"' if weight >= 0.0005 else ""
    gold = ' class="gold"' if is_gold else ""
    return f"<td{gold}{shade}>{f'{100 * weight:.0f}' if weight >= 0.005 else ''}</td>"


def _lang(lang: str | None) -> str:
    return "" if lang is None else f' lang="{_text(lang)}"'


def _text(text: str) -> str:
    return escape(drawable(text))
