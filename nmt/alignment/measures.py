"""Measures of attention weights: entropy, concentration, coverage, locality, diagonality, agreement of heads.

Weights are [..., T, S]: NumPy arrays, tensors, or a tuple of tensors (one per layer, as other libraries return them),
with any dimensions before the last two. a_tj is the weight of target position t on source position j.

Raises ValueError for weights of one dimension.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.weights import as_array

Floats = NDArray[np.floating]


def entropy(weights: Any) -> Floats:
    """`-sum_j a_tj log a_tj` of each row, in nats; 0 log 0 is 0. Returns [..., T]."""
    values = _matrices(weights)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return -(values * logs).sum(axis=-1)


def concentration(weights: Any) -> Floats:
    """`max_j a_tj` of each row. Returns [..., T]."""
    return _matrices(weights).max(axis=-1, initial=0.0)


def source_coverage(weights: Any) -> Floats:
    """`sum_t a_tj`: the coverage of each source position by the whole target (Tu et al. 2016). Returns [..., S]."""
    return _matrices(weights).sum(axis=-2)


def diagonality(weights: Any) -> Floats:
    """Correlation of the target position t with the expected source position `sum_j j a_tj`. Returns [...].

    1 if attention moves evenly from left to right, -1 if it moves evenly back, 0 if it does not move.
    """
    values = _matrices(weights)
    T, S = values.shape[-2:]
    expected = (values * np.arange(S, dtype=np.float64)).sum(axis=-1)
    of_target, of_source = (
        each - each.sum(axis=-1, keepdims=True) / max(T, 1)
        for each in (np.arange(T, dtype=np.float64), expected)
    )
    # Below a millionth of a position, movement is rounding.
    moves = np.abs(of_source).max(axis=-1, initial=0.0) >= 1e-6
    norm = np.sqrt((of_target**2).sum(axis=-1) * (of_source**2).sum(axis=-1))
    return np.where(moves, (of_target * of_source).sum(axis=-1) / np.where(moves, norm, 1), 0.0)[()]


def locality(weights: Any) -> Floats:
    """`sum_j a_tj (1 - |(j + 1/2) / S - (t + 1/2) / T|)` of each row.

    1 if all of a row lies on the straight line from the first words to the last; uniform attention has 3/4 in the
    middle of a long target and 1/2 at its ends. Returns [..., T].
    """
    values = _matrices(weights)
    target, source = ((np.arange(size, dtype=np.float64) + 0.5) / max(size, 1) for size in values.shape[-2:])
    distance = np.abs(source - target[:, None])
    return (values * (1 - distance)).sum(axis=-1)


def agreement(weights: Any) -> Floats:
    """Similarity of K heads with weights [..., K, T, S]: `1 - (H(mean_k a_k) - mean_k H(a_k)) / log K`.

    The divergence is that of Jensen and Shannon for K distributions (Lin 1991, section 5), at most log K: 1 if all
    heads have the same row, 0 if no two heads share a source position. Rows must sum to 1. Returns [..., T]. Raises
    ValueError for fewer than 2 heads.
    """
    values = _matrices(weights)
    num_heads = values.shape[-3] if values.ndim > 2 else 1
    if num_heads < 2:
        raise ValueError(f"agreement is between 2 heads or more, [..., K, T, S], got {num_heads} head")
    divergence = entropy(values.mean(axis=-3)) - entropy(values).mean(axis=-2)
    return 1 - divergence / np.log(num_heads)


STATISTICS = ("entropy", "concentration", "locality", "coverage", "diagonality")


def statistics(weights: Iterable[Any]) -> dict[str, float]:
    """Means over the weights [T, S] of sentences, all without padding.

    Rows that do not sum to 1, as with `local_p`, are scaled first; rows of zeros stay.

    entropy: in nats, over all target pieces.
    concentration: the largest weight, over all target pieces.
    locality: nearness to the diagonal, over all target pieces.
    coverage: the share of source positions that receive at least half a piece of attention in total.
    diagonality: over sentences.

    Raises ValueError if there are no weights.
    """
    entropies, largest, local, covered, diagonal = [], [], [], [], []
    for given in weights:
        sums = as_array(given).sum(axis=-1, keepdims=True)
        each = as_array(given) / np.where(sums > 0, sums, 1)
        entropies.append(entropy(each))
        largest.append(concentration(each))
        local.append(locality(each))
        covered.append(source_coverage(each) >= 0.5)
        diagonal.append(diagonality(each))
    if not sum(map(len, entropies)) or not sum(map(len, covered)):
        raise ValueError(f"no weights: {len(entropies)} sentences, none of which has pieces on both sides")
    means = [float(np.concatenate(each).mean()) for each in (entropies, largest, local, covered)]
    return dict(zip(STATISTICS, [*means, float(np.mean(diagonal))], strict=True))


def _matrices(weights: Any) -> Floats:
    values = as_array(weights)
    if values.ndim < 2:
        raise ValueError(f"weights are [..., T, S], got {values.ndim} dimension(s)")
    return values
