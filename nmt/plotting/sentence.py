"""A sentence pair with the attention between its words, and checks and shortening of weights and labels."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST_LABEL = 40  # characters


class Sentence(NamedTuple):
    """Weights [T, S] between S source and T target labels.

    gold: links (source, target), counted from 0. note: a line of text that a page shows below the title.
    """

    weights: Any
    source: Sequence[str]
    target: Sequence[str]
    title: str | None = None
    gold: Iterable[tuple[int, int]] | None = None
    note: str | None = None


class SentenceGroup(NamedTuple):
    """Sentences that a page shows together: side by side, or as a series with a slider."""

    title: str
    sentences: Sequence[Sentence]
    is_series: bool


MOST_OF_PAGE = 500_000  # weights that a browser can lay out
MOST_OF_SENTENCE = 160_000  # weights that are drawn: 400 words by 400


def crop(sentence: Sentence) -> Sentence:
    """Cut a sentence that is too long to draw to the first words of both sides, with a note in its title."""
    source, target = sentence.source, sentence.target
    if len(source) * len(target) <= MOST_OF_SENTENCE:
        return sentence
    side = int(MOST_OF_SENTENCE**0.5)
    T = min(len(target), max(side, MOST_OF_SENTENCE // len(source)))
    S = min(len(source), MOST_OF_SENTENCE // T)
    kept = f"the first {S} of {len(source)} source and {T} of {len(target)} target words"
    return sentence._replace(
        weights=np.asarray(sentence.weights)[:T, :S],
        source=source[:S],
        target=target[:T],
        title=f"{sentence.title} · {kept}" if sentence.title else kept,
        gold=[(i, j) for i, j in sentence.gold or () if i < S and j < T],
    )


def weights_array(weights: Any, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float64]:
    """Weights [T, S] as an array. Raises ValueError if the labels do not fit."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(target), len(source)):
        raise ValueError(
            f"weights are {values.shape} but there are {len(target)} target and {len(source)} source labels"
        )
    return values


def abbreviate(word: str) -> str:
    """Replace the middle of a very long word, as an address, by …, to leave room for the weights."""
    half = LONGEST_LABEL // 2
    return word if len(word) <= LONGEST_LABEL else f"{word[:half]}…{word[1 - half :]}"


def drawable(text: str) -> str:
    """Replace control characters and halves of surrogate pairs, which SVG and HTML do not allow, by �."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)
