"""Probes: a test set once more with changed sources, to see how much worse its translations become."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from nmt import metrics

SCORES = ("bleu", "chrf")
SEED, MISSPELT = 1, 0.1  # share of the words of four letters or more
LOST = 0.1  # share of a score
MOST_LINES, DICE, OFTEN = 1_000, 0.8, 5  # pairs of words: lines read, least Dice coefficient, least lines
Change = Callable[[str], str]


def misspell(line: str) -> str:
    """Drop, double or swap a letter in every tenth longer word. A line always gets the same errors."""
    draw = random.Random(f"{SEED} {line}")

    def change(match: re.Match[str]) -> str:
        word, place = match[0], draw.randrange(len(match[0]) - 1)
        first, second = word[place], word[place + 1]
        pair = draw.choice((second, first + first + second, second + first))
        return word[:place] + pair + word[place + 2 :] if draw.random() < MISSPELT else word

    return re.sub(r"[^\W\d_]{4,}", change, line)


def without_stop(line: str) -> str:
    return line.rstrip(" .。")


# A change of the sources, and a change of references and translations before they are compared
CHANGES: dict[str, tuple[Change, Change]] = {
    "lower_case": (str.lower, str.lower),
    "upper_case": (str.upper, str.lower),
    "no_full_stop": (without_stop, without_stop),
    "typing_errors": (misspell, str),
}


def make_probes(rows: Sequence[tuple[str, str, str]]) -> dict[str, list[Any]]:
    """The rows of each probe, which has only the sentences that it changes, from those of the unchanged test set.

    A row is source, reference, and the translation of the unchanged source, which single words have not.
    """
    rows = [row for row in rows if row[0].strip()]
    found: dict[str, list[Any]] = {
        name: [(change(src), compare(ref), compare(out)) for src, ref, out in rows if change(src) != src]
        for name, (change, compare) in CHANGES.items()
    }
    joined = [tuple(map("{} {}".format, *pair)) for pair in zip(rows[::2], rows[1::2], strict=False)]
    return {**found, "two_sentences": joined, "single_words": [(*each, "") for each in word_pairs(rows)]}


def word_pairs(rows: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Words that stand in the same lines of source and reference, by the Dice coefficient, and with no other word."""
    counts: Counter[Any] = Counter()
    for row in rows[:MOST_LINES]:
        src, ref = (set(re.findall(r"[^\W\d_]+", text)) for text in row[:2])
        counts.update([("src", word) for word in src] + [("ref", word) for word in ref])
        counts.update((*pair, "both") for pair in product(src, ref))
    pairs = [
        (src, ref)
        for (src, ref, *both), number in counts.items()
        if both and number >= OFTEN and 2 * number >= DICE * (counts["src", src] + counts["ref", ref])
    ]
    seen = Counter(word for pair in pairs for word in enumerate(pair))
    return sorted(pair for pair in pairs if all(seen[word] == 1 for word in enumerate(pair)))


def run_probes(
    run: Any, rows: Any, originals: Sequence[str], decoding: Any, scorers: Mapping[str, Any]
) -> dict[str, Any]:
    """Translate the probes of a split by a `Run`: scores of `SCORES`, beside those of the original translations."""
    results: dict[str, Any] = {}
    for name, probe in make_probes(list(zip(rows["src"], rows["tgt"], originals, strict=True))).items():
        if not probe:
            continue
        sources, references, before = map(list, zip(*probe, strict=True))
        found = run.translate(sources, decoding, need_weights=False, show_progress=True)
        after = [CHANGES.get(name, (str, str))[1](each.text) for each in found]
        # A single word has no original, and no four-grams
        chosen = {
            kind: scorers[kind] for kind in SCORES if kind in scorers and (any(before) or kind != "bleu")
        }
        now, then = (
            metrics.score_with(chosen, each, references, num_bootstrap=0) for each in (after, before)
        )
        results[name] = {"num_sentences": len(probe)} | {
            kind: {"score": now[kind]["score"], "original": then[kind]["score"] if any(before) else None}
            for kind in chosen
        }
    return results


def probe_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """A header and a row per probe: the number of sentences, and each score beside that of the unchanged sources."""
    rows = [["probe", "sentences", "BLEU", "original", "chrF", "original"]]
    for name, result in results.items():
        cells = [result.get(kind, {}).get(key) for kind in SCORES for key in ("score", "original")]
        scores = ["–" if each is None else f"{each:.1f}" for each in cells]
        rows.append([name.replace("_", " "), f"{result['num_sentences']:,}", *scores])
    return rows


def probe_notes(results: Mapping[str, Any]) -> list[str]:
    """A line if two sentences lose over LOST of their score, which training can repair."""
    found = results.get("two_sentences", {})
    scores = next((found[kind] for kind in SCORES if kind in found), None)
    if scores is None or scores["score"] >= (1 - LOST) * scores["original"]:
        return []
    lost = 1 - scores["score"] / scores["original"]
    return [
        f"note  two sentences in a line lose {lost:.0%} of the score. Train with data.augment.two_sentences=0.1"
    ]
