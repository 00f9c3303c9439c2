"""Observations on a finished training and on its translations, in plain words, each with a remedy to try.

There is none unless a measured value passes its threshold.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from nmt.alignment import split_units
from nmt.metrics import LABELS
from nmt.run.validations import read_validations

RISING = 0.1  # part of the best score that the second half of the training brought
BEGUN = 0.25  # part of the best score at the end of the first half
FALLING = 0.5  # nats of the validation loss that the second half brought
OVERFIT = 0.05  # rise of the validation loss above its minimum, as a part of the minimum
SHORT, LONG = 0.85, 1.15  # characters of the translations for each of the references
REPEATED = 0.02  # share of repeated n-grams beyond the references' share
NGRAM = 3
EMPTY = 0.002  # share of translations
COPIED = 0.02  # share of translations that are their source, though the reference is not
FAMILIAR, FEWEST_WORDS = 0.4, 2_000  # share of translations' words that the references have; words of these
KEPT, FEWEST = (
    0.7,
    20,
)  # share of the numbers, or names, that source and reference have in common; their number
UNKNOWN = 0.005  # share of lines with an unknown piece
UNKNOWN_SIGN = "⁇"  # the text of an unknown piece
PATTERNS = {"numbers": r"\d+(?:[.,:]\d+)*", "names": r"\b[^\W\d_]{2,}\b"}
TEXTS = {
    "still_rising": "{label} was still rising: the second half of the training brought {gain:.2g}, and as long again "
    "may bring some {value:.2g} more. Train longer (trainer.max_epochs)",
    "only_begun": "the training has only begun: its second half lowered the validation loss by {value:.2g}. Train "
    "several times longer (trainer.max_epochs)",
    "overfitting": "the model overfits since step {value:,}: the validation loss rises from {low:.3f} to {high:.3f}, "
    "and the training loss falls. Try model.dropout, r_drop=3, data.tokenizer.sampling, a smaller model, more text",
    "diverging": "since step {value:,} the validation loss rises from {low:.3f} to {high:.3f}, and the training loss "
    "does not fall. Lower optimizer.lr",
    "too_short": "translations are too short: {value:.2f} times the references. Look at decoding.max_length and "
    "max_length_ratio, raise decoding.length_alpha, or train longer",
    "too_long": "translations are too long: {value:.2f} times the references. Give a beam (decoding.beam_size=5), "
    "lower decoding.length_alpha, or train longer",
    "repetitions": "{value:.1%} of the {size}-grams repeat one of their line, {usual:.1%} in the references. Train "
    "longer, or give decoding.no_repeat_ngram_size=4 or attention=coverage",
    "empty": "{value:.1%} of the translations are empty. Give decoding.min_length=1 or a smaller decoding.beam_size",
    "copies": "{value:.1%} of the translations copy their source. Look for untranslated pairs in the training text",
    "other_language": "the references have {value:.0%} of the translations' words, the sources {in_src:.0%}: is this "
    "the language of the references? Look at the training text's target side, and at data.tgt_lang",
    "numbers": "translations keep {value:.0%} of the numbers that sources and references share. Train with more text "
    "that has numbers, or with fewer pieces (data.tokenizer.vocab_size), which spell them",
    "names": "translations keep {value:.0%} of the names that sources and references share. Train with more text that "
    "has such names, or with fewer pieces (data.tokenizer.vocab_size), which spell them",
    "unknown_pieces": "{value:.1%} of the sources or translations have unknown pieces. Train with text that has their "
    "characters, and with data.tokenizer.character_coverage=1",
}  # the value of an observation, and further facts
Observation = dict[str, Any]  # name and value for programs, text for a person


def _say(values: Mapping[str, float | None], **facts: Any) -> list[Observation]:
    """An observation for each value that is not None."""
    return [
        {"name": name, "value": value, "text": TEXTS[name].format(value=value, **facts)}
        for name, value in values.items()
        if value is not None
    ]


def observe_training(
    validations: Sequence[Mapping[str, Any]], *, monitor: str, mode: str
) -> list[Observation]:
    """Observations on validations with the keys `step`, `train/loss`, `val/loss` and `monitor`, in order of steps.

    The halves of a training are compared, since the last rates of a schedule hide a rise. As long again is said to
    bring half of the second half's gain: each doubling brings less than the one before.
    """
    gain, best = _second_half(validations, monitor) if mode == "max" else (0.0, 0.0)
    fall, _ = _second_half(validations, "val/loss", sign=-1)
    is_rising = gain > RISING * best
    only_begun = best - gain < BEGUN * best if is_rising else fall > FALLING
    losses = [each for each in validations if each.get("val/loss") is not None] or [
        {"step": 0, "val/loss": 0.0}
    ]
    low, last = min(losses, key=lambda each: each["val/loss"]), losses[-1]
    worse = low["step"] if last["val/loss"] > (1 + OVERFIT) * low["val/loss"] else None
    is_learning = (last.get("train/loss") or 0.0) < (low.get("train/loss") or float("inf"))
    values = {
        "only_begun": fall if only_begun else None,
        "still_rising": gain / 2 if is_rising and not only_begun else None,
        "overfitting" if is_learning else "diverging": worse,
    }
    name = monitor.removeprefix("val/")
    return _say(values, gain=gain, label=LABELS.get(name, name), low=low["val/loss"], high=last["val/loss"])


def _second_half(validations: Sequence[Mapping[str, Any]], key: str, sign: int = 1) -> tuple[float, float]:
    """The gain in the second half of the steps and the best score; zeros if the last quarter brought no gain."""
    rows = [(each["step"], sign * each[key]) for each in validations if each.get(key) is not None]
    parts = [[score for step, score in rows if step <= part * rows[-1][0]] for part in (0.5, 0.75, 1)]
    early, late, best = (max(each, default=0.0) for each in parts)
    return (best - early, best) if parts[0] and best > late else (0.0, 0.0)


def observe_translations(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], *, num_unknown: int = 0
) -> list[Observation]:
    """Observations on translations, a line each as their references. num_unknown: sources with unknown characters."""
    rows = [
        row
        for row in zip(sources, translations, references, strict=True)
        if row[0].strip() and row[2].strip()
    ]
    if not rows:
        return []
    src, out, ref = map(list, zip(*rows, strict=True))
    ratio = len("".join("".join(out).split())) / len("".join("".join(ref).split()))
    repeated, usual = repeated_share(out), repeated_share(ref)
    empty = sum(not text.strip() for text in out) / len(rows)
    plain = [[text.strip().casefold() for text in row] for row in rows]
    copied = sum(source == text != wanted for source, text, wanted in plain) / len(rows)
    in_src, in_ref = (familiar_share(out, side) for side in (src, ref))
    signs = sum(UNKNOWN_SIGN in text for text in out) - sum(UNKNOWN_SIGN in text for text in ref)
    unknown = max(num_unknown, signs) / len(rows)
    faults = {
        "too_short": ratio if ratio < SHORT else None,
        "too_long": ratio if ratio > LONG else None,
        "repetitions": repeated if repeated - usual > REPEATED else None,
        "empty": empty if empty > EMPTY else None,
        "copies": copied if copied > COPIED else None,
        "other_language": in_ref if in_ref < FAMILIAR else None,
        "unknown_pieces": unknown if unknown > UNKNOWN else None,
    }
    if all(value is None for value in faults.values()):  # else they are the cause
        shares = {kind: kept_share(rows, kind) for kind in PATTERNS}
        faults = {kind: share if share < KEPT else None for kind, share in shares.items()}
    return _say(faults, usual=usual, size=NGRAM, in_src=in_src)


def repeated_share(texts: Iterable[str]) -> float:
    """The share of n-grams that occurred before in the same text: n words, or characters if there are no spaces."""
    units = map(split_units, texts)
    ngrams = [list(zip(*(each[start:] for start in range(NGRAM)), strict=False)) for each in units]
    return sum(len(each) - len(set(each)) for each in ngrams) / max(1, sum(map(len, ngrams)))


def familiar_share(texts: Sequence[str], others: Sequence[str]) -> float:
    """The share of words that occur in other texts; two languages share few. 1 if the others have too few words."""
    words, known = (re.findall(r"[^\W\d_]+", "\n".join(side).casefold()) for side in (texts, others))
    return (
        sum(map(set(known).__contains__, words)) / len(words) if words and len(known) >= FEWEST_WORDS else 1.0
    )


def kept_share(rows: Iterable[Sequence[str]], kind: str) -> float:
    """The share of numbers, or names, of both source and reference that the translation has too; 1 for too few.

    Rows are source, translation, reference. Names begin with a capital letter; in the translation case does not count.
    """
    total = kept = 0
    for source, text, wanted in rows:
        common = Counter(re.findall(PATTERNS[kind], source)) & Counter(re.findall(PATTERNS[kind], wanted))
        written = Counter(re.findall(PATTERNS[kind], text.casefold()))
        for word, count in common.items():
            if kind == "numbers" or word[0].isupper():
                total, kept = total + count, kept + min(count, written[word.casefold()])
    return kept / total if total >= FEWEST else 1.0


def observe(run: Any, rows: Any, texts: Sequence[str], *, trained: bool) -> list[Observation]:
    """Observations on the translations of a split with references by a `Run`; if `trained`, also on its training."""
    sources = list(rows["src"])
    num_unknown = len(run.tokenizer.unknown_characters(sources))
    found = observe_translations(sources, texts, list(rows["tgt"]), num_unknown=num_unknown)
    best = OmegaConf.select(run.config, "callbacks.checkpoint")
    if trained and best is not None:
        validations = read_validations(run.directory)
        found = observe_training(validations, monitor=best.monitor, mode=best.mode) + found
    return found
