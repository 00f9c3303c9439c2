"""Output layer and loss as one function, computed for a few rows at a time, with its gradient."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.kernels import onednn
from nmt.kernels.choice import product_type, promote
from nmt.kernels.packed import map_of

ROWS = 512  # rows of each pass with logits in memory at a time
LOGITS = 2**25  # logits in memory at a time on a GPU, which is faster with large products
MANY_ROWS = 1024  # from this number on, it pays to lay the weight out once for all parts


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    counted: Tensor | None = None,
    *,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Label-smoothed and plain cross-entropy of `features W^T + b` against targets: two sums, in nats.

        sum_i (1-e) * -log p_i(y_i) + e * mean_v -log p_i(v)        sum_i -log p_i(y_i)        p_i = softmax(W r_i + b)

    features [N, R], weight [V, R], bias [V], targets [N]; counted [N]: True for rows of the sums, None for all rows.
    Only the first sum has a gradient. The forward pass computes it too, some rows at a time:

        d/d logits_i = p_i - (1-e) onehot(y_i) - e/V
    """
    return _loss(features.unsqueeze(0), weight, bias, counted, targets, label_smoothing, alpha=0.0)


def linear_r_drop(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    counted: Tensor | None = None,
    *,
    label_smoothing: float,
    alpha: float,
) -> tuple[Tensor, Tensor]:
    """Loss of R-Drop and mean of plain cross-entropies, for the logits `features W^T + b` of two passes.

    Returns two sums, in nats (see `nmt.training.losses.r_drop`). features [2, N, R] by pass, weight [V, R], bias [V],
    targets [N], counted [N] as above. Only the first sum has a gradient. The forward pass computes it too, `ROWS`
    rows of both passes at a time. With the distributions p and q of the passes and `d = log p - log q`, the gradient
    by the logits of p is

        1/2 (p - (1-e) onehot(y) - e/V) + alpha/4 (p * (d - sum_v p_v d_v) + p - q)

    and by the logits of q the same with p and q exchanged.
    """
    return _loss(features, weight, bias, counted, targets, label_smoothing, alpha=alpha)


def _loss(
    features: Tensor, weight: Tensor, bias: Tensor, counted: Tensor | None, *rest: Any, alpha: float
) -> tuple[Tensor, Tensor]:
    features = promote(features)
    if counted is not None:  # other rows and their gradients become zeros
        counted = counted.to(features.dtype)
        features = features * counted.unsqueeze(1)
    inputs = (features, weight, bias)
    learning = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
    return _LinearLoss.apply(*inputs, counted, *rest, alpha, learning, product_type(weight))


def _total(rows: Tensor, counted: Tensor | None) -> Tensor:
    """The sum over rows [C, …], weighted by `counted` [C]; None counts all rows."""
    if counted is None:
        return rows.sum(dim=0)
    with torch.autocast(rows.device.type, enabled=False):
        return counted @ rows


