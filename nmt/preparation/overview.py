"""The report of an examination: a plain value for JSON, text, and a page with pictures."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from nmt import plotting
from nmt.errors import printable
from nmt.preparation.codes import SCRIPTS
from nmt.preparation.counts import RATIOS, Counts
from nmt.preparation.examination import Split
from nmt.preparation.problems import NEED_KNOWLEDGE, PROBLEMS, has

_PERCENTILES = (1, 25, 50, 75, 99)
_NUM_EXAMPLES = 3
_LONGEST_TEXT = 160  # characters of an example
_LEAST_SCRIPT = 0.001  # of the letters
_STYLE = """body { color-scheme: light dark; font: 1rem/1.5 system-ui; margin: auto; max-width: 70rem; padding: 1rem; }
img { background: white; max-width: 100%; } summary { background: linear-gradient(#3b82f655 0 0) no-repeat; }
td, th { border: 1px solid gray; overflow-wrap: anywhere; padding: .2rem .5rem; text-align: start; }"""


def describe(split: Split, rules: Sequence[str], seed: int) -> dict[str, Any]:
    """The report of a split. rules: the problems whose pairs a clean copy leaves out."""
    number = len(split.bits)
    examples = _examples(split, seed)
    langs = split.languages.src, split.languages.tgt
    return {
        "files": [str(path) for path in split.files.paths],
        "pairs": number,
        "sides": {lang: _describe_side(split.counts, side) for side, lang in enumerate(langs)},
        "problems": {
            name: {
                "meaning": PROBLEMS[name],
                "count": (count := int(has(split.bits, name).sum())),
                "share": count / number,
                "is_dropped": name in rules,
                "examples": found,
            }
            for name, found in examples.items()
        },
        "shifts": [
            {"first": first + 1, "last": last + 1, "shift": shift} for first, last, shift in split.stretches
        ],
        "not_looked_for": [name for name in NEED_KNOWLEDGE if not split.is_compared and name not in examples],
        "num_dropped": int(has(split.bits, *rules).sum()),
    }


def _describe_side(counts: Counts, side: int) -> dict[str, Any]:
    lengths, letters = counts.lengths[side], counts.scripts[side][1:]
    ends, share = np.cumsum(lengths), letters / max(letters.sum(), 1)
    frequent = (place for place in np.argsort(-share, kind="stable") if share[place] >= _LEAST_SCRIPT)
    return {
        "unit": counts.units[side],
        "length": int(counts.totals[side]),
        "characters": int(counts.characters[side]),
        "percentiles": {
            str(each): int(np.searchsorted(ends, each / 100 * ends[-1])) for each in _PERCENTILES
        },
        "scripts": {SCRIPTS[place + 1]: round(float(share[place]), 4) for place in frequent},
    }


def _examples(split: Split, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Some pairs with each problem, drawn with the seed."""
    draw = np.random.default_rng(seed)
    wanted: dict[int, list[str]] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    for name in PROBLEMS:
        if len(places := np.flatnonzero(has(split.bits, name))):
            found[name] = []
            for place in draw.choice(places, min(_NUM_EXAMPLES, len(places)), replace=False).tolist():
                wanted.setdefault(place, []).append(name)
    for block in split.read("examples") if wanted else ():
        for place in wanted.keys() & range(block.first, block.first + len(block.rows)):
            for name in wanted[place]:
                at = place - block.first
                found[name].append({"place": block.places[at], "src": block.src[at], "tgt": block.tgt[at]})
    return found


def say_report(name: str, split: Mapping[str, Any]) -> str:
    """The report of a split as text."""
    lines = [f"{name}: {split['pairs']:,} pairs"]
    for lang, side in split["sides"].items():
        scripts = ", ".join(f"{script} {share:.1%}" for script, share in side["scripts"].items())
        lengths = ", ".join(f"{value} in {each} %" for each, value in side["percentiles"].items())
        lines.append(
            f"  {lang}: {side['length']:,} {side['unit']}, {side['characters']:,} characters; {scripts}"
        )
        lines.append(f"    {side['unit']} per line: at most {lengths} of the lines")
    for problem, found in split["problems"].items():
        lines.append(f"  {_say_problem(problem, found)}")
        lines += [
            f"    {each['place']}: {_show(each['src'])} ||| {_show(each['tgt'])}"
            for each in found["examples"]
        ]
    lines += [f"  {_say_shift(each)}" for each in split["shifts"]]
    lines += [f"  {_say_unseen(split)}"] * bool(split["not_looked_for"])
    return "\n".join(lines if len(lines) > 5 else [*lines, "  no problems found"])


def _say_unseen(split: Mapping[str, Any]) -> str:
    reason = "too few training pairs in place, or words that do not show which lines belong together"
    return f"{reason}; not looked for: {', '.join(split['not_looked_for'])}"


def _say_problem(name: str, found: Mapping[str, Any]) -> str:
    return f"{name}: {found['count']:,} ({found['share']:.2%}), {found['meaning']}"


def _say_shift(stretch: Mapping[str, Any]) -> str:
    """`pairs 101 to 300: line i + 1 translates line i`."""
    pairs, shift = f"pairs {stretch['first']:,} to {stretch['last']:,}", stretch["shift"]
    if shift is None:
        return f"{pairs}: the sides do not belong together, and a shift by a few lines does not repair it"
    return f"{pairs}: line i {'+' if shift > 0 else '-'} {abs(shift)} translates line i"


def _show(text: str) -> str:
    return printable(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} …")


def report_page(report: Mapping[str, Any], train: Split, title: str) -> str:
    """The report as one HTML file with pictures of the training text. It has no scripts and loads nothing."""
    langs = train.languages.src, train.languages.tgt
    lengths = {
        lang: [(range(end), counts[:end].tolist())]
        for lang, counts in zip(langs, train.counts.lengths, strict=True)
        for end in [min(int(np.searchsorted(np.cumsum(counts), 0.995 * counts.sum())) + 2, len(counts))]
    }
    seen = np.flatnonzero(train.counts.ratios)
    shown = slice(seen[0], seen[-1] + 1)
    ratios = {
        f"{langs[1]} / {langs[0]}": [(np.log2(RATIOS[shown]).tolist(), train.counts.ratios[shown].tolist())]
    }
    pictures = [
        plotting.learning_curves(
            lengths, ylabel="lines", xlabel=f"{' or '.join(dict.fromkeys(train.counts.units))} per line"
        ),
        plotting.learning_curves(ratios, ylabel="pairs", xlabel="ratio of the characters, log2"),
    ]
    images = [base64.b64encode(plotting.svg(each)).decode() for each in pictures]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return "\n".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
            *(f'<img alt="" src="data:image/svg+xml;base64,{each}">' for each in images),
            *(part for name, split in reversed(list(report.items())) for part in _section(name, split)),
            "</body></html>\n",
        )
    )


def _section(name: str, split: Mapping[str, Any]) -> Iterator[str]:
    """A split on the page: its problems with bars as long as their shares, with examples to open."""
    yield f"<h2>{escape(name)}: {split['pairs']:,} pairs</h2>"
    yield from (f"<p>{escape(_say_shift(each))}</p>" for each in split["shifts"])
    yield from [f"<p>{_say_unseen(split)}</p>"] * bool(split["not_looked_for"])
    for problem, found in split["problems"].items():
        bar = f"background-size: {100 * found['share']:.2f}% 100%"
        rows = (
            "".join(f'<td dir="auto">{escape(_show(each[key]))}</td>' for key in ("place", "src", "tgt"))
            for each in found["examples"]
        )
        yield f'<details><summary style="{bar}">{escape(_say_problem(problem, found))}</summary><table>'
        yield f"{''.join(f'<tr>{row}</tr>' for row in rows)}</table></details>"
