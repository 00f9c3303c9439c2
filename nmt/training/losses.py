"""Losses as sums with their counts; training divides once, by the tokens of an optimizer step."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt import kernels


class LossSum(NamedTuple):
    """Sums over a batch, in nats.

    smoothed: what is minimised (label-smoothed cross-entropy), scalar.
    nll: the plain negative log-likelihood, what perplexity is made of, scalar, no gradient.
    num_tokens: how many target pieces (end of sentence included, padding not) both are sums over, scalar.
    """

    smoothed: Tensor
    nll: Tensor
    num_tokens: Tensor


def cross_entropy(logits: Tensor, targets: Tensor, *, pad_id: int, label_smoothing: float) -> LossSum:
    """Label-smoothed cross-entropy `(1-e) * -log p(y) + e * mean_v -log p(v)` (Szegedy et al. 2016), summed.

    logits [B, T, V], targets [B, T]; positions whose target is `pad_id` count for nothing.
    """
    flat_targets = targets.reshape(-1)
    real = flat_targets != pad_id
    dtype = torch.promote_types(logits.dtype, torch.float32)  # half-precision logits are summed in float32
    log_probs = F.log_softmax(logits.reshape(-1, logits.size(-1)), dim=-1, dtype=dtype)  # [B*T, V]
    nll = F.nll_loss(log_probs, flat_targets, ignore_index=pad_id, reduction="sum")
    if label_smoothing == 0.0:
        return LossSum(nll, nll.detach(), real.sum())
    spread = -(log_probs.mean(dim=-1) * real).sum()
    smoothed = (1.0 - label_smoothing) * nll + label_smoothing * spread
    return LossSum(smoothed, nll.detach(), real.sum())


def output_loss(
    features: Tensor, output: nn.Linear, targets: Tensor, *, pad_id: int, label_smoothing: float
) -> LossSum:
    """`cross_entropy` of `output(features)`, features [B, T, R]; on a CPU the fast form multiplies no padding."""
    if not kernels.fast(features):
        return cross_entropy(output(features), targets, pad_id=pad_id, label_smoothing=label_smoothing)
    real = targets != pad_id
    rows, answers, counted = _rows(features.flatten(0, 1), targets, real)
    smoothed, nll = kernels.linear_cross_entropy(
        rows, output.weight, output.bias, answers, counted, label_smoothing=label_smoothing
    )
    return LossSum(smoothed, nll, real.sum())


def _rows(features: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows of features [..., B*T, R] and their targets: on a CPU the real positions', on a GPU all, and which are real.

    To leave out the others there, the CPU would have to wait until the GPU has counted them.
    """
    if not features.is_cpu:
        return features, targets.flatten(), real.flatten()
    places = real.flatten().nonzero().squeeze(1)
    return features.index_select(-2, places), targets.flatten()[places], None


def r_drop(logits: Tensor, targets: Tensor, *, pad_id: int, label_smoothing: float, alpha: float) -> LossSum:
    """R-Drop: two passes over a batch, which drop out different units, are drawn to one answer (Liang et al. 2021).

        1/2 (L(p) + L(q)) + alpha/4 sum_t KL(p_t|q_t) + KL(q_t|p_t)

    where L is the summed label-smoothed `cross_entropy` and t runs over the real target positions. That is half
    of the paper's eq. 3, so that alpha is the paper's (5 for its translation) and the sum counts each target piece
    once, as `num_tokens` does. `nll` is the mean of the two passes'.

    logits [2, B, T, V], one pass after the other; targets [B, T].
    """
    loss = cross_entropy(
        logits, torch.stack((targets, targets)), pad_id=pad_id, label_smoothing=label_smoothing
    )
    dtype = torch.promote_types(logits.dtype, torch.float32)
    p, q = F.log_softmax(logits[:, targets != pad_id], dim=-1, dtype=dtype)  # [N, V] each
    divergences = ((p.exp() - q.exp()) * (p - q)).sum()  # KL(p|q) + KL(q|p)
    return LossSum(loss.smoothed / 2 + alpha / 4 * divergences, loss.nll / 2, (targets != pad_id).sum())


def output_r_drop(
    features: Tensor, output: nn.Linear, targets: Tensor, *, pad_id: int, label_smoothing: float, alpha: float
) -> LossSum:
    """`r_drop` of `output(features)`, features [2, B, T, R], as `output_loss` is `cross_entropy` of it."""
    if not kernels.fast(features):
        return r_drop(output(features), targets, pad_id=pad_id, label_smoothing=label_smoothing, alpha=alpha)
    real = targets != pad_id
    rows, answers, counted = _rows(features.flatten(1, 2), targets, real)
    loss, nll = kernels.linear_r_drop(
        rows, output.weight, output.bias, answers, counted, label_smoothing=label_smoothing, alpha=alpha
    )
    return LossSum(loss, nll, real.sum())


def guided_alignment(weights: Tensor, guide: Tensor) -> Tensor:
    """`-sum_t sum_j A_tj log a_tj`: the cross-entropy of attention against given alignments, in nats, summed
    (Chen et al. 2016, eq. 5).

    weights [B, T, S]: the attention a. guide [B, T, S]: A, whose rows sum to one, or to zero where nothing is
    known, which counts for nothing. A weight of exactly 0 counts as the smallest positive number.
    """
    tiny = torch.finfo(weights.dtype).tiny
    return -(guide.to(weights.dtype) * weights.clamp_min(tiny).log()).sum()
