"""Products in float32 by oneDNN, on processors that MKL, torch's usual library, serves badly.

MKL has no AVX-512 kernels for AMD's processors. There oneDNN, which torch has too, is about twice as fast.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmt.kernels.choice import fast

LEAST = 2**21  # multiplications: below this, starting oneDNN costs what it saves


def available() -> bool:
    """True if torch has oneDNN, it is switched on, and has the function that is called here."""
    backend: Any = torch.backends.mkldnn  # oneDNN's earlier name
    return backend.is_available() and backend.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def is_faster() -> bool:
    """True on an AMD processor with AVX-512."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    is_amd = str(capabilities.get("cpu_name", "")).startswith("AMD")
    return is_amd and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b` for x [..., I], weight [O, I] and bias [O] or None: `F.linear`, by the faster library."""
    if not _serves(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))
    y: Tensor = _Linear.apply(rows, weight, bias) if torch.is_grad_enabled() else multiply(rows, weight, bias)
    return y.view(*x.shape[:-1], -1)


def multiply_each(x: Tensor, weights: Tensor) -> Tensor:
    """`x_n W_n^T` [N, R, O] for x [N, R, I] and weights [N, O, I], by the faster library, without gradient."""
    if not _serves(x[0], weights[0]):
        return x @ weights.transpose(-2, -1)
    return torch.stack([multiply(*pair) for pair in zip(x, weights, strict=True)])


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient `sum_n g_n x_n^T` [O, I] of W in `x W^T`, for g [N, O] and x [N, I], by the faster library."""
    return _weight_gradient(grad, x) if _serves(x, grad.t()) else grad.t() @ x


def add_weight_gradient(total: Tensor, grad: Tensor, x: Tensor) -> None:
    """Add `weight_gradient(grad, x)` to `total`."""
    if _serves(x, grad.t()):
        total.add_(_weight_gradient(grad, x))
    else:
        total.addmm_(grad.t(), x)


def _serves(x: Tensor, weight: Tensor) -> bool:
    """True if the product of x [N, I] and weight [O, I] should be oneDNN's."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and x.numel() * len(weight) >= LEAST
        and fast(x)
        and is_faster()
        and available()
        and not torch.is_autocast_enabled("cpu")
    )


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b` [N, O] of x [N, I] and weight [O, I] by oneDNN, without gradient."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    # Of the two, the first is copied row by row, so it is the smaller one.
    return multiply(grad.t(), x.t()) if grad.size(1) < x.size(1) else multiply(x.t(), grad.t()).t()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            multiply(grad, weight.t()) if needs_x else None,
            _weight_gradient(grad, x) if needs_weight else None,
            grad.sum(dim=0) if needs_bias else None,
        )
