"""The gated recurrent unit (Cho et al. 2014, as in cuDNN) from its two projections.

    r = sigmoid(a_r + b_r)      z = sigmoid(a_z + b_z)      n = tanh(a_n + r * b_n)      h' = (1 - z) * n + z * h

with a = W_ih x + b_ih and b = W_hh h + b_hh, both [N, 3H] in the order r, z, n.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.kernels.choice import product_type, promote
from nmt.kernels.onednn import weight_gradient
from nmt.kernels.packed import map_of

_ROWS = 512  # rows of all steps per call of `_slopes`: few calls for few rows, within the cache for many


def plain_gru_cell(a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
    """The equations above for a, b [N, 3H] and hidden [N, H]. Returns h' [N, H]."""
    a_r, a_z, a_n = a.chunk(3, dim=-1)
    b_r, b_z, b_n = b.chunk(3, dim=-1)
    r, z = torch.sigmoid(a_r + b_r), torch.sigmoid(a_z + b_z)
    n = torch.tanh(a_n + r * b_n)
    return (1 - z) * n + z * hidden


def gru_cell(a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
    """`plain_gru_cell` in fewer passes over memory."""
    wide = promote(a), promote(b), promote(hidden)
    if not a.is_cuda:
        return _Cell.apply(*wide)
    with torch.autocast("cuda", enabled=False):
        # the kernel of nn.GRUCell, with a single kernel for the gradients
        after, _ = torch.ops.aten._thnn_fused_gru_cell(*wide)
    return after


def gru_sequence(a: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The states h_1..h_T [N, T, H] of a GRU with projected inputs a [N, T, 3H].

    hidden: h_0 [N, H]; weight: W_hh [3H, H]; bias: b_hh [3H]. W_hh is laid out once for all steps, and its gradient
    is a single product over all of them.
    """
    return _Sequence.apply(promote(a), promote(hidden), weight, bias, product_type(weight))


def _slopes(hidden: Tensor, rz: Tensor, n: Tensor, b_n: Tensor) -> tuple[Tensor, Tensor]:
    """The factors of dh' in the gradients of a_n [..., H] and of the three parts of b [..., 3, H]."""
    r, z = rz.chunk(2, dim=-1)
    of_a_n = (1 - z) * (1 - n * n)
    of_b = n.new_empty(*n.shape[:-1], 3, n.size(-1))
    torch.mul(of_a_n, r, out=of_b[..., 2, :])
    torch.mul(of_b[..., 2, :] * b_n, 1 - r, out=of_b[..., 0, :])
    torch.mul(hidden - n, z - z * z, out=of_b[..., 1, :])
    return of_a_n, of_b


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, hidden: Tensor) -> Tensor:
        size = hidden.size(-1)
        rz = torch.add(a[:, : 2 * size], b[:, : 2 * size]).sigmoid_()
        n = torch.addcmul(a[:, 2 * size :], rz[:, :size], b[:, 2 * size :]).tanh_()
        ctx.save_for_backward(rz, n, b[:, 2 * size :], hidden)
        return torch.lerp(n, hidden, rz[:, size:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rz, n, b_n, hidden = ctx.saved_tensors
        of_a_n, of_b = _slopes(hidden, rz, n, b_n)
        grad_b = (grad.unsqueeze(1) * of_b).flatten(1)
        size = n.size(-1)
        grad_a = torch.cat((grad_b[:, : 2 * size], grad * of_a_n), dim=1)
        return grad_a, grad_b, grad * rz[:, size:]


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> Tensor:
        rows, steps, size = a.size(0), a.size(1), hidden.size(-1)
        # Steps come first, so that a step is a block of memory; the result is a view with rows first.
        states = a.new_empty(steps + 1, rows, size)
        rz, n = a.new_empty(steps, rows, 2 * size), a.new_empty(steps, rows, size)
        b_n = a.new_empty(steps, rows, size)
        states[0] = hidden
        recur, bias = map_of(weight, dtype), bias.to(dtype)
        a_rz, a_n = a.transpose(0, 1).split((2 * size, size), dim=-1)
        r, z = rz.split(size, dim=-1)
        # Make the views of all steps at once: with few rows, step by step would take longer than the rest.
        views = (each.unbind() for each in (a_rz, a_n, rz, r, z, n, b_n, states[:-1], states[1:]))
        for a_rz_t, a_n_t, rz_t, r_t, z_t, n_t, b_n_t, state, new_state in zip(*views, strict=True):
            b_rz_t, own_b_n = recur(state, bias).split((2 * size, size), dim=-1)
            torch.add(a_rz_t, b_rz_t, out=rz_t).sigmoid_()
            torch.addcmul(a_n_t, r_t, own_b_n, out=n_t).tanh_()
            torch.lerp(n_t, state, z_t, out=new_state)
            b_n_t.copy_(own_b_n)
        ctx.save_for_backward(states, rz, n, b_n, weight)
        ctx.dtype = dtype
        return states[1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        states, rz, n, b_n, weight = ctx.saved_tensors
        steps, rows, size = n.shape
        grad_a, grad_b = grad.new_empty(steps, rows, 3 * size), grad.new_empty(steps, rows, 3, size)
        grad_hidden = grad.new_zeros(rows, size)
        back = map_of(weight.t(), ctx.dtype)
        grads, z, grad_a_n = grad.transpose(0, 1), rz[..., size:], grad_a[..., 2 * size :]
        at_once = max(1, _ROWS // rows)
        for end in range(steps, 0, -at_once):
            part = slice(max(0, end - at_once), end)
            of_a_n, of_b = _slopes(states[part], rz[part], n[part], b_n[part])
            parts = (grads[part], z[part], grad_a_n[part], grad_b[part], of_a_n, of_b)
            views = list(zip(*(each.unbind() for each in parts), strict=True))
            for grad_t, z_t, grad_a_n_t, grad_b_t, of_a_n_t, of_b_t in reversed(views):
                grad_hidden = grad_hidden + grad_t
                torch.mul(grad_hidden, of_a_n_t, out=grad_a_n_t)
                torch.mul(grad_hidden.unsqueeze(1), of_b_t, out=grad_b_t)
                grad_hidden = torch.addcmul(back(grad_b_t.flatten(1), None), grad_hidden, z_t)
        flat = grad_b.view(-1, 3 * size)
        grad_a.view(-1, 3 * size)[:, : 2 * size] = flat[:, : 2 * size]
        grad_weight = weight_gradient(flat.to(ctx.dtype), states[:-1].reshape(-1, size).to(ctx.dtype))
        return grad_a.transpose(0, 1), grad_hidden, grad_weight.to(weight.dtype), flat.sum(dim=0), None
