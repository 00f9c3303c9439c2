"""The recurrent translator: a bidirectional GRU encoder and a GRU decoder in one of two wirings.

    attend, then update (Bahdanau et al. 2015)     update, then attend (Luong et al. 2015)
        c_t = attend(s_{t-1})                          s_t = GRU(E y_{t-1}, s_{t-1})
        s_t = GRU([E y_{t-1}; c_t], s_{t-1})           c_t = attend(s_t)
        r_t = tanh(W_r [s_t; c_t; E y_{t-1}])          r_t = tanh(W_c [c_t; s_t])

and p(y_t | y_<t, x) = softmax(W_y r_t). Which score `attend` uses is the attention's business alone.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.attention import Attention
from nmt.masks import reverse_within_length
from nmt.models.base import Forward, Memory, Step, Translator


class GRUEncoder(nn.Module):
    """A stack of bidirectional GRU layers. Padding is never read: it stands after what a direction reads.

    The backward direction reads each sentence reversed within its own length, so neither direction needs
    packed sequences. With `output_size` the states are projected to that width once a sentence.
    """

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        output_size: int | None,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        sizes = [input_size] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.norms = nn.ModuleList(
            nn.LayerNorm(2 * hidden_size) if layer_norm else nn.Identity() for _ in sizes
        )
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Identity() if output_size is None else nn.Linear(2 * hidden_size, output_size)
        self.output_size = output_size or 2 * hidden_size
        self.summary_size = 2 * hidden_size

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode embedded [B, S, input_size] under mask [B, S].

        Returns states [B, S, output_size] and the summary [B, 2 * hidden_size]: the top layer's last state of
        either direction, each of which has read the whole sentence; normalised where the states are.
        """
        lengths = mask.sum(dim=1)  # [B]
        last = (lengths - 1).view(-1, 1, 1)  # [B, 1, 1]
        states = embedded
        for forwards, backwards, norm in zip(self.forwards, self.backwards, self.norms, strict=True):
            rightward, _ = forwards(states)  # [B, S, H]
            leftward_reversed, _ = backwards(reverse_within_length(states, lengths))  # [B, S, H]
            ends = last.expand(-1, 1, rightward.size(2))  # [B, 1, H]
            finals = [half.gather(1, ends).squeeze(1) for half in (rightward, leftward_reversed)]
            leftward = reverse_within_length(leftward_reversed, lengths)
            states = self.dropout(norm(torch.cat((rightward, leftward), dim=-1)))  # [B, S, 2H]
        states = self.projection(states) * mask.unsqueeze(-1)
        return states, norm(torch.cat(finals, dim=-1))


class DecoderState(NamedTuple):
    """hidden [N, L, H]: each layer's s_t; fed [N, R]: the readout r_t where input feeding wants it."""

    hidden: Tensor
    fed: Tensor | None


