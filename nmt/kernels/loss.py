"""The output layer and its losses in one."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.kernels.packed import Map, map_of

ROWS = 512  # of logits that exist at once
MANY_ROWS = 1024  # from which on it pays to lay the weight out for the products of all parts


def linear_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """Label-smoothed cross-entropy of `features W^T + b` against targets, and the plain one: two sums, in nats.

        sum_i (1-e) * -log p_i(y_i) + e * mean_v -log p_i(v)        sum_i -log p_i(y_i)        p_i = softmax(W r_i + b)

    features [N, R], weight [V, R], bias [V], targets [N], none of them padding. Only the first has a gradient,
    which the forward pass computes beside it, `ROWS` rows at a time:

        d/d logits_i = p_i - (1-e) onehot(y_i) - e/V

    of which the last part, the same for every piece, is left out of the rows and added to the sums.
    """
    learning = torch.is_grad_enabled() and any(each.requires_grad for each in (features, weight, bias))
    return _LinearCrossEntropy.apply(features, weight, bias, targets, label_smoothing, learning)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        label_smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        num_rows, vocab_size = features.size(0), weight.size(0)
        grad_features = torch.empty_like(features)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        nll, spread = features.new_zeros(()), features.new_zeros(())
        ahead, back = _maps(weight, num_rows)
        buffers = features.new_empty(2, min(ROWS, num_rows), vocab_size)
        for start in range(0, num_rows, ROWS):
            rows, answers = features[start : start + ROWS], targets[start : start + ROWS].unsqueeze(1)
            logits, log_probs = buffers[:, : len(rows)]
            if ahead is None:
                torch.addmm(bias, rows, weight.t(), out=logits)
            else:
                logits = ahead(rows, bias)
            torch.log_softmax(logits, dim=1, out=log_probs)
            nll -= log_probs.gather(1, answers).sum()
            if label_smoothing:
                spread += (logits[:, 0] - log_probs[:, 0]).sum()  # of the logarithms of the norms
            if not learning:
                continue
            slope = log_probs.exp_()
            slope.scatter_add_(1, answers, slope.new_full(answers.shape, label_smoothing - 1))
            grad_features[start : start + ROWS] = slope @ weight if back is None else back(slope, None)
            grad_weight.addmm_(slope.t(), rows)
            grad_bias += slope.sum(dim=0)
        if label_smoothing:
            feature_sum, weight_sum = features.sum(dim=0), weight.sum(dim=0)
            spread -= (
                (feature_sum * weight_sum).sum() + bias.sum() * num_rows
            ) / vocab_size  # of the mean logits
            even = label_smoothing / vocab_size
            grad_features.sub_(weight_sum, alpha=even)
            grad_weight.sub_(feature_sum, alpha=even)
            grad_bias.sub_(even * num_rows)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return (1 - label_smoothing) * nll + label_smoothing * spread, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        grad_features, grad_weight, grad_bias = ctx.saved_tensors
        return grad * grad_features, grad * grad_weight, grad * grad_bias, None, None, None


def linear_r_drop(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, label_smoothing: float, alpha: float
) -> tuple[Tensor, Tensor]:
    """R-Drop's loss (`nmt.losses.r_drop`) of the logits `features W^T + b` of two passes, and the mean of their plain
    cross-entropies: two sums, in nats.

    features [2, N, R], one pass after the other, weight [V, R], bias [V], targets [N], none of them padding. Only
    the first has a gradient, which the forward pass computes beside it, `ROWS` rows of either pass at a time. With
    the passes' distributions p and q and `d = log p - log q`, by p's logits it is

        1/2 (p - (1-e) onehot(y) - e/V) + alpha/4 (p * (d - sum_v p_v d_v) + p - q)

    and by q's the same with p and q exchanged.
    """
    learning = torch.is_grad_enabled() and any(each.requires_grad for each in (features, weight, bias))
    return _LinearRDrop.apply(features, weight, bias, targets, label_smoothing, alpha, learning)


class _LinearRDrop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        label_smoothing: float,
        alpha: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        num_rows, vocab_size = features.size(1), weight.size(0)
        grad_features = torch.empty_like(features)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        loss, nll = features.new_zeros(()), features.new_zeros(())
        ahead, back = _maps(weight, 2 * num_rows)
        for start in range(0, num_rows, ROWS):
            rows = features[:, start : start + ROWS].flatten(0, 1)  # [2C, R]: p's rows, then q's
            answers = targets[start : start + ROWS].repeat(2).unsqueeze(1)
            logits = torch.addmm(bias, rows, weight.t()) if ahead is None else ahead(rows, bias)
            log_probs = torch.log_softmax(logits, dim=1)  # [2C, V]
            probs = log_probs.exp()
            difference = log_probs[: len(rows) // 2] - log_probs[len(rows) // 2 :]
            difference = torch.cat((difference, -difference))
            divergence = (probs * difference).sum(dim=1, keepdim=True)  # KL(p|q), then KL(q|p)
            part = -log_probs.gather(1, answers).sum() / 2
            nll += part
            loss += (1 - label_smoothing) * part + alpha / 4 * divergence.sum()
            if label_smoothing:
                loss -= label_smoothing / (2 * vocab_size) * log_probs.sum()
            if not learning:
                continue
            slope = difference.sub_(divergence).mul_(probs).add_(probs)
            slope.sub_(probs.roll(len(rows) // 2, dims=0)).mul_(alpha / 4)  # of the divergences
            slope.add_(probs, alpha=0.5)
            if label_smoothing:
                slope.sub_(label_smoothing / (2 * vocab_size))
            slope.scatter_add_(1, answers, slope.new_full(answers.shape, (label_smoothing - 1) / 2))
            grad_rows = slope @ weight if back is None else back(slope, None)
            grad_features[:, start : start + ROWS] = grad_rows.unflatten(0, (2, -1))
            grad_weight.addmm_(slope.t(), rows)
            grad_bias += slope.sum(dim=0)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        grad_features, grad_weight, grad_bias = ctx.saved_tensors
        return grad * grad_features, grad * grad_weight, grad * grad_bias, None, None, None, None


def _maps(weight: Tensor, num_rows: int) -> tuple[Map | None, Map | None]:
    """`x W^T + b` and `dy W` for `num_rows` rows in parts, with W laid out; None where that does not pay."""
    if num_rows < MANY_ROWS:
        return None, None
    return map_of(weight), map_of(weight.t())
