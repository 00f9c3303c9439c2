"""Products with a matrix that every step of a recurrence shares, and their gradients as one product.

A recurrence of T steps multiplies by the same weight T times, `y_t = x_t W`. By autograd alone each step writes
a gradient of W's size, and adds it to the last: T products of few rows, T passes over the whole of it. Inside
`gradients_at_once` the steps keep their x_t and dy_t instead, and

    dW = sum_t x_t^T dy_t = [x_1; ...; x_T]^T [dy_1; ...; dy_T]

is one product, once the last step's gradient is there. The same holds for what a sentence's steps share, its
keys and values [B, S, K].
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class _Gathered:
    """What the steps leave for the gradient of one shared tensor: their inputs and their outputs' gradients."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.grads: list[Tensor] = []

    def take(self) -> tuple[Tensor, Tensor]:
        """Both, [..., T, I] and [..., T, O] over all steps; nothing is kept."""
        joined = torch.cat(self.inputs, dim=-2), torch.cat(self.grads, dim=-2)
        self.inputs, self.grads = [], []
        return joined


# The shared tensors met so far in the block: by their identity and how they are used, the tensor (kept, so that no
# other takes its identity), what its steps gather, and the token that ties each step to the node which takes the
# gradient.
_Pool = dict[tuple[int, bool], tuple[Tensor, _Gathered, Tensor]]
_pool: ContextVar[_Pool | None] = ContextVar("pool", default=None)


@contextmanager
def gradients_at_once(active: bool = True) -> Iterator[None]:
    """Inside the block, `linear` and `product` compute the gradient of what they share once, for all calls."""
    token = _pool.set({} if active and torch.is_grad_enabled() else None)
    try:
        yield
    finally:
        _pool.reset(token)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b`, for x [N, I] or [B, T, I], weight [O, I]."""
    if not _at_once(weight):
        return F.linear(x, weight, bias)
    return _step(x.reshape(-1, x.size(-1)), weight, bias, transposed=True).view(*x.shape[:-1], -1)


def product(x: Tensor, shared: Tensor, *, transposed: bool = False) -> Tensor:
    """`x M`, or `x M^T` where `transposed`: x [..., T, I], and M [..., I, O] (or [..., O, I]) of the same leading
    dimensions."""
    if not _at_once(shared):
        return x @ (shared.transpose(-2, -1) if transposed else shared)
    return _step(x, shared, None, transposed=transposed)


def _at_once(shared: Tensor) -> bool:
    return _pool.get() is not None and shared.requires_grad


def _step(x: Tensor, shared: Tensor, bias: Tensor | None, *, transposed: bool) -> Tensor:
    pool = _pool.get()
    assert pool is not None
    key = (id(shared), transposed)
    if key not in pool:
        gathered = _Gathered()
        pool[key] = (shared, gathered, _Shared.apply(shared, bias, transposed, gathered))
    _, gathered, token = pool[key]
    return _Step.apply(
        x, token, shared.detach(), None if bias is None else bias.detach(), transposed, gathered
    )


class Linear(nn.Linear):
    """`nn.Linear` by `linear` above: for the maps that a step of a recurrence applies."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class _Shared(torch.autograd.Function):
    """The node that all steps depend on, so that its gradient is asked for after all of theirs."""

    @staticmethod
    def forward(
        ctx: Any, shared: Tensor, bias: Tensor | None, transposed: bool, gathered: _Gathered
    ) -> Tensor:
        ctx.has_bias, ctx.transposed, ctx.gathered = bias is not None, transposed, gathered
        return shared.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        inputs, grads = ctx.gathered.take()
        left, right = (grads, inputs) if ctx.transposed else (inputs, grads)
        return left.transpose(-2, -1) @ right, grads.sum(dim=0) if ctx.has_bias else None, None, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        token: Tensor,
        shared: Tensor,
        bias: Tensor | None,
        transposed: bool,
        gathered: _Gathered,
    ) -> Tensor:
        ctx.save_for_backward(x, shared)
        ctx.transposed, ctx.gathered = transposed, gathered
        matrix = shared.transpose(-2, -1) if transposed else shared
        return x @ matrix if bias is None else torch.addmm(bias, x, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None, None, None]:
        x, shared = ctx.saved_tensors
        ctx.gathered.inputs.append(x)
        ctx.gathered.grads.append(grad)
        back = None
        if ctx.needs_input_grad[0]:
            back = grad @ (shared if ctx.transposed else shared.transpose(-2, -1))
        return back, grad.new_zeros(()), None, None, None, None
