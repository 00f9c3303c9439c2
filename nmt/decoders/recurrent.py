"""The recurrent decoder: GRU or LSTM layers and an attention, connected by a wiring (`wirings.py`)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.attention import Attention
from nmt.config.types import Count, Share
from nmt.decoders.base import Decoder, DecoderStep, Read
from nmt.decoders.wirings import Memory, Readout, RecurrentState, Wiring, WiringSettings
from nmt.encoders.base import Encoded
from nmt.layers.cells import initialise_recurrent
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding


class RecurrentDecoder(Decoder):
    """Embeddings, a wiring of recurrence and attention, and its readouts r_1..r_T.

    The layers start from `s_0 = tanh(W_s summary)`; Bahdanau et al. (2015, A.2.2) use only the backward direction.
    The cell of an LSTM starts from another projection of the summary, without tanh. If the encoder has no summary,
    the mean of its states is used. r_t is as wide as the embeddings. `dropout` is on embeddings, between layers and on
    readouts. `attention_dropout` drops weights out of the contexts. `step` is for decoding, without dropout.

    Raises ValueError for a setting without effect.
    """

    reads_summary = True

    def __init__(
        self,
        *,
        embedding: Embedding,
        memory_size: int,
        summary_size: int | None,
        size: Count,
        num_layers: Count,
        dropout: Share,
        attention_dropout: Share,
        residual: bool,
        gradient_checkpointing: bool,
        cell: Callable[..., Any],
        wiring: Callable[..., Wiring],
        attention: Callable[..., Attention | None],
    ) -> None:
        super().__init__()
        if residual and num_layers == 1:
            raise ValueError("decoder.residual=true needs a stack: set decoder.num_layers above 1")
        built = attention(query_size=size, key_size=memory_size)
        if built is None and attention_dropout:
            raise ValueError(
                f"decoder.attention_dropout={attention_dropout} drops attention: attention=none has none"
            )
        if built is not None:
            built.dropout = Dropout(attention_dropout)
            self.needs_documents = built.needs_documents
        self.embedding, self.size, self.num_layers = embedding, size, num_layers
        self.features_size = embedding.embedding_dim
        self.wiring = wiring(
            WiringSettings(
                embedding_size=embedding.embedding_dim,
                hidden_size=size,
                num_layers=num_layers,
                dropout=dropout,
                residual=residual,
                memory_size=memory_size,
                gradient_checkpointing=gradient_checkpointing,
                cell=cell,
                attention=built,
            )
        )
        # W_s
        self.bridge = nn.Linear(summary_size or memory_size, self.wiring.rnn.num_states * num_layers * size)
        self.dropout = Dropout(dropout)
        self.apply(initialise_recurrent)

    @property
    def attention(self) -> Attention | None:
        return self.wiring.attention

    @property
    def has_attention(self) -> bool:
        return self.attention is not None

    @property
    def cross_attentions(self) -> list[nn.Module]:
        return [] if self.attention is None else [self.attention]

    def prepare(self, encoded: Encoded) -> Memory:
        states, mask, summary, _ = encoded
        if summary is None:
            real = mask.unsqueeze(-1)  # [B, S, 1]
            summary = (states * real).sum(dim=1) / real.sum(dim=1)  # [B, M]
        keys = None if self.attention is None else self.attention.project(encoded)
        return Memory(states, mask, keys, summary)

    def init_state(self, memory: Memory) -> RecurrentState:
        size = (self.wiring.rnn.num_states, self.num_layers, self.size)
        hidden, *cell = self.bridge(memory.summary).unflatten(-1, size).unbind(dim=1)  # [B, L, H] each
        return self.wiring.init_state((torch.tanh(hidden), *cell), memory)

    def unroll(self, memory: Memory, tgt_in: Tensor, *, need_weights: bool) -> Read:
        readout, weights, _ = self._readouts(memory, tgt_in)
        return Read(self.dropout(readout), weights if need_weights else None)

    def attentions(self, memory: Memory, tgt_in: Tensor) -> tuple[Tensor | None, None]:
        _, weights, heads = self._readouts(memory, tgt_in)
        if weights is None:
            return None, None
        heads = weights.unsqueeze(1) if heads is None else heads  # [B, K, T, S]
        return heads.unsqueeze(1), None

    def step(
        self, tgt_prev: Tensor, state: RecurrentState, memory: Memory, *, need_weights: bool
    ) -> DecoderStep:
        embedded = self.embedding(tgt_prev.unsqueeze(1)).squeeze(1)  # [N, E]
        read, state = self.wiring.step(embedded, state, memory)
        return DecoderStep(read.readout, state, read.weights if need_weights else None)

    def _readouts(self, memory: Memory, tgt_in: Tensor) -> Readout:
        embedded = self.dropout(self.embedding(tgt_in))  # [B, T, E]
        return self.wiring.unroll(embedded, self.init_state(memory), memory)
