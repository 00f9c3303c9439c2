"""The pooling decoder, for labels: the queries of its attention are learned and do not depend on the text."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention import Attended, Attention
from nmt.config.types import Count, Share
from nmt.decoders.base import Decoder, DecoderStep, Read
from nmt.encoders.base import Encoded
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding
from nmt.layers.initialisation import initialise_linear


class PooledMemory(NamedTuple):
    """states [B, S, M], mask [B, S], and the keys of the attention."""

    states: Tensor
    mask: Tensor
    keys: Any


class PoolingDecoder(Decoder):
    """Writes a label from a weighted mean of the states, without a recurrence (Yang et al. 2016, 2.2).

        q_t = W_q E y_{t-1}        c_t = attend(q_t)        r_t = W_r [c_t; E y_{t-1}]

    In the paper a label is a single piece. The first query comes from BOS, so it is the same for all texts; a label
    of several pieces has another query after each piece. `size` is the width of the queries. Raises ValueError
    without an attention, and for an attention that remembers earlier steps.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        memory_size: int,
        summary_size: int | None,
        size: Count,
        dropout: Share,
        attention_dropout: Share,
        attention: Callable[..., Attention | None],
    ) -> None:
        super().__init__()
        built = attention(query_size=size, key_size=memory_size)
        if built is None or built.must_step:
            raise ValueError("decoder=pooling needs an attention that does not remember earlier steps")
        built.dropout = Dropout(attention_dropout)
        self.needs_documents = built.needs_documents
        self.embedding, self.attention = embedding, built
        self.features_size = embedding.embedding_dim
        self.query = kernels.Linear(self.features_size, size, bias=False)  # W_q
        self.readout = kernels.Linear(memory_size + self.features_size, self.features_size)  # W_r
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                initialise_linear(layer)
        self.dropout = Dropout(dropout)

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def cross_attentions(self) -> list[nn.Module]:
        return [self.attention]

    def prepare(self, encoded: Encoded) -> PooledMemory:
        return PooledMemory(encoded.states, encoded.mask, self.attention.project(encoded))

    def unroll(self, memory: PooledMemory, tgt_in: Tensor, *, need_weights: bool) -> Read:
        positions = torch.arange(tgt_in.size(1), device=tgt_in.device).expand_as(tgt_in)
        features, attended = self._read(memory, self.dropout(self.embedding(tgt_in)), positions)
        return Read(self.dropout(features), attended.weights if need_weights else None)

    def attentions(self, memory: PooledMemory, tgt_in: Tensor) -> tuple[Tensor, None]:
        positions = torch.arange(tgt_in.size(1), device=tgt_in.device).expand_as(tgt_in)
        _, attended = self._read(memory, self.embedding(tgt_in), positions)
        heads = attended.weights.unsqueeze(1) if attended.heads is None else attended.heads  # [B, K, T, S]
        return heads.unsqueeze(1), None

    def init_state(self, memory: PooledMemory) -> Tensor:
        """The position t of the next piece [B]: the whole state of this decoder."""
        return torch.zeros(memory.states.size(0), dtype=torch.long, device=memory.states.device)

    def step(
        self, tgt_prev: Tensor, state: Tensor, memory: PooledMemory, *, need_weights: bool
    ) -> DecoderStep:
        beside = (memory.states.size(0), -1)  # [B, N / B]: the hypotheses of a sentence share its states
        features, attended = self._read(memory, self.embedding(tgt_prev.view(beside)), state.view(beside))
        weights = attended.weights.flatten(0, 1) if need_weights else None
        return DecoderStep(features.flatten(0, 1), state + 1, weights)

    def _read(self, memory: PooledMemory, embedded: Tensor, positions: Tensor) -> tuple[Tensor, Attended]:
        """Readouts [B, T, E] and attention of embedded pieces [B, T, E] at positions [B, T]."""
        attended = self.attention(
            self.query(embedded), memory.keys, memory.states, memory.mask, positions=positions, past=None
        )
        return self.readout(torch.cat((attended.context, embedded), dim=-1)), attended
