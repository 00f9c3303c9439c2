"""Find stretches of lines whose translations stand some lines further up or down."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.numbered_words import Words, line_sums
from nmt.preparation.codes import Codes, Floats
from nmt.preparation.word_pairs import WordPairs

FARTHEST = 5
SHIFTS = (0, *(sign * far for far in range(1, FARTHEST + 1) for sign in (1, -1)), None)
_LARGEST_SCORE = 15  # nats of evidence of a line
_COST = 40  # nats: evidence that a stretch needs at each of its ends
_WINDOW = 12  # lines
_NO_SHIFT = -4  # nats: the most evidence of a line that no shift fits
_LOW = 0.4  # of the usual score of a word
_LEAST_LINES = 5
_LEAST_GAIN = 2  # nats a line, by which the shift of all lines is better than others


class Stretch(NamedTuple):
    """Lines `first` to `last`, from 0. shift: target line i + shift translates source line i; None if no shift fits."""

    first: int
    last: int
    shift: int | None


def line_scores(src: Words, tgt: Words, words: WordPairs) -> Floats:
    """The evidence that lines translate each other, in nats."""
    gains = words.explain(src, tgt)
    return np.asarray(line_sums(gains[0], src.lengths) + line_sums(gains[1], tgt.lengths))


def shifted_scores(src: Words, tgt: Words, words: WordPairs, usual: float) -> NDArray[np.int8] | None:
    """The evidence for each of `SHIFTS` [lines, shifts] in a block, or None if all lines seem to be in place.

    usual: the evidence per word of lines in place. If few words are known, it is negative. Then None (no shift fits)
    and shifts out of the block have the value halfway between lines in place and lines that do not belong together.
    """
    number, window = len(src.lengths), np.ones(min(_WINDOW, len(src.lengths)))
    found = np.full((number, len(SHIFTS)), np.nan)
    found[:, 0] = line_scores(src, tgt, words)
    num_words = np.convolve(src.lengths + tgt.lengths, window, "valid")
    if (np.convolve(found[:, 0], window, "valid") >= _LOW * usual * num_words).all():
        return None
    for column, shift in enumerate(SHIFTS):
        if shift and abs(shift) < number:
            lines = np.arange(max(0, -shift), min(number, number - shift))
            found[lines, column] = line_scores(src.at(lines), tgt.at(lines + shift), words)
    others = found[:, [bool(shift) for shift in SHIFTS]]
    strange = np.nansum(others, axis=1) / np.maximum(1, np.isfinite(others).sum(axis=1))
    between = (strange + usual * (src.lengths + tgt.lengths)) / 2
    found[:, SHIFTS.index(None)] = np.minimum(_NO_SHIFT, between)
    found = np.where(np.isnan(found), np.minimum(0, between)[:, None], found)
    return np.clip(found, -_LARGEST_SCORE, _LARGEST_SCORE).round().astype(np.int8)


def shift_of_all(blocks: Sequence[tuple[Sequence[str], Sequence[str]]]) -> int | None:
    """The shift that explains the words of some blocks of a text far better than all others: 0 for lines in place.

    None if no shift does: the words are too rare to tell, or the sides do not belong together.
    """
    src, tgt = (Codes(list(chain.from_iterable(side))).words for side in zip(*blocks, strict=True))
    ends = np.cumsum([len(lines) for lines, _ in blocks])
    inner = [
        np.arange(end - len(lines) + FARTHEST, end - FARTHEST)
        for end, (lines, _) in zip(ends, blocks, strict=True)
    ]
    lines, scores = np.concatenate(inner), dict[int, float]()
    if len(lines) < 2:
        return None
    for shift in range(-FARTHEST, FARTHEST + 1):
        first, second = ((src.at(half), tgt.at(half + shift)) for half in (lines[::2], lines[1::2]))
        words = WordPairs.learn(*first)
        scores[shift] = float(line_scores(*words.known(*second), words).mean())
    other, best = sorted(scores, key=scores.__getitem__)[-2:]
    return best if scores[best] > scores[other] + _LEAST_GAIN else None


def find_stretches(blocks: Mapping[int, NDArray[np.int8]]) -> list[Stretch]:
    """The misaligned stretches among the scores of blocks, which are numbered by their first lines, in order."""
    runs: dict[int, list[NDArray[np.int8]]] = {}
    end = begin = -1
    for first, scores in blocks.items():
        if first != end:
            begin = first
        runs.setdefault(begin, []).append(scores)
        end = first + len(scores)
    return [each for begin, run in runs.items() for each in _stretches(begin, np.concatenate(run))]


def _stretches(begin: int, scores: NDArray[np.int8]) -> list[Stretch]:
    """By Viterbi's algorithm: the shifts with the most evidence, less a cost per change."""
    best = np.where(np.arange(len(SHIFTS)) > 0, -_COST, 0)
    came_from = np.zeros(scores.shape, np.int8)
    for line, evidence in enumerate(scores.astype(np.int64)):
        top = int(best.argmax())
        stays = best >= best[top] - _COST
        came_from[line] = np.where(stays, np.arange(len(best)), top)
        best = np.maximum(best, best[top] - _COST) + evidence
    states, state = np.zeros(len(scores), np.int8), int(best.argmax())
    for line in range(len(scores) - 1, -1, -1):
        states[line] = state
        state = int(came_from[line, state])
    borders = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
    return [
        Stretch(begin + first, begin + after - 1, SHIFTS[states[first]])
        for first, after in pairwise(borders)
        if states[first] and after - first >= _LEAST_LINES
    ]
