"""Attention to the sentences of a document: their weights, and how well these find the important sentences."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.links import Links
from nmt.alignment.weights import as_array

SEPARATOR = "¶"  # the word between two sentences of a document


def sentences_of(words: Sequence[str]) -> list[int]:
    """The sentence number, from 0, of each word of a document; a separator belongs to the sentence that it ends."""
    ends = np.array([word == SEPARATOR for word in words], dtype=int)
    return (ends.cumsum() - ends).tolist()


def sentence_weights(weights: Any, words: Sequence[str]) -> NDArray[np.floating]:
    """Sum weights [..., S] of the words of a document to weights [..., N] of its sentences."""
    values, numbers = as_array(weights), sentences_of(words)
    member = np.eye(max(numbers, default=-1) + 1)[numbers]  # [S, N]
    return values @ member


def weighed_words(
    weights: Iterable[Any], sources: Iterable[Sequence[str]], labels: Iterable[str]
) -> dict[str, list[tuple[str, float]]]:
    """For each label the ten words with the most weight in its texts: `{label: [(word, mean weight), ...]}`.

    weights: [T, S] between words. The weight of a word in a text is the mean over its places and over the output.
    Words in fewer than 3 texts of a label and texts without output are left out.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for each, words, label in zip(weights, sources, labels, strict=True):
        own: dict[str, list[float]] = {}
        for word, column in zip(words, as_array(each).T, strict=True):
            own.setdefault(word, []).extend(column)
        for word, values in own.items():
            if values:
                found.setdefault(label, {}).setdefault(word, []).append(float(np.mean(values)))
    means = {
        label: [(word, float(np.mean(own))) for word, own in words.items() if len(own) >= 3]
        for label, words in sorted(found.items())
    }
    return {label: sorted(own, key=lambda pair: -pair[1])[:10] for label, own in means.items()}


class Importance(NamedTuple):
    """How well attention finds the important sentences, from 0 to 1; see `score_importance`."""

    precision: float
    mass: float


def score_importance(
    weights: Iterable[Any], documents: Iterable[Sequence[str]], golds: Iterable[Links]
) -> Importance | None:
    """Precision and mass of sentence weights w_i over the whole output, as means over documents.

        w_i = mean_t sum of a_tj over words j of sentence i        precision = |G and the k largest| / k, k = |G|
        mass = sum of w_i over i in G / sum of all w_i

    weights: [T, S] between words. golds: the links of each pair; G is the set of sentences with a linked word.
    Documents without links are left out; None if all are. Sentences without weight are never among the k largest. A
    document with no weight on words (all of it on the end) counts as 0.
    """
    found = []
    for each, words, links in zip(weights, documents, golds, strict=True):
        numbers = sentences_of(words)
        important = sorted({numbers[source] for source, _ in links})
        if important:
            of_sentences = sentence_weights(each, words).sum(axis=0) / max(1, len(as_array(each)))
            largest = np.argsort(-of_sentences, kind="stable")[: len(important)]
            hits = [row for row in largest if row in important and of_sentences[row] > 0]
            mass = of_sentences[important].sum() / of_sentences.sum() if of_sentences.any() else 0.0
            found.append((len(hits) / len(important), mass))
    return Importance(*np.mean(found, axis=0).tolist()) if found else None
