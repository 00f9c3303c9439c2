"""Masks, and softmax and its sparse relatives under them. One polarity everywhere: True is a real token."""

from collections.abc import Callable

import torch
from entmax import entmax15, sparsemax
from torch import Tensor


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """True where `ids` [B, S] holds a real token. Returns bool [B, S]."""
    return ids != pad_id


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """True where target position t (row) may look at position u (column): `u <= t`. Returns bool [T, T]."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension of `scores` [..., S], restricted to the real positions of `mask`.

    `w_j = exp(e_j) / sum_{k real} exp(e_k)` for real j, and exactly 0 elsewhere. `mask` broadcasts against
    `scores` and must hold at least one real position a row (collation sees to it): a row without any is NaN.
    """
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def masked_sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """The point of the simplex nearest to the real scores (Martins & Astudillo 2016): most weights exactly 0.

    `w = argmin_{p in simplex} |p - e|^2`. Arguments as for `masked_softmax`.
    """
    return _in_float32(sparsemax, scores.masked_fill(~mask, float("-inf")))


def masked_entmax15(scores: Tensor, mask: Tensor) -> Tensor:
    """1.5-entmax, halfway between softmax and sparsemax (Peters et al. 2019): `w_j = max(0, e_j / 2 - tau)^2`,
    with tau such that the weights sum to one. Arguments as for `masked_softmax`.
    """
    return _in_float32(entmax15, scores.masked_fill(~mask, float("-inf")))


def _in_float32(function: Callable[..., Tensor], scores: Tensor) -> Tensor:
    """`function` of the last dimension, at least in float32: in half precision its threshold cancels out."""
    return function(scores.to(torch.promote_types(scores.dtype, torch.float32)), dim=-1).to(scores.dtype)


def reverse_within_length(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sentence of `x` [B, S, ...] within its own length; padding stays where it is.

    An involution: applied twice it gives `x` back. `lengths` [B] counts the real tokens.
    """
    positions = torch.arange(x.size(1), device=x.device)  # [S]
    reversed_positions = lengths.unsqueeze(1) - 1 - positions  # [B, S]
    index = torch.where(reversed_positions >= 0, reversed_positions, positions)
    return x[torch.arange(x.size(0), device=x.device).unsqueeze(1), index]
