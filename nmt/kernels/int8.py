"""Linear maps in bytes, for translation on a CPU: weights are rounded once, inputs at each call.

    y = W x + b   ≈   sw ∘ (Wq xq) sx + b        Wq = round(W / sw)        xq = round(x / sx)

Each output has a scale sw_o = max_i |W_oi| / 127, and each row of inputs a scale sx = max_i |x_i| / 127, on some CPUs
/ 63 (dynamic quantisation). So a row does not depend on other rows of its batch. Sums of products of bytes are exact.
Rounding costs at most half a scale per number of W and x.
"""

from functools import cache

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.kernels.gru import plain_gru_cell
from nmt.kernels.packed import round_up_rows

LEVELS = 127  # steps on either side of zero
LEAST = 2**17  # elements of the weight of a linear map: a smaller map takes longer in bytes


def quantise(module: nn.Module, *, leave: type[nn.Module]) -> None:
    """Replace every large `nn.Linear`, and every `nn.GRU` and `nn.LSTM` inside `module` by its form in bytes.

    Small linear maps, embeddings and modules of type `leave` stay. The module cannot be trained again. Raises
    UserError on any device but a CPU, and if torch lacks oneDNN.
    """
    assert not module.training, "bytes are for module.eval()"
    devices = {parameter.device.type for parameter in module.parameters()}
    if devices != {"cpu"}:
        raise UserError(
            f"int8=true is for the CPU, and the weights are on {', '.join(sorted(devices))}: "
            "give device=cpu, or int8=false"
        )
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")):
        raise UserError(
            "int8=true needs a torch that is built with oneDNN, and this one is not: give int8=false"
        )
    _replace(module, leave)


def _replace(module: nn.Module, leave: type[nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, leave):
            continue
        if isinstance(child, nn.Linear):
            if child.weight.numel() >= LEAST:
                setattr(module, name, Int8Linear(child.weight, child.bias))
        elif isinstance(child, nn.GRU):
            setattr(module, name, Int8GRU(child))
        elif isinstance(child, nn.LSTM):
            setattr(module, name, Int8LSTM(child))
        else:
            _replace(child, leave)


def scale_of(rows: Tensor, levels: int) -> Tensor:
    """`max_i |x_i| / levels` [N, 1] of rows [N, I]; a tiny number for a row of zeros."""
    return rows.abs().amax(dim=1, keepdim=True).clamp_min_(torch.finfo(rows.dtype).tiny) / levels


class Int8Linear(nn.Module):
    """`W x + b` for x [..., I], weight [O, I], bias [O] or None, in bytes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.levels = input_levels()
        scale = scale_of(weight.detach(), LEVELS)
        self.packed = _pack((weight.detach() / scale).round_().to(torch.int8))
        self.scale = scale.squeeze(1)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1))
        scale = scale_of(rows, self.levels)
        # A direct conversion to bytes is several times slower.
        rounded = (rows / scale).add_(self.levels + 1.5).to(torch.int16)
        inputs = rounded.new_empty(round_up_rows(len(rows)), rows.size(1), dtype=torch.uint8)
        inputs[: len(rows)] = rounded
        y = _product(inputs, self.packed, self.scale, self.levels + 1)[: len(rows)]
        if self.bias is None:
            y.mul_(scale)
        else:
            torch.addcmul(self.bias, y, scale, out=y)
        return y.view(*x.shape[:-1], -1)


def _pack(weight: Tensor) -> Tensor:
    """Lay out weight [O, I] of signed bytes for oneDNN."""
    return torch.ops.onednn.qlinear_prepack(weight, None)


def _product(x: Tensor, packed: Tensor, scale: Tensor, zero: int) -> Tensor:
    """`scale ∘ W (x - zero)` [N, O] for x [N, I] in unsigned bytes and scale [O].

    W is in signed bytes: products of unsigned and signed bytes are fast on all CPUs, others are not.
    """
    zeros = torch.zeros(len(scale), dtype=torch.long)  # zero points of the weights
    return torch.ops.onednn.qlinear_pointwise(
        *(x, 1.0, zero, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], "")
    )


@cache
def input_levels() -> int:
    """Steps on either side of zero for the inputs.

    Fewer if the sums of two products saturate at 16 bits on this machine (x86 before VNNI).
    """
    most = torch.full((8, 64), 2 * LEVELS + 1, dtype=torch.uint8)
    sums = _product(most, _pack(torch.full((16, 64), LEVELS, dtype=torch.int8)), torch.ones(16), LEVELS + 1)
    return LEVELS if bool((sums == 64 * LEVELS**2).all()) else LEVELS // 2


class _Int8Recurrence(nn.Module):
    """The two projections of a recurrent layer, in bytes."""

    def __init__(self, layer: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        weight_ih, weight_hh, bias_ih, bias_hh = layer.all_weights[0]
        self.input, self.recurrence = Int8Linear(weight_ih, bias_ih), Int8Linear(weight_hh, bias_hh)


class Int8GRU(_Int8Recurrence):
    """A layer of gated recurrent units over [N, T, I], with its two projections in bytes."""

    num_states = 1

    def run(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs [N, T, H] and the last state, from a first state of one tensor [N, H]."""
        [hidden] = state
        outputs = []
        for from_input in self.input(inputs).unbind(dim=1):
            hidden = plain_gru_cell(from_input, self.recurrence(hidden), hidden)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1), (hidden,)


class Int8LSTM(_Int8Recurrence):
    """A layer of long short-term memory over [N, T, I], with its two projections in bytes.

    `c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h' = sigmoid(o) * tanh(c')`, with i, f, g, o = W x + U h.
    """

    num_states = 2

    def run(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs [N, T, H] and the last state, from a first state of two tensors [N, H]."""
        hidden, cell = state
        outputs = []
        for from_input in self.input(inputs).unbind(dim=1):
            i, f, g, o = (from_input + self.recurrence(hidden)).chunk(4, dim=-1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1), (hidden, cell)
