"""Recurrent layers, and stacks of layers. A state is a tuple of tensors [N, L, H]: (h,) of a GRU, (h, c) of an LSTM."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.layers.dropout import Dropout
from nmt.layers.initialisation import glorot_, initialise_linear, orthogonal_

State = tuple[Tensor, ...]


def initialise_gates(layer: nn.RNNBase, *, gates: int) -> None:
    """Initialise the gates of a layer separately: input maps by `glorot_`, recurrent maps orthogonal, biases 0."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_ih"):
            glorot_(parameter, parts=gates)
        elif name.startswith("weight_hh"):
            orthogonal_(parameter, parts=gates)
        else:
            nn.init.zeros_(parameter)


class GRULayer(nn.GRU):
    """A gated recurrent layer (Cho et al. 2014, as in cuDNN) over [N, T, input_size]."""

    num_states = 1

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        initialise_gates(self, gates=3)

    def run(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [N, T, H] and the last state, from a first state of tensors [N, H]."""
        hidden = state[0]
        if not kernels.fast(inputs) or not (inputs.is_cpu or inputs.size(1) == 1):
            return _sequence(self, inputs, state)
        weight_ih, weight_hh, bias_ih, bias_hh = self.all_weights[0]
        if inputs.size(1) == 1:
            from_input = kernels.fast_linear(inputs.squeeze(1), weight_ih, bias_ih)
            last = kernels.gru_cell(from_input, kernels.fast_linear(hidden, weight_hh, bias_hh), hidden)
            return last.unsqueeze(1), (last,)
        outputs = kernels.gru_sequence(kernels.affine(inputs, weight_ih, bias_ih), hidden, weight_hh, bias_hh)
        return outputs, (outputs[:, -1],)


class LayerNormGRULayer(nn.Module):
    """A gated recurrent layer with layer normalisation inside the recurrence (Ba et al. 2016, appendix), [N, T, I].

        r, z = sigmoid(LN(W_rz x) + LN(U_rz h))      n = tanh(LN(W_n x) + r * LN(U_n h))      h' = (1 - z) n + z h

    Each LN has a gain and a bias, which replace the biases of the maps. The LN of r and z is over both together, as
    in the paper. The steps are a Python loop on every device.
    """

    num_states = 1
    stacked_maps: ClassVar = {"from_input.weight": 3, "from_hidden.weight": 3}  # a map per gate

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.from_input = nn.Linear(input_size, 3 * hidden_size, bias=False)  # W, in the order r, z, n
        self.from_hidden = kernels.Linear(hidden_size, 3 * hidden_size, bias=False)  # U
        self.input_norms, self.hidden_norms = (
            nn.ModuleList(nn.LayerNorm(size) for size in (2 * hidden_size, hidden_size)) for _ in range(2)
        )

    def run(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [N, T, H] and the last state, from a first state of tensors [N, H]."""
        hidden = state[0]
        cell = kernels.gru_cell if kernels.fast(inputs) else kernels.plain_gru_cell
        outputs = []
        # For a single step, the decoder has opened this block around all its steps.
        several = inputs.size(1) > 1
        with kernels.gradients_at_once(active=kernels.fast(inputs)) if several else nullcontext():
            for from_input in self._normalise(self.from_input(inputs), self.input_norms).unbind(dim=1):
                hidden = cell(
                    from_input, self._normalise(self.from_hidden(hidden), self.hidden_norms), hidden
                )
                outputs.append(hidden)
        return torch.stack(outputs, dim=1), (hidden,)

    def initialise(self) -> None:
        """Initialise the gates separately, as `initialise_gates` does for a layer without norms."""
        glorot_(self.from_input.weight, parts=3)
        orthogonal_(self.from_hidden.weight, parts=3)

    @staticmethod
    def _normalise(projected: Tensor, norms: nn.ModuleList) -> Tensor:
        """Normalise [..., 3H] in two parts: both gates together, and the candidate."""
        size = projected.size(-1) // 3
        parts = zip(norms, projected.split((2 * size, size), dim=-1), strict=True)
        return torch.cat([norm(part) for norm, part in parts], dim=-1)


class LSTMLayer(nn.LSTM):
    """A long short-term memory layer (Hochreiter & Schmidhuber 1997, with forget gates), over [N, T, input_size]."""

    num_states = 2

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        initialise_gates(self, gates=4)

    def run(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [N, T, H] and the last state, from a first state of tensors [N, H]."""
        return _sequence(self, inputs, state)


def _sequence(layer: GRULayer | LSTMLayer, inputs: Tensor, state: State) -> tuple[Tensor, State]:
    """`run` by torch's layer, in the type of its weights if autocast has no such layer in the narrow type."""
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and not _is_narrow(layer, device):
        own = layer.all_weights[0][0].dtype
        with torch.autocast(device, enabled=False):
            return _sequence(layer, inputs.to(own), tuple(part.to(own) for part in state))
    before = tuple(part.unsqueeze(0).contiguous() for part in state)
    outputs, after = layer(inputs, before if len(before) > 1 else before[0])
    return outputs, tuple(part.squeeze(0) for part in (after if len(before) > 1 else (after,)))


def _is_narrow(layer: GRULayer | LSTMLayer, device: str) -> bool:
    """Whether autocast computes the layer in the type that it is set to.

    On a GPU torch computes it in float16 instead of bfloat16, in which gradients above 65,504 are infinite.
    """
    dtype = torch.get_autocast_dtype(device)
    if device == "cuda":
        return dtype != torch.bfloat16
    return device != "cpu" or isinstance(layer, GRULayer) or has_lstm(dtype)


@cache
def has_lstm(dtype: torch.dtype) -> bool:
    """True if autocast to dtype has an LSTM on this CPU. In bfloat16, oneDNN needs AVX-512 for it."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", dtype):
        zeros = torch.zeros(1, 1, 1, dtype=torch.float32)
        weight = zeros.new_zeros(4, 1).requires_grad_()
        try:
            outputs, *_ = torch.lstm(zeros, (zeros,) * 2, [weight] * 2, False, 1, 0.0, True, False, True)
            torch.autograd.grad(outputs.sum(), weight)
        except RuntimeError:
            return False
    return True


class RecurrentStack(nn.Module):
    """A stack of layers: `x^1 = layer_1(x^0)` and `x^i = layer_i(dropout(x^{i-1}))` for i > 1.

    With `residual`, `x^{i-1}` is added for i > 1 (Wu et al. 2016, 3.1).
    """

    def __init__(
        self,
        *,
        cell: Callable[..., Any],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        residual: bool,
    ) -> None:
        super().__init__()
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(cell(input_size=size, hidden_size=hidden_size) for size in sizes)
        self.dropout = Dropout(dropout)
        self.residual = residual
        self.num_states: int = self.layers[0].num_states  # type: ignore[assignment]

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [N, T, H] of the top layer and the last state, from inputs [N, T, I] and tensors [N, L, H]."""
        states = []
        outputs = inputs
        for number, layer in enumerate(self.layers):
            below = outputs
            outputs, after = layer.run(  # type: ignore[operator]
                below if number == 0 else self.dropout(below), tuple(part[:, number] for part in state)
            )
            if self.residual and number > 0:
                outputs = outputs + below
            states.append(after)
        return outputs, tuple(torch.stack(parts, dim=1) for parts in zip(*states, strict=True))


def initialise_recurrent(module: nn.Module) -> None:
    """Initialise the linear layers of a recurrent model (Glorot & Bengio 2010); for `nn.Module.apply`.

    GRU and LSTM layers initialise themselves when they are built; a layer-normalised GRU is initialised gate by gate.
    """
    if isinstance(module, nn.Linear):
        initialise_linear(module)
    elif isinstance(module, LayerNormGRULayer):
        module.initialise()