class Decoder(nn.Module):
    """What both wirings share: the cells of a deep decoder, and attention over the hypotheses of a beam.

    `step` is the equations, one target position; `unroll` runs a whole target under teacher forcing.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        memory_size: int,
        input_size: int,
        attention: Callable[..., Attention] | None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.num_layers, self.readout_size = hidden_size, num_layers, embedding_size
        self.attention = (
            None if attention is None else attention(query_size=hidden_size, key_size=memory_size)
        )
        self.context_size = 0 if attention is None else memory_size
        self.rnn = nn.GRU(
            input_size + self._context_input_size(),
            hidden_size,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )

    def _context_input_size(self) -> int:
        """How much wider the context makes the recurrent input."""
        return 0

    def init_state(self, hidden: Tensor) -> DecoderState:
        """The state before the first step from hidden [B, L, H]."""
        return DecoderState(hidden, None)

    def advance(self, inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Run the stacked cells over inputs [N, T, I] from hidden [N, L, H]: outputs [N, T, H], hidden."""
        outputs, last = self.rnn(inputs, hidden.transpose(0, 1).contiguous())
        return outputs, last.transpose(0, 1)

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor | None, Tensor | None]:
        """Context and weights of query [N, H], N = B * K: the K hypotheses of a sentence share its states."""
        if self.attention is None:
            return None, None
        queries = query.view(memory.states.size(0), -1, query.size(1))  # [B, K, H]
        context, weights = self.attention(queries, memory.keys, memory.states, memory.mask)
        return context.flatten(0, 1), weights.flatten(0, 1)  # [N, M], [N, S]

    @abstractmethod
    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, Tensor | None, DecoderState]:
        """From embedded E y_{t-1} [N, E]: the readout r_t [N, R], the weights [N, S] or None, the state."""

    def unroll(self, embedded: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor | None]:
        """Readouts [B, T, R] and weights [B, T, S] or None of a whole target: `step`, T times."""
        readouts, weights = [], []
        for embedded_t in embedded.unbind(dim=1):
            readout, weights_t, state = self.step(embedded_t, state, memory)
            readouts.append(readout)
            weights.append(weights_t)
        stacked = None if self.attention is None else torch.stack([w for w in weights if w is not None], 1)
        return torch.stack(readouts, dim=1), stacked


class AttendThenUpdate(Decoder):
    """Bahdanau's wiring: the query is s_{t-1}, and the context enters the recurrence.

    The readout is a deep output after Bahdanau et al. (2015, A.2.2), with tanh in place of maxout and the new
    state s_t, as in Nematus. Without attention (`none`) there is no context anywhere.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        memory_size: int,
        attention: Callable[..., Attention] | None,
    ) -> None:
        super().__init__(
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            memory_size=memory_size,
            input_size=embedding_size,
            attention=attention,
        )
        self.readout = nn.Linear(hidden_size + self.context_size + embedding_size, embedding_size)

    def _context_input_size(self) -> int:
        return self.context_size

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, Tensor | None, DecoderState]:
        context, weights = self.attend(state.hidden[:, -1], memory)
        inputs = embedded if context is None else torch.cat((embedded, context), dim=-1)
        output, hidden = self.advance(inputs.unsqueeze(1), state.hidden)
        features = (
            [output.squeeze(1), embedded] if context is None else [output.squeeze(1), context, embedded]
        )
        return torch.tanh(self.readout(torch.cat(features, dim=-1))), weights, DecoderState(hidden, None)


class UpdateThenAttend(Decoder):
    """Luong's wiring: the query is s_t, and the context reaches the output only.

    With `input_feeding` the last attentional vector s̃_{t-1} = r_{t-1} is joined to the input (Luong et al.
    2015, §3.3). Without it the recurrence needs no attention, so a whole target runs in one call.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        memory_size: int,
        attention: Callable[..., Attention] | None,
        input_feeding: bool,
    ) -> None:
        super().__init__(
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            memory_size=memory_size,
            input_size=embedding_size * (2 if input_feeding else 1),
            attention=attention,
        )
        if input_feeding and attention is None:
            raise ValueError("input feeding feeds the attentional vector: attention=none has none to feed")
        self.input_feeding = input_feeding
        self.readout = nn.Linear(self.context_size + hidden_size, embedding_size)  # W_c

    def init_state(self, hidden: Tensor) -> DecoderState:
        return DecoderState(
            hidden, hidden.new_zeros(hidden.size(0), self.readout_size) if self.input_feeding else None
        )

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, Tensor | None, DecoderState]:
        inputs = embedded if state.fed is None else torch.cat((embedded, state.fed), dim=-1)
        output, hidden = self.advance(inputs.unsqueeze(1), state.hidden)
        context, weights = self.attend(output.squeeze(1), memory)
        readout = self._readout(context, output.squeeze(1))
        return readout, weights, DecoderState(hidden, readout if self.input_feeding else None)

    def unroll(self, embedded: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor | None]:
        if self.input_feeding:
            return super().unroll(embedded, state, memory)
        outputs, _ = self.advance(embedded, state.hidden)  # [B, T, H]
        if self.attention is None:
            return self._readout(None, outputs), None
        context, weights = self.attention(outputs, memory.keys, memory.states, memory.mask)
        return self._readout(context, outputs), weights

    def _readout(self, context: Tensor | None, output: Tensor) -> Tensor:
        """Luong eq. 5: s̃_t = tanh(W_c [c_t; s_t])."""
        features = output if context is None else torch.cat((context, output), dim=-1)
        return torch.tanh(self.readout(features))


