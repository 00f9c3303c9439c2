"""Products with a matrix that all steps of a recurrence share, and their gradients as a single product.

A recurrence multiplies T times by the same weight, `y_t = x_t W`. Autograd writes a gradient of W's size in each step
and adds it to the sum: T products of few rows, T passes over all of W. Inside `gradients_at_once` the steps keep
their x_t and dy_t instead, and

    dW = sum_t x_t^T dy_t = [x_1; ...; x_T]^T [dy_1; ...; dy_T]

is a single product after the gradients of all steps. The same holds for keys and values [B, S, K], which the steps of
a sentence share. The weight is copied once for all steps (`nmt.kernels.packed`), and once more for their gradients.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.kernels.choice import product_type, promote
from nmt.kernels.onednn import affine, weight_gradient
from nmt.kernels.packed import Map, map_of, pooled_map, same


class _Gathered:
    """The steps of a recurrence that share a tensor and a bias (or none).

    Holds the tensor [..., I, O], or [..., O, I] if `transposed`; the maps that multiply by it; and, for its gradient,
    the inputs of the steps and the gradients of their outputs.
    """

    def __init__(self, shared: Tensor, transposed: bool) -> None:
        self.inputs: list[Tensor] = []
        self.grads: list[Tensor] = []
        self._pass = -1  # the backward pass that inputs and grads belong to
        self.dtype = product_type(shared)
        self._rows = shared.detach() if transposed else shared.detach().transpose(-2, -1)  # [..., O, I]

    @cached_property
    def ahead(self) -> Map:
        """`x M + b` [..., T, O] of x [..., T, I]."""
        return _map(self._rows, self.dtype)

    @cached_property
    def back(self) -> Map:
        """`dy M^T` [..., T, I] of dy [..., T, O]."""
        return _map(self._rows.transpose(-2, -1), self.dtype)

    def add(self, x: Tensor, grad: Tensor) -> None:
        """Keep the input of a step and the gradient of its output.

        Entries of an earlier pass are dropped first: they are left over if that pass asked for no gradient of the
        tensor.
        """
        this_pass = torch._C._current_graph_task_id()
        if this_pass != self._pass:
            self.inputs, self.grads, self._pass = [], [], this_pass
        self.inputs.append(x)
        self.grads.append(grad)

    def forget(self) -> None:
        """Free the laid-out copies, which are made again if needed.

        The graph keeps this object, and with gradient checkpointing there is an object for each segment of a target.
        """
        for laid_out in ("ahead", "back"):
            self.__dict__.pop(laid_out, None)

    def take(self) -> tuple[Tensor, Tensor]:
        """The inputs [..., T, I] and gradients [..., T, O] of all steps; both lists are emptied."""
        joined = torch.cat(self.inputs, dim=-2), torch.cat(self.grads, dim=-2)
        self.inputs, self.grads = [], []
        return joined


def _map(rows: Tensor, dtype: torch.dtype) -> Map:
    """`x W^T` for W [O, I], or for a W per sentence [B, O, I], which has no bias."""
    if rows.dim() == 2:
        return map_of(rows, dtype)
    columns = rows.to(dtype).transpose(-2, -1)
    return lambda x, _: x.to(dtype) @ columns


# For each shared tensor used in the block, by its key and use: the tensor and its bias, so that their memory is not
# reused; the data that its steps share; and the token that connects each step to the node that takes the gradient.
_Pool = dict[Hashable, tuple[Any, _Gathered, Tensor]]
_pool: ContextVar[_Pool | None] = ContextVar("pool", default=None)


@contextmanager
def gradients_at_once(active: bool = True) -> Iterator[None]:
    """Inside the block, `fast_linear` and `product` compute the gradient of a shared tensor once for all calls."""
    pool: _Pool | None = {} if active and torch.is_grad_enabled() else None
    token = _pool.set(pool)
    try:
        yield
    finally:
        _pool.reset(token)
        for _, gathered, _ in (pool or {}).values():
            gathered.forget()


def fast_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b` for x [N, I] or [B, T, I] and weight [O, I]."""
    if not _at_once(weight):
        packed = pooled_map(weight, x.numel() // x.size(-1))
        return affine(x, weight, bias) if packed is None else packed(x, bias)
    return _step(x.reshape(-1, x.size(-1)), weight, bias, transposed=True).view(*x.shape[:-1], -1)


def product(x: Tensor, shared: Tensor, *, transposed: bool = False) -> Tensor:
    """`x M` for x [..., T, I] and M [..., I, O], or with `transposed` `x M^T` for M [..., O, I].

    x and M have the same leading dimensions.
    """
    if not _at_once(shared):
        return x @ (shared.transpose(-2, -1) if transposed else shared)
    return _step(x, shared, None, transposed=transposed)


def _at_once(shared: Tensor) -> bool:
    return _pool.get() is not None and shared.requires_grad


def _step(x: Tensor, shared: Tensor, bias: Tensor | None, *, transposed: bool) -> Tensor:
    pool = _pool.get()
    assert pool is not None
    key = (same(shared), None if bias is None else same(bias), transposed)
    if key not in pool:
        gathered = _Gathered(shared, transposed)
        token = _Shared.apply(shared, bias, transposed, gathered)
        pool[key] = ((shared, bias), gathered, token)
    _, gathered, token = pool[key]
    return _Step.apply(x, token, shared.detach(), None if bias is None else bias.detach(), gathered)


class Linear(nn.Linear):
    """`nn.Linear` by `fast_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return fast_linear(x, self.weight, self.bias)


class _Shared(torch.autograd.Function):
    """The node that all steps depend on, so that its gradient is computed after theirs."""

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
        ctx.gathered.forget()
        left, right = (grads, inputs) if ctx.transposed else (inputs, grads)
        # In the type of the products; autograd converts it to that of the tensors.
        of_shared = weight_gradient(left, right) if left.dim() == 2 else left.transpose(-2, -1) @ right
        return of_shared, grads.sum(dim=0) if ctx.has_bias else None, None, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        token: Tensor,
        shared: Tensor,
        bias: Tensor | None,
        gathered: _Gathered,
    ) -> Tensor:
        x = x.to(gathered.dtype)
        ctx.save_for_backward(x, shared)  # shared: so that changing it before the gradient is an error
        ctx.gathered = gathered
        return promote(gathered.ahead(x, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        x, _ = ctx.saved_tensors
        grad = grad.to(x.dtype)
        ctx.gathered.add(x, grad)
        back = ctx.gathered.back(grad, None) if ctx.needs_input_grad[0] else None
        return back, grad.new_zeros(()), None, None, None
