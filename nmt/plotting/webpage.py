"""The interactive HTML page of sentences with their attention: point at a word to see its weights.

One file with no scripts, styles or fonts from elsewhere. `nmt/page/sentence.js`, which all pages share, draws the data;
the page's own policy lets a browser run no other script.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nmt.alignment import SEPARATOR, sentences_of
from nmt.plotting.sentence import Sentence, SentenceGroup, drawable, weights_array

HELP = """Point at a word, tap it, or go to it with Tab and the arrow keys: the shade and the number below the words of
the other side are its attention weights in hundredths, and so is the width of the curves. A click or Enter holds the
choice, Escape ends it. Columns of a table are source words and rows target words."""
GOLD = " Outlined cells are gold links."
PAGE = Path(__file__).parents[1] / "page"
DRAW = """
const {items, langs} = JSON.parse(document.getElementById("data").textContent);
document.querySelector("main").append(...items.map(each => (each.sentences ? drawGroup : drawSentence)(each, {langs})));
"""


def alignment_page(
    sentences: Sequence[Sentence | SentenceGroup],
    *,
    title: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    note: str | None = None,
) -> str:
    """An HTML page of sentences: pointing at a word (or Tab and the arrow keys) shades the words of the other side.

    A click or Enter holds the choice. The sentences of a document are shaded by their weight. Below stand the weights
    [T, S] as a table, in hundredths; gold links are outlined. The languages (such as "zh") tell the browser which fonts
    and voices fit. `note` is the last line of the introduction. Raises ValueError if the labels of a sentence do not
    fit its weights.
    """
    flat = [
        part for each in sentences for part in (each.sentences if isinstance(each, SentenceGroup) else [each])
    ]
    introduction = (
        HELP + GOLD * any(each.gold for each in flat) + (f" {escape(drawable(note))}" if note else "")
    )
    items = [
        group_data(each) if isinstance(each, SentenceGroup) else sentence_data(each) for each in sentences
    ]
    langs = {"source": drawable(source_lang or ""), "target": drawable(target_lang or "")}
    data = json.dumps({"items": items, "langs": langs}, ensure_ascii=False)
    data = data.replace("<", "\\u003c")  # it could end the script
    script = (PAGE / "sentence.js").read_text("utf-8") + DRAW
    # The policy, with the script's digest, stops whatever a mistake in escaping might let through.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(drawable(title))}</title>
<style>
{(PAGE / "page.css").read_text("utf-8")}</style>
</head>
<body>
<main>
<h1 dir="auto">{escape(drawable(title))}</h1>
<p>{introduction}</p>
<noscript>The sentences are drawn by a script of this page.</noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def group_data(group: SentenceGroup) -> dict[str, Any]:
    """A group as `drawGroup` of `sentence.js` reads it."""
    sentences = [sentence_data(each) for each in group.sentences]
    return {"title": drawable(group.title), "sentences": sentences, "isSeries": group.is_series}


def sentence_data(sentence: Sentence) -> dict[str, Any]:
    """A sentence as `drawSentence` of `sentence.js` reads it; weights have three decimals."""
    # JSON has no NaN
    weights = np.nan_to_num(
        weights_array(sentence.weights, sentence.source, sentence.target), posinf=1, neginf=0
    )
    data: dict[str, Any] = {
        "title": drawable(sentence.title or ""),
        "note": drawable(sentence.note or ""),
        "source": [drawable(word) for word in sentence.source],
        "target": [drawable(word) for word in sentence.target],
        "weights": [[float(f"{each:.3f}") for each in row] for row in weights.tolist()],
        "gold": [list(map(int, link)) for link in sentence.gold or ()],
    }
    if SEPARATOR in sentence.source:  # a document
        data["parts"] = list(Counter(sentences_of(sentence.source)).values())
    return data