def _rows_at_once(features: Tensor, vocab_size: int) -> int:
    """How many rows of each pass of features [P, N, R] have logits at once."""
    return ROWS if features.is_cpu else max(ROWS, LOGITS // (len(features) * vocab_size))


def _smooth_evenly(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_logits: int | Tensor,
    label_smoothing: float,
    grad_features: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
) -> Tensor:
    """Subtract the part of smoothing that is equal for all pieces from the gradients; return its part of the loss.

    num_logits: the number of logits per piece.
    """
    even = label_smoothing / len(weight)
    feature_sum, weight_sum = features.sum(dim=(0, 1)), weight.sum(dim=0)
    grad_features.sub_(weight_sum, alpha=even)
    grad_weight.sub_(feature_sum, alpha=even)
    grad_bias.sub_(even * num_logits)
    return ((feature_sum * weight_sum).sum() + bias.sum() * num_logits) / len(weight)


def _add_divergence(slope: Tensor, difference: Tensor, own: Tensor, alpha: float) -> None:
    """Add R-Drop's part to the gradient by the logits, in place. slope: the probabilities [2C, V] of both passes.

    difference: log p - log q [2C, V], overwritten; own: its mean under p [2C, 1].
    """
    other = slope.roll(len(slope) // 2, dims=0)
    slope.add_(difference.sub_(own).mul_(slope).add_(slope).sub_(other), alpha=alpha / 2)


class _LinearLoss(torch.autograd.Function):
    """The mean of the cross-entropies of passes [P, N, R], and if `alpha` > 0 the divergences of two passes.

    Gradients are kept for the sum over passes. Smoothing adds the same gradient to every piece, so it is added to the
    sums. Rows that do not count are zeros, and their gradients do not matter.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        counted: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        alpha: float,
        learning: bool,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        (num_passes, num_rows, _), vocab_size = features.shape, weight.size(0)
        grad_features = torch.empty_like(features)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        nll, spread, divergence = (features.new_zeros(()) for _ in range(3))
        narrow = dtype != weight.dtype
        ahead = back = None
        if narrow or num_passes * num_rows >= MANY_ROWS or (features.is_cpu and onednn.is_faster()):
            ahead, back = map_of(weight, dtype), map_of(weight.t(), dtype) if learning else None
        at_once = _rows_at_once(features, vocab_size)
        buffers = features.new_empty(2, num_passes * min(at_once, num_rows), vocab_size)
        for start in range(0, num_rows, at_once):
            answers = targets[start : start + at_once]
            rows = features[:, start : start + at_once].flatten(0, 1)  # [C, R], [2C, R] of two passes
            scratch, probs = buffers[:, : len(rows)]
            if ahead is None:
                logits = torch.addmm(bias, rows, weight.t(), out=scratch)
            else:
                logits = ahead(rows, bias)
            torch.softmax(logits, dim=1, dtype=probs.dtype, out=probs)
            # log sum_v exp(logit_v), from the likeliest piece: cheaper than a second pass of exponentials
            normalizers = logits.amax(dim=1) - probs.amax(dim=1).log()
            counts = None if counted is None else counted[start : start + at_once].repeat(num_passes)
            places = answers.repeat(num_passes).unsqueeze(1)
            nll += _total(normalizers - logits.gather(1, places).squeeze(1), counts)
            if label_smoothing:
                spread += _total(normalizers, counts)
            if alpha:
                log_probs = torch.sub(logits, normalizers.unsqueeze(1), out=scratch)
                difference = torch.sub(log_probs, log_probs.roll(len(answers), dims=0), out=scratch)
                own = (probs * difference).sum(dim=1, keepdim=True)  # KL(p|q), then KL(q|p)
                divergence += _total(own.squeeze(1), counts)
            if not learning:
                continue
            slope = probs  # becomes the gradient of the loss by the logits
            if alpha:
                _add_divergence(slope, difference, own, alpha)
            slope.scatter_add_(1, places, slope.new_full(places.shape, label_smoothing - 1))
            grad_bias += _total(slope, counts)
            slope = slope.to(dtype)
            grad_rows = torch.mm(slope, weight) if back is None else back(slope, None)
            grad_features[:, start : start + at_once] = grad_rows.unflatten(0, (num_passes, -1))
            if narrow:
                grad_weight += slope.t() @ rows.to(dtype)
            else:
                onednn.add_weight_gradient(grad_weight, slope, rows)
        if label_smoothing:
            grads = (grad_features, grad_weight, grad_bias)
            num_logits = num_passes * (num_rows if counted is None else counted.sum())
            spread -= _smooth_evenly(features, weight, bias, num_logits, label_smoothing, *grads)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.num_passes = num_passes
        nll /= num_passes
        ctx.mark_non_differentiable(nll)
        smoothed = (1 - label_smoothing) * nll + label_smoothing / num_passes * spread
        return smoothed + alpha / 4 * divergence, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        grad = grad / ctx.num_passes
        return *(grad * each for each in ctx.saved_tensors), *[None] * 6
