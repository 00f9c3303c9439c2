"""Wirings of a recurrent decoder: how attention and recurrence are connected.

    attend, then update (Bahdanau et al. 2015)     update, then attend (Luong et al. 2015)
        c_t = attend(s_{t-1})                          s_t = RNN(E y_{t-1}, s_{t-1})
        s_t = RNN([E y_{t-1}; c_t], s_{t-1})           c_t = attend(s_t)
        r_t = tanh(W_r [s_t; c_t; E y_{t-1}])          r_t = tanh(W_c [c_t; s_t])

    conditional (Sennrich et al. 2017)
        s'_t = RNN(E y_{t-1}, s_{t-1})
        c_t = attend(s'_t)
        s_t = RNN'(c_t, s'_t)
        r_t = tanh(W_r [s_t; c_t; E y_{t-1}])

A wiring does not know the score inside `attend`. With residual connections, s_t (s'_t) in the readout and in a query
of the same step is the output of the stack, the sum over its layers; the query s_{t-1} and the second transition read
the state of the top layer.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import kernels
from nmt.attention import Attended, Attention
from nmt.layers.cells import RecurrentStack, State


class Memory(NamedTuple):
    """Input of a recurrent decoder, computed once per sentence.

    states [B, S, M]: the encoder's states.
    mask [B, S]: True is a real source token.
    keys [B, S, K]: the keys of the attention; None without attention.
    summary [B, E]: the vector that gives the first state.
    """

    states: Tensor
    mask: Tensor
    keys: Any
    summary: Tensor


class RecurrentState(NamedTuple):
    """State of a recurrent decoder.

    hidden [N, L, H]: the states of the stack.
    position [N]: t, from 0.
    fed [N, R]: the readout r_{t-1}; None without input feeding.
    past [N, ...]: the `past` of the attention, or None.
    """

    hidden: State
    position: Tensor
    fed: Tensor | None
    past: Tensor | None


class Readout(NamedTuple):
    """readout [N, R] or [B, T, R]; its weights [N, S] or [B, T, S]; weights by head [N, K, S] or [B, K, T, S]."""

    readout: Tensor
    weights: Tensor | None
    heads: Tensor | None


@dataclass(frozen=True)
class WiringSettings:
    """Settings of all wirings. `cell` builds a recurrent layer of given sizes."""

    embedding_size: int
    hidden_size: int
    num_layers: int
    dropout: float
    residual: bool
    memory_size: int
    gradient_checkpointing: bool
    cell: Callable[..., Any]
    attention: Attention | None


class Wiring(nn.Module, ABC):
    """The base class of wirings: the recurrence, and attention over the hypotheses of a beam.

    `step` computes the equations for one target position; `unroll` runs a whole target under teacher forcing. With
    `gradient_checkpointing`, about sqrt(T) positions at a time are computed again for the gradient, so that the
    intermediate results of only one such segment exist at a time.
    """

    def __init__(
        self, settings: WiringSettings, *, input_size: int, features_size: int, context_first: int
    ) -> None:
        super().__init__()
        # The columns of the readout's map that read the context
        self.context_columns = slice(context_first, context_first + settings.memory_size)
        self.gradient_checkpointing = settings.gradient_checkpointing
        self.attention = settings.attention
        self.rnn = RecurrentStack(
            cell=settings.cell,
            input_size=input_size,
            hidden_size=settings.hidden_size,
            num_layers=settings.num_layers,
            dropout=settings.dropout,
            residual=settings.residual,
        )
        self.readout = kernels.Linear(features_size, settings.embedding_size)

    def init_state(self, hidden: State, memory: Memory) -> RecurrentState:
        """The state before the first step, from the states of the stack [B, L, H]."""
        position = torch.zeros(hidden[0].size(0), dtype=torch.long, device=hidden[0].device)
        past = None if self.attention is None else self.attention.init_past(memory.mask)
        return RecurrentState(hidden, position, None, past)

    def attend(self, query: Tensor, memory: Memory, position: Tensor, past: Tensor | None) -> Attended | None:
        """Attend with query [N, H], N = B * K: the K hypotheses of a sentence share its states."""
        if self.attention is None:
            return None
        size = (memory.states.size(0), -1)  # [N, …] as [B, K, …]
        context, weights, heads, past = self.attention(
            query.unflatten(0, size),
            memory.keys,
            memory.states,
            memory.mask,
            positions=position.view(size),
            past=None if past is None else past.unflatten(0, size),
        )
        return Attended(
            context.flatten(0, 1),
            weights.flatten(0, 1),
            None if heads is None else heads.transpose(1, 2).flatten(0, 1),
            None if past is None else past.flatten(0, 1),
        )

    @abstractmethod
    def step(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> tuple[Readout, RecurrentState]:
        """The readout r_t from embedded E y_{t-1} [N, E], and the next state."""

    def unroll(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> Readout:
        """Readouts of a whole target from embedded [B, T, E], by T calls of `step`."""
        parts = []
        for segment in self._segments(embedded):
            part, state = self._run(self._step_through, segment, state, memory)
            parts.append(part)
        return _join_segments(parts)

    def _step_through(
        self, embedded: Tensor, state: RecurrentState, memory: Memory
    ) -> tuple[Readout, RecurrentState]:
        readouts = []
        with kernels.gradients_at_once(active=kernels.fast(embedded)):
            for embedded_t in embedded.unbind(dim=1):
                readout, state = self.step(embedded_t, state, memory)
                readouts.append(readout)
        stacked, weights, heads = zip(*readouts, strict=True)
        return Readout(
            torch.stack(stacked, dim=1),
            None if weights[0] is None else torch.stack(weights, dim=1),
            None if heads[0] is None else torch.stack(heads, dim=2),
        ), state

    def _segments(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """inputs [B, T, …] whole, or in about sqrt(T) segments with gradient checkpointing."""
        if not self._recomputes():
            return (inputs,)
        return inputs.split(math.ceil(math.sqrt(inputs.size(1))), dim=1)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function(*arguments)`, with gradient checkpointing if it is on."""
        if not self._recomputes():
            return function(*arguments)
        return checkpoint(function, *arguments, use_reentrant=False)

    def _recomputes(self) -> bool:
        return self.gradient_checkpointing and torch.is_grad_enabled()


