"""The gated recurrent unit (Cho et al. 2014, as in cuDNN) from its two projections.

    r = sigmoid(a_r + b_r)      z = sigmoid(a_z + b_z)      n = tanh(a_n + r * b_n)      h' = (1 - z) * n + z * h

where a = W_ih x + b_ih and b = W_hh h + b_hh, [N, 3H] each, in the order r, z, n.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.kernels.choice import product_type, widened
from nmt.kernels.packed import map_of


def plain_gru_cell(a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
    """The equations above as they stand: a, b [N, 3H], hidden [N, H]. Returns h' [N, H]."""
    a_r, a_z, a_n = a.chunk(3, dim=-1)
    b_r, b_z, b_n = b.chunk(3, dim=-1)
    r, z = torch.sigmoid(a_r + b_r), torch.sigmoid(a_z + b_z)
    n = torch.tanh(a_n + r * b_n)
    return (1 - z) * n + z * hidden


def gru_cell(a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
    """`plain_gru_cell` in fewer passes."""
    return _Cell.apply(widened(a), widened(b), widened(hidden))


def gru_sequence(a: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The states h_1..h_T [N, T, H] of a GRU whose inputs are projected already: a [N, T, 3H], hidden h_0 [N, H],
    weight W_hh [3H, H], bias b_hh [3H].

    W_hh is laid out once for all steps, and its gradient is one product over all of them.
    """
    return _Sequence.apply(widened(a), widened(hidden), weight, bias, product_type(weight))


def _gates(a: Tensor, b: Tensor, rz: Tensor, n: Tensor) -> None:
    """Write the gates r, z [N, 2H] and the candidate n [N, H]."""
    size = n.size(-1)
    torch.add(a[:, : 2 * size], b[:, : 2 * size], out=rz).sigmoid_()
    torch.addcmul(a[:, 2 * size :], rz[:, :size], b[:, 2 * size :], out=n).tanh_()


def _grad_gates(
    grad: Tensor, hidden: Tensor, rz: Tensor, n: Tensor, b_n: Tensor, grad_a: Tensor, grad_b: Tensor
) -> Tensor:
    """Write the gradients of a and b [N, 3H] from that of h' [N, H]; returns its direct part of h's [N, H]."""
    size = n.size(-1)
    r, z = rz.split(size, dim=-1)
    through_z = grad * z  # dh', times z
    grad_n = (grad - through_z).mul_(1 - n * n)  # before the tanh
    torch.mul(torch.mul(hidden - n, through_z), 1 - z, out=grad_a[:, size : 2 * size])
    torch.mul(torch.mul(grad_n, b_n), r - r * r, out=grad_a[:, :size])
    grad_a[:, 2 * size :] = grad_n
    grad_b[:, : 2 * size] = grad_a[:, : 2 * size]
    torch.mul(grad_n, r, out=grad_b[:, 2 * size :])
    return through_z


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
        size = hidden.size(-1)
        rz, n = hidden.new_empty(len(hidden), 2 * size), hidden.new_empty(len(hidden), size)
        _gates(a, b, rz, n)
        ctx.save_for_backward(rz, n, b[:, 2 * size :], hidden)
        return torch.lerp(n, hidden, rz[:, size:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rz, n, b_n, hidden = ctx.saved_tensors
        grad_a, grad_b = (grad.new_empty(len(n), 3 * n.size(-1)) for _ in range(2))
        grad_hidden = _grad_gates(grad, hidden, rz, n, b_n, grad_a, grad_b)
        return grad_a, grad_b, grad_hidden


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> Tensor:
        rows, steps, size = a.size(0), a.size(1), hidden.size(-1)
        # Steps first, so that each is one block of memory; what is returned is seen with its rows first.
        states = a.new_empty(steps + 1, rows, size)
        rz, n = a.new_empty(steps, rows, 2 * size), a.new_empty(steps, rows, size)
        b_n = a.new_empty(steps, rows, size)
        states[0] = hidden
        recur, bias = map_of(weight, dtype), bias.to(dtype)
        for t in range(steps):
            b = recur(states[t], bias)
            _gates(a[:, t], b, rz[t], n[t])
            torch.lerp(n[t], states[t], rz[t][:, size:], out=states[t + 1])
            b_n[t] = b[:, 2 * size :]
        ctx.save_for_backward(states, rz, n, b_n, weight)
        ctx.dtype = dtype
        return states[1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        states, rz, n, b_n, weight = ctx.saved_tensors
        steps, rows, size = n.shape
        grad_a, grad_b = grad.new_empty(steps, rows, 3 * size), grad.new_empty(steps, rows, 3 * size)
        grad_hidden = grad.new_zeros(rows, size)
        back = map_of(weight.t(), ctx.dtype)
        for t in reversed(range(steps)):
            grad_hidden = grad_hidden.add_(grad[:, t])
            direct = _grad_gates(grad_hidden, states[t], rz[t], n[t], b_n[t], grad_a[t], grad_b[t])
            grad_hidden = direct.add_(back(grad_b[t], None))
        flat = grad_b.view(-1, 3 * size)
        grad_weight = flat.t().to(ctx.dtype) @ states[:-1].reshape(-1, size).to(ctx.dtype)
        return grad_a.transpose(0, 1), grad_hidden, grad_weight.to(weight.dtype), flat.sum(dim=0), None
