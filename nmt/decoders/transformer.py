"""The Transformer's decoder: a stack of causal self-attention, cross-attention and feed-forward layers."""

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.config.types import Count, Share
from nmt.decoders.base import Decoder, DecoderStep, Read
from nmt.encoders.base import Encoded
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding
from nmt.layers.sublayers import Decoded, DecoderLayer, LayerSettings, recomputed
from nmt.layers.transformer_attention import KeysValues


class TransformerMemory(NamedTuple):
    """mask: True is a real source token [B, S]; cross: each decoder layer's keys and values of the source."""

    mask: Tensor
    cross: tuple[KeysValues, ...]


# Each layer's keys and values of the t pieces so far, side by side [N, t, 2H].
TransformerState = tuple[Tensor, ...]


class TransformerDecoder(Decoder):
    """Each position attends to those before it and to the encoder's states (Vaswani et al. 2017, 3.1).

    Its width H is the embeddings'; the states may have another. With `pre_norm` a last norm stands above the stack.
    `positions` adds positions. `dropout` is on embeddings and on what each sublayer adds, `attention_dropout` on
    attention weights, `activation_dropout` inside the feed-forward layers. `alignment_layer`: the layer, from 0, whose
    weights, averaged over its heads, are those of `unroll` and `step`; None averages over all layers too. With
    `gradient_checkpointing` the layers are computed again for the gradient, one at a time.

    Raises ValueError where there is no such alignment layer.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        memory_size: int,
        summary_size: int | None,
        feedforward_size: Count,
        num_heads: Count,
        num_layers: Count,
        pre_norm: bool,
        dropout: Share,
        attention_dropout: Share,
        activation_dropout: Share,
        alignment_layer: int | None,
        gradient_checkpointing: bool,
        positions: Callable[..., nn.Module],
    ) -> None:
        super().__init__()
        if alignment_layer is not None and alignment_layer not in range(num_layers):
            raise ValueError(
                f"decoder.alignment_layer={alignment_layer}: the decoder has {num_layers} layers, counted from 0"
            )
        size = embedding.embedding_dim
        settings = LayerSettings(
            size=size,
            memory_size=memory_size,
            feedforward_size=feedforward_size,
            num_heads=num_heads,
            pre_norm=pre_norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
        )
        self.embedding, self.features_size, self.alignment_layer = embedding, size, alignment_layer
        self.positions, self.dropout = positions(size=size), Dropout(dropout)
        self.max_length = getattr(self.positions, "max_length", None)
        self.layers = nn.ModuleList(DecoderLayer(settings) for _ in range(num_layers))
        # Post-norm layers end in a norm of their own; pre-norm layers end in a bare sum.
        self.norm = nn.LayerNorm(size) if pre_norm else nn.Identity()
        self.gradient_checkpointing = gradient_checkpointing

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def cross_attentions(self) -> list[nn.Module]:
        return [layer.cross_attention for layer in self.layers]  # type: ignore[misc]

    def prepare(self, encoded: Encoded) -> TransformerMemory:
        # The keys of a sentence are the same at every step, so they are projected once.
        return TransformerMemory(
            encoded.mask,
            tuple(layer.cross_attention.project_states(encoded.states) for layer in self.layers),  # type: ignore[union-attr,operator]
        )

    def unroll(self, memory: TransformerMemory, tgt_in: Tensor, *, need_weights: bool) -> Read:
        layers = self._aligned_layers() if need_weights else ()
        top, decoded = self._decode(tgt_in, None, memory, need_self=False, need_cross=layers)
        return Read(top, self._alignment(decoded) if need_weights else None)

    def attentions(self, memory: TransformerMemory, tgt_in: Tensor) -> tuple[Tensor, Tensor]:
        every = range(len(self.layers))
        _, decoded = self._decode(tgt_in, None, memory, need_self=True, need_cross=every)
        return (
            _stacked([layer.cross_weights for layer in decoded]),
            _stacked([layer.self_weights for layer in decoded]),
        )

    def init_state(self, memory: TransformerMemory) -> TransformerState:
        nothing = memory.cross[0].keys.new_zeros(memory.mask.size(0), 0, 2 * self.features_size)
        return (nothing,) * len(self.layers)

    def step(
        self, tgt_prev: Tensor, state: TransformerState, memory: TransformerMemory, *, need_weights: bool
    ) -> DecoderStep:
        layers = self._aligned_layers() if need_weights else ()
        top, decoded = self._decode(tgt_prev.unsqueeze(1), state, memory, need_self=False, need_cross=layers)
        weights = self._alignment(decoded).flatten(0, 1) if need_weights else None  # [B, K, S] -> [N, S]
        return DecoderStep(top.squeeze(1), tuple(layer.past for layer in decoded), weights)

    def _decode(
        self,
        tgt: Tensor,
        state: TransformerState | None,
        memory: TransformerMemory,
        *,
        need_self: bool,
        need_cross: Collection[int],
    ) -> tuple[Tensor, list[Decoded]]:
        """The top [B, T, H] or [N, 1, H] of the stack over tgt [B, T] or, after a state, [N, 1]; and its layers.

        need_cross: the layers whose cross-attention weights are asked for.
        """
        first = 0 if state is None else state[0].size(1)
        embedded = self.embedding(tgt) * math.sqrt(self.features_size)
        x = self.dropout(self.positions(embedded, first=first))
        mask = memory.mask[:, None, None]  # [B, 1, 1, S]
        decoded: list[Decoded] = []
        for number, layer in enumerate(self.layers):
            past = None if state is None else state[number]
            needs = {"need_self": need_self, "need_cross": number in need_cross}
            decoded.append(
                recomputed(
                    layer, x, past, memory.cross[number], mask, active=self.gradient_checkpointing, **needs
                )
            )
            x = decoded[-1].x
        return self.norm(x), decoded

    def _aligned_layers(self) -> Collection[int]:
        return range(len(self.layers)) if self.alignment_layer is None else (self.alignment_layer,)

    def _alignment(self, decoded: list[Decoded]) -> Tensor:
        """The mean [B, T, S] over the heads of those layers that gave cross-attention weights."""
        return _stacked([layer.cross_weights for layer in decoded]).mean(dim=(1, 2))


def _stacked(weights: list[Tensor | None]) -> Tensor:
    """Those layers' weights [B, K, T, S] that there are, as one [B, L, K, T, S]."""
    return torch.stack([each for each in weights if each is not None], dim=1)
