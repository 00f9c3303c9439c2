"""Masks, and softmax, sparsemax and 1.5-entmax under a mask. In every mask True is a real token."""

from collections.abc import Callable

import torch
from entmax import entmax15, sparsemax
from torch import Tensor


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Mask [B, S] of `ids` [B, S]: True is a real token."""
    return ids != pad_id


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """Mask [T, T]: True if target position t (row) may attend to position u (column), `u <= t`."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension of `scores` [..., S], restricted to the real positions of `mask`.

    `w_j = exp(e_j) / sum_{k real} exp(e_k)` for real j, else exactly 0. `mask` broadcasts against `scores`. Every row
    needs a real position, as collation ensures: a row without any is NaN.
    """
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def masked_sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """Sparsemax, the point of the simplex nearest to the real scores (Martins & Astudillo 2016).

    `w = argmin_{p in simplex} |p - e|^2`: most weights are exactly 0. Arguments as for `masked_softmax`.
    """
    return _in_float32(sparsemax, scores.masked_fill(~mask, float("-inf")))


def masked_entmax15(scores: Tensor, mask: Tensor) -> Tensor:
    """1.5-entmax, halfway between softmax and sparsemax (Peters et al. 2019).

    `w_j = max(0, e_j / 2 - tau)^2`, with tau such that the weights sum to 1. Arguments as for `masked_softmax`.
    """
    return _in_float32(entmax15, scores.masked_fill(~mask, float("-inf")))


def _in_float32(function: Callable[..., Tensor], scores: Tensor) -> Tensor:
    """Apply `function` over the last dimension, in float32 or better: in half precision its threshold cancels out."""
    return function(scores.to(torch.promote_types(scores.dtype, torch.float32)), dim=-1).to(scores.dtype)


def reverse_within_length(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sentence of `x` [B, S, ...] within its length; padding does not move.

    `lengths` [B] counts the real tokens. A second call restores `x`.
    """
    positions = torch.arange(x.size(1), device=x.device)  # [S]
    reversed_positions = lengths.unsqueeze(1) - 1 - positions  # [B, S]
    index = torch.where(reversed_positions >= 0, reversed_positions, positions)
    return x[torch.arange(x.size(0), device=x.device).unsqueeze(1), index]
