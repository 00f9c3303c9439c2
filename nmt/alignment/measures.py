"""Measures of attention weights: entropy, concentration, coverage, locality, diagonality, agreement of heads.

Weights are [..., T, S]: NumPy arrays, tensors, or a tuple of tensors (one per layer, as other libraries return them),
with any dimensions before the last two. a_tj is the weight of target position t on source position j.

All functions take `src_mask` [..., S] and `tgt_mask` [..., T]: True is real; None if all are. Their leading
dimensions broadcast against those of the weights: for [layers, B, heads, T, S], masks are [B, 1, S] and [B, 1, T].
Weights on padding are left out and the rest stay as they are. Positions are counted over real tokens, so padding on
either side changes nothing. Results are NaN at padding. Raises ValueError if the length of a mask differs from that
of the weights.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.weights import as_array

Floats = NDArray[np.floating]


def entropy(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """`-sum_j a_tj log a_tj` of each row, in nats; 0 log 0 is 0. Returns [..., T]."""
    values, _, tgt_real = _apply_masks(weights, src_mask, tgt_mask)
    return np.where(tgt_real, _entropy(values), np.nan)


def concentration(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """`max_j a_tj` of each row. Returns [..., T]."""
    values, _, tgt_real = _apply_masks(weights, src_mask, tgt_mask)
    return np.where(tgt_real, values.max(axis=-1, initial=0.0), np.nan)


def source_coverage(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """`sum_t a_tj`: the coverage of each source position by the whole target (Tu et al. 2016). Returns [..., S]."""
    values, src_real, _ = _apply_masks(weights, src_mask, tgt_mask)
    return np.where(src_real, values.sum(axis=-2), np.nan)


def diagonality(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """Correlation of the target position t with the expected source position `sum_j j a_tj`. Returns [...].

    1 if attention moves evenly from left to right, -1 if it moves evenly back, 0 if it does not move.
    """
    values, src_real, tgt_real = _apply_masks(weights, src_mask, tgt_mask)
    expected = (values * _positions(src_real)[..., None, :]).sum(axis=-1)
    num_real = np.maximum(tgt_real.sum(axis=-1, keepdims=True), 1)
    deviations = []
    for each in (_positions(tgt_real), expected):
        mean = np.where(tgt_real, each, 0).sum(axis=-1, keepdims=True) / num_real
        deviations.append(np.where(tgt_real, each - mean, 0))
    of_target, of_source = deviations
    # Below a millionth of a position, movement is rounding.
    moves = np.abs(of_source).max(axis=-1, initial=0.0) >= 1e-6
    norm = np.sqrt((of_target**2).sum(axis=-1) * (of_source**2).sum(axis=-1))
    return np.where(moves, (of_target * of_source).sum(axis=-1) / np.where(moves, norm, 1), 0.0)[()]


def locality(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """`sum_j a_tj (1 - |(j + 1/2) / S - (t + 1/2) / T|)` of each row, with S and T counted over real positions.

    1 if all of a row lies on the straight line from the first words to the last; uniform attention has 3/4 in the
    middle of a long target and 1/2 at its ends. Returns [..., T].
    """
    values, src_real, tgt_real = _apply_masks(weights, src_mask, tgt_mask)
    source, target = (
        (_positions(real) + 0.5) / np.maximum(real.sum(-1, keepdims=True), 1) for real in (src_real, tgt_real)
    )
    distance = np.abs(source[..., None, :] - target[..., :, None])
    return np.where(tgt_real, (values * (1 - distance)).sum(axis=-1), np.nan)


def agreement(weights: Any, *, src_mask: Any = None, tgt_mask: Any = None) -> Floats:
    """Similarity of K heads with weights [..., K, T, S]: `1 - (H(mean_k a_k) - mean_k H(a_k)) / log K`.

    The divergence is that of Jensen and Shannon for K distributions (Lin 1991, section 5), at most log K: 1 if all
    heads have the same row, 0 if no two heads share a source position. Rows must sum to 1. Returns [..., T]. Raises
    ValueError for fewer than 2 heads.
    """
    values, _, tgt_real = _apply_masks(weights, src_mask, tgt_mask)
    num_heads = values.shape[-3] if values.ndim > 2 else 1
    if num_heads < 2:
        raise ValueError(f"agreement is between 2 heads or more, [..., K, T, S], got {num_heads} head")
    divergence = _entropy(values.mean(axis=-3)) - _entropy(values).mean(axis=-2)
    return np.where(tgt_real.all(axis=-2), 1 - divergence / np.log(num_heads), np.nan)


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


def _apply_masks(
    weights: Any, src_mask: Any, tgt_mask: Any
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Weights [..., T, S] with zeros at padding, and the masks broadcast to [..., S] and [..., T]."""
    values = as_array(weights)
    if values.ndim < 2:
        raise ValueError(f"weights are [..., T, S], got {values.ndim} dimension(s)")
    *leading, T, S = values.shape
    src_real = _whole_mask(src_mask, (*leading, S), "src_mask")
    tgt_real = _whole_mask(tgt_mask, (*leading, T), "tgt_mask")
    # Not a product: weights at padding may be NaN.
    return np.where(src_real[..., None, :] & tgt_real[..., :, None], values, 0.0), src_real, tgt_real


def _whole_mask(mask: Any, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones(shape, dtype=bool)
    real = as_array(mask).astype(bool)
    if real.shape[-1:] != shape[-1:]:  # else a length of 1 would broadcast
        raise ValueError(f"{name} is {real.shape} but the weights have {shape[-1]} positions there")
    return np.broadcast_to(real, shape)


def _positions(real: NDArray[np.bool_]) -> Floats:
    """0, 1, 2, ... over the real positions [..., N]."""
    return np.cumsum(real, axis=-1, dtype=np.float64) - 1


def _entropy(values: Floats) -> Floats:
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return -(values * logs).sum(axis=-1)
