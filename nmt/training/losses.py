"""Losses as sums with their counts; training divides once, by the tokens of an optimizer step."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt import kernels


class LossSum(NamedTuple):
    """Sums over a batch, in nats.

    smoothed: label-smoothed cross-entropy, the training loss, scalar.
    nll: negative log-likelihood without smoothing, for the perplexity, scalar, no gradient.
    num_tokens: number of target pieces in both sums (end of sentence included, padding not), scalar.
    """

    smoothed: Tensor
    nll: Tensor
    num_tokens: Tensor


def cross_entropy(logits: Tensor, targets: Tensor, *, pad_id: int, label_smoothing: float) -> LossSum:
    """Label-smoothed cross-entropy `(1-e) * -log p(y) + e * mean_v -log p(v)` (Szegedy et al. 2016), summed.

    logits [B, T, V], targets [B, T]; positions with target `pad_id` do not count.
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
    """`cross_entropy` of `output(features)`, features [B, T, R]. On a CPU the fast kernel skips padding."""
    if not kernels.fast(features):
        return cross_entropy(output(features), targets, pad_id=pad_id, label_smoothing=label_smoothing)
    real = targets != pad_id
    rows, answers, counted = _rows(features.flatten(0, 1), targets, real)
    smoothed, nll = kernels.linear_cross_entropy(
        rows, output.weight, output.bias, answers, counted, label_smoothing=label_smoothing
    )
    return LossSum(smoothed, nll, real.sum())


def _rows(features: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows of features [..., B*T, R], their targets, and a mask of the real positions.

    On a CPU only the real positions are returned, and no mask. On a GPU all positions are returned: to leave out
    padding, the CPU would have to wait until the GPU has counted it.
    """
    if not features.is_cpu:
        return features, targets.flatten(), real.flatten()
    places = real.flatten().nonzero().squeeze(1)
    return features.index_select(-2, places), targets.flatten()[places], None


def r_drop(logits: Tensor, targets: Tensor, *, pad_id: int, label_smoothing: float, alpha: float) -> LossSum:
    """R-Drop: make two passes over a batch with different dropout predict the same distribution (Liang et al. 2021).

        1/2 (L(p) + L(q)) + alpha/4 sum_t KL(p_t|q_t) + KL(q_t|p_t)

    L is the summed label-smoothed `cross_entropy`, and t runs over the real target positions. This is half of the
    paper's eq. 3, so that alpha is the paper's alpha (5 for its translation) and every target piece counts once, as in
    `num_tokens`. `nll` is the mean over the two passes.

    logits [2, B, T, V], first index the pass; targets [B, T].
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
    """`r_drop` of `output(features)`, features [2, B, T, R]. On a CPU the fast kernel skips padding."""
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

    weights [B, T, S]: the attention a. guide [B, T, S]: A. Its rows sum to 1, or to 0 if no alignment is known, and
    then do not count. A weight of exactly 0 counts as the smallest positive number.
    """
    tiny = torch.finfo(weights.dtype).tiny
    return -(guide.to(weights.dtype) * weights.clamp_min(tiny).log()).sum()