class GRUTranslator(Translator):
    """Encoder, decoder, embeddings and the output layer.

    s_0 = tanh(W_s [last state of either direction]) for each decoder layer (Bahdanau et al. 2015, A.2.2,
    which takes the backward direction alone). Embeddings start at N(0, 1/E), so that a tied output layer
    starts with scores of unit variance. `tie_output`: W_y is the target embedding; `tie_source`: the source
    embedding is the target's, which needs one joint vocabulary.

    Raises ValueError where sizes or ties do not fit.
    """

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        joint_vocabulary: bool,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        layer_norm: bool,
        tie_output: bool,
        tie_source: bool,
        encoder: Callable[..., GRUEncoder],
        wiring: Callable[..., Decoder],
        attention: Callable[..., Attention] | None,
    ) -> None:
        super().__init__()
        if tie_source and not joint_vocabulary:
            raise ValueError(
                "model.tie_source=true needs one joint vocabulary: "
                "set model.tie_source=false or data.tokenizer.joint=true"
            )
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, embedding_size, padding_idx=pad_id)
        self.src_embedding = (
            self.tgt_embedding
            if tie_source
            else nn.Embedding(src_vocab_size, embedding_size, padding_idx=pad_id)
        )
        # Without attention nothing reads the states: their projection would get no gradient, which stops DDP.
        unread = {"output_size": None} if attention is None else {}
        self.encoder = encoder(input_size=embedding_size, dropout=dropout, layer_norm=layer_norm, **unread)
        self.bridge = nn.Linear(self.encoder.summary_size, num_layers * hidden_size)  # W_s
        self.decoder = wiring(
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            memory_size=self.encoder.output_size,
            attention=attention,
        )
        self.norm = nn.LayerNorm(embedding_size) if layer_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(self.decoder.readout_size, tgt_vocab_size)  # W_y
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=embedding_size**-0.5)
            nn.init.zeros_(embedding.weight[pad_id])
        nn.init.zeros_(self.output.bias)
        if tie_output:
            self.output.weight = self.tgt_embedding.weight

    @property
    def has_attention(self) -> bool:
        return self.decoder.attention is not None

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        states, summary = self.encoder(self.dropout(self.src_embedding(src)), src_mask)
        attention = self.decoder.attention
        keys = None if attention is None else attention.project_keys(states)
        return Memory(states, src_mask, keys, summary)

    def init_state(self, memory: Memory) -> DecoderState:
        hidden = torch.tanh(self.bridge(memory.summary))  # [B, L * H]
        return self.decoder.init_state(hidden.view(-1, self.decoder.num_layers, self.decoder.hidden_size))

    def forward(self, memory: Memory, tgt_in: Tensor, *, need_weights: bool = False) -> Forward:
        embedded = self.dropout(self.tgt_embedding(tgt_in))  # [B, T, E]
        readouts, weights = self.decoder.unroll(embedded, self.init_state(memory), memory)
        return Forward(self._logits(readouts), weights if need_weights else None)

    def step(
        self, tgt_prev: Tensor, state: DecoderState, memory: Memory, *, need_weights: bool = False
    ) -> Step:
        embedded = self.dropout(self.tgt_embedding(tgt_prev))  # [N, E]
        readout, weights, state = self.decoder.step(embedded, state, memory)
        return Step(self._logits(readout), state, weights if need_weights else None)

    def _logits(self, readout: Tensor) -> Tensor:
        return self.output(self.dropout(self.norm(readout)))