class AttendThenUpdate(Wiring):
    """Bahdanau's wiring: the query is s_{t-1}, and the context enters the recurrence.

    The readout is a deep output after Bahdanau et al. (2015, A.2.2), with tanh instead of maxout and with the new
    state s_t, as in Nematus. With `attention=none` neither recurrence nor readout has a context.
    """

    def __init__(self, settings: WiringSettings) -> None:
        context_size = 0 if settings.attention is None else settings.memory_size
        super().__init__(
            settings,
            input_size=settings.embedding_size + context_size,
            features_size=settings.hidden_size + context_size + settings.embedding_size,
            context_first=settings.hidden_size,
        )

    def step(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> tuple[Readout, RecurrentState]:
        attended = self.attend(state.hidden[0][:, -1], memory, state.position, state.past)
        context, weights, heads, past = attended or (None, None, None, None)
        inputs = embedded if context is None else torch.cat((embedded, context), dim=-1)
        output, hidden = self.rnn(inputs.unsqueeze(1), state.hidden)
        parts = [output.squeeze(1), embedded] if context is None else [output.squeeze(1), context, embedded]
        readout = torch.tanh(self.readout(torch.cat(parts, dim=-1)))
        return Readout(readout, weights, heads), RecurrentState(hidden, state.position + 1, None, past)


class UpdateThenAttend(Wiring):
    """Luong's wiring: the query is s_t, and the context enters only the output.

    With `input_feeding` the last attentional vector s̃_{t-1} = r_{t-1} is part of the input (Luong et al. 2015, 3.3).
    Without it the recurrence does not depend on the attention, so a whole target runs in a single call, unless the
    attention must be stepped. Raises ValueError for input feeding without attention.
    """

    def __init__(self, settings: WiringSettings, *, input_feeding: bool) -> None:
        if input_feeding and settings.attention is None:
            raise ValueError("input feeding feeds the attentional vector: attention=none has none to feed")
        context_size = 0 if settings.attention is None else settings.memory_size
        super().__init__(
            settings,
            input_size=settings.embedding_size * (2 if input_feeding else 1),
            features_size=context_size + settings.hidden_size,  # W_c [c_t; s_t]
            context_first=0,
        )
        self.input_feeding = input_feeding

    def init_state(self, hidden: State, memory: Memory) -> RecurrentState:
        state = super().init_state(hidden, memory)
        if not self.input_feeding:
            return state
        return state._replace(fed=hidden[0].new_zeros(hidden[0].size(0), self.readout.out_features))

    def step(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> tuple[Readout, RecurrentState]:
        inputs = embedded if state.fed is None else torch.cat((embedded, state.fed), dim=-1)
        output, hidden = self.rnn(inputs.unsqueeze(1), state.hidden)
        attended = self.attend(output.squeeze(1), memory, state.position, state.past)
        context, weights, heads, past = attended or (None, None, None, None)
        readout = self._readout(context, output.squeeze(1))
        fed = readout if self.input_feeding else None
        return Readout(readout, weights, heads), RecurrentState(hidden, state.position + 1, fed, past)

    def unroll(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> Readout:
        if self.input_feeding or (self.attention is not None and self.attention.must_step):
            return super().unroll(embedded, state, memory)
        outputs, _ = self.rnn(embedded, state.hidden)  # [B, T, H]
        positions = torch.arange(outputs.size(1), device=outputs.device).expand(outputs.shape[:2])
        parts = [
            self._run(self._attend_all, *segment, memory)
            for segment in zip(self._segments(outputs), self._segments(positions), strict=True)
        ]
        return _join_segments(parts)

    def _attend_all(self, outputs: Tensor, positions: Tensor, memory: Memory) -> Readout:
        """Readouts of the outputs of the recurrence [B, T, H] at positions [B, T], all at once."""
        if self.attention is None:
            return Readout(self._readout(None, outputs), None, None)
        context, weights, heads, _ = self.attention(
            outputs, memory.keys, memory.states, memory.mask, positions=positions, past=None
        )
        return Readout(self._readout(context, outputs), weights, heads)

    def _readout(self, context: Tensor | None, output: Tensor) -> Tensor:
        """Luong eq. 5: s̃_t = tanh(W_c [c_t; s_t])."""
        features = output if context is None else torch.cat((context, output), dim=-1)
        return torch.tanh(self.readout(features))


class Conditional(Wiring):
    """The conditional GRU of Nematus (Sennrich et al. 2017, section 4): two transitions around the attention.

    The query s'_t depends on the last piece, as in Luong's wiring; the context enters the recurrence, as in
    Bahdanau's. The second transition is a cell on the top layer. Raises ValueError without attention.
    """

    def __init__(self, settings: WiringSettings) -> None:
        if settings.attention is None:
            raise ValueError("the conditional wiring reads a context: attention=none has none to read")
        super().__init__(
            settings,
            input_size=settings.embedding_size,
            features_size=settings.hidden_size + settings.memory_size + settings.embedding_size,
            context_first=settings.hidden_size,
        )
        self.transition = settings.cell(input_size=settings.memory_size, hidden_size=settings.hidden_size)

    def step(self, embedded: Tensor, state: RecurrentState, memory: Memory) -> tuple[Readout, RecurrentState]:
        output, hidden = self.rnn(embedded.unsqueeze(1), state.hidden)
        attended = self.attend(output.squeeze(1), memory, state.position, state.past)
        assert attended is not None
        context, weights, heads, past = attended
        output, top = self.transition.run(context.unsqueeze(1), tuple(part[:, -1] for part in hidden))
        hidden = tuple(
            torch.cat((part[:, :-1], new.unsqueeze(1)), dim=1) for part, new in zip(hidden, top, strict=True)
        )
        readout = torch.tanh(self.readout(torch.cat((output.squeeze(1), context, embedded), dim=-1)))
        return Readout(readout, weights, heads), RecurrentState(hidden, state.position + 1, None, past)


def _join_segments(parts: list[Readout]) -> Readout:
    """Join the readouts of successive segments of a target."""
    if len(parts) == 1:
        return parts[0]
    readouts, weights, heads = zip(*parts, strict=True)
    return Readout(
        torch.cat(readouts, dim=1),
        None if weights[0] is None else torch.cat(weights, dim=1),
        None if heads[0] is None else torch.cat(heads, dim=2),
    )
