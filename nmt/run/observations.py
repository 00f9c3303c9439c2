"""Observations on a training and on translations, in plain words with a remedy, if a value passes its threshold."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import TypeAdapter

from nmt.alignment import split_units
from nmt.atomic import json_text, read_at_most, write_together
from nmt.errors import UserError
from nmt.metrics import LABELS

RISING = 0.1  # part of the best score that the second half of the training brought
BEGUN = 0.25  # part of the best score at the end of the first half
FALLING = 0.5  # nats of the validation loss that the second half brought
OVERFIT = 0.05  # rise of the validation loss above its minimum, as a part of the minimum
SHORT, LONG = 0.85, 1.15  # characters of the translations for each of the references
REPEATED, NGRAM = 0.02, 3  # share of repeated n-grams beyond the references' share; their size
EMPTY = 0.002  # share of translations
COPIED = 0.02  # share of translations that are their source, though the reference is not
FAMILIAR, FEWEST_WORDS = 0.4, 2_000  # share of translations' words that the references have; words of these
KEPT = 0.7  # share of the numbers, or names, that source and reference share
FEWEST, RARE = 20, 0.1  # least number of these, and for each sentence; fewer say little
UNKNOWN, UNKNOWN_SIGN = 0.005, "⁇"  # share of lines with an unknown piece; its text
PATTERNS = {"numbers": r"\d+(?:[.,:]\d+)*", "names": r"\b[^\W\d_]{2,}\b"}
# value: the value that passed its threshold
TEXTS = {
    "only_begun": "training has only begun: the loss fell by {value:.2g} in its second half. Train much longer",
    "still_rising": "{label} was still rising, by {gain:.2g} in the second half of the training; the same time once "
    "more may bring some {value:.2g}. Train longer (trainer.max_epochs, max_time)",
    "overfitting": "the model overfits since step {value:,}: validation loss {low:.3f} rises to {high:.3f}, training "
    "loss falls. Try model.dropout, r_drop=3, data.tokenizer.sampling, a smaller model, more text",
    "diverging": "since step {value:,} the loss rises, validation {low:.3f} to {high:.3f}. Lower optimizer.lr",
    "too_short": "translations are too short, {value:.2f} times the references. Train longer, or look at "
    "decoding.max_length, max_length_ratio and length_alpha (higher is longer)",
    "too_long": "translations are too long, {value:.2f} times the references. Train longer, or look at "
    "decoding.beam_size (5 is usual) and length_alpha (lower is shorter)",
    "repetitions": "{value:.1%} of the {size}-grams repeat an earlier one of the same line, against {usual:.1%} "
    "in the references. Train longer, or give decoding.no_repeat_ngram_size=4 or attention=coverage",
    "empty": "{value:.1%} of the translations are empty. Give decoding.min_length=1 or a smaller decoding.beam_size",
    "copies": "{value:.1%} of the translations copy their source. Look for untranslated pairs in the training text",
    "other_language": "the references have {value:.0%} of the translations' words, the sources {in_src:.0%}: another "
    "language? Look at the target side of the training text and at data.tgt_lang",
    "numbers": "translations keep {value:.0%} of the numbers that source and reference share. Train with more of them",
    "names": "translations keep {value:.0%} of the names that source and reference share. Train with more text that "
    "has them, or with fewer pieces, which spell them (data.tokenizer.vocab_size)",
    "unknown_pieces": "{value:.1%} of the sources or translations have unknown pieces. Train with text that has their "
    "characters. For data.tokenizer.model_type=word, raise vocab_size or give decoding.replace_unknown=true",
}
log = logging.getLogger(__name__)

Observation = dict[str, Any]  # name and value for programs, text for a person
Validations = Sequence[Mapping[str, Any]]  # step, train/loss (logged last) and scores, in order of steps
FILE = "validations.json"  # in a run directory


def read_validations(run_dir: Path) -> list[dict[str, Any]]:
    """The validations of a run; none without a file. Raises UserError naming a broken file."""
    file = run_dir / FILE
    try:
        content = read_at_most(file, 2**24) if file.exists() else b"[]"
        rows = TypeAdapter(list[dict[str, float | None]]).validate_json(content, strict=True)
        return sorted(({**row, "step": int(row["step"] or 0)} for row in rows), key=lambda row: row["step"])
    except (ValueError, KeyError, OverflowError) as error:
        raise UserError(f"{file} is broken: remove it") from error


def note_validation(run_dir: Path, row: Mapping[str, float]) -> None:
    """Append a validation. A resumed run repeats steps after its checkpoint: their first rows are dropped."""
    earlier = [each for each in read_validations(run_dir) if each["step"] < row["step"]]
    write_together({run_dir / FILE: json_text([*earlier, dict(row)])})


def _say(values: Mapping[str, float | None], **facts: Any) -> list[Observation]:
    """An observation for each value that is not None."""
    found = [(name, value) for name, value in values.items() if value is not None]
    return [
        {"name": name, "value": each, "text": TEXTS[name].format(value=each, **facts)} for name, each in found
    ]


def observe_training(validations: Validations, *, monitor: str, mode: str) -> list[Observation]:
    """Observations on validations, of which the score `monitor` is the best if it is the highest or lowest (`mode`).

    The halves of a training are compared, since the last rates of a schedule hide a rise. As long again is said to
    bring half of the second half's gain: each doubling brings less than the one before.
    """
    name = monitor.removeprefix("val/")
    gain, best = _second_half(validations, monitor) if mode == "max" else (0.0, 0.0)
    fall, _ = _second_half(validations, "val/loss", sign=-1)
    losses = [each for each in validations if each.get("val/loss")] or [{"step": 0, "val/loss": 0.0}]
    low, last = min(losses, key=lambda each: each["val/loss"]), losses[-1]
    is_worse = last["val/loss"] > (1 + OVERFIT) * low["val/loss"]
    is_learning = (last.get("train/loss") or 0.0) < (low.get("train/loss") or float("inf"))
    is_rising = gain > RISING * best and not is_worse
    has_only_begun = best - gain < BEGUN * best if is_rising else fall > FALLING
    values = {
        "only_begun": fall if has_only_begun else None,
        "still_rising": gain / 2 if is_rising and not has_only_begun else None,
        "overfitting" if is_learning else "diverging": low["step"] if is_worse else None,
    }
    return _say(values, gain=gain, label=LABELS.get(name, name), low=low["val/loss"], high=last["val/loss"])


def _second_half(validations: Validations, key: str, sign: int = 1) -> tuple[float, float]:
    """The gain in the second half of the steps and the best score; zeros if the last quarter brought no gain."""
    rows = [(each["step"], sign * each[key]) for each in validations if each.get(key) is not None]
    parts = [[score for step, score in rows if step <= part * rows[-1][0]] for part in (0.5, 0.75, 1)]
    early, late, best = (max(each, default=0.0) for each in parts)
    return (best - early, best) if parts[0] and best > late else (0.0, 0.0)


def observe_translations(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], *, num_unknown: int = 0
) -> list[Observation]:
    """Observations on translations, a line each as their references. num_unknown: sources with unknown characters."""
    lines = zip(sources, translations, references, strict=True)
    rows = [row for row in lines if row[0].strip() and row[2].strip()]
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
    number = sum(map(set(known).__contains__, words))
    return number / len(words) if words and len(known) >= FEWEST_WORDS else 1.0


def kept_share(rows: Sequence[Sequence[str]], kind: str) -> float:
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
    return kept / total if total >= max(FEWEST, RARE * len(rows)) else 1.0


def observe(run: Any, rows: Any, texts: Sequence[str], *, trained: bool) -> list[Observation]:
    """Observations on the translations of a split with references by a `Run`; if `trained`, also on its training."""
    sources, best = list(rows["src"]), OmegaConf.select(run.config, "callbacks.checkpoint")
    num_unknown = len(run.tokenizer.unknown_characters(sources))
    found = observe_translations(sources, texts, list(rows["tgt"]), num_unknown=num_unknown)
    if not trained or best is None:
        return found
    try:
        validations = read_validations(run.directory)
        return observe_training(validations, monitor=best.monitor, mode=best.mode) + found
    except (AttributeError, TypeError, UserError) as error:  # a stranger's run; its translations are scored
        log.warning("nothing is said about the training: %s", error)
        return found
