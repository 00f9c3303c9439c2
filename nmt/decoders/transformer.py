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
from nmt.layers.positions import turns_of
from nmt.layers.sublayers import Decoded, DecoderLayer, LayerSettings, run_layer
from nmt.layers.transformer_attention import KeysValues


class TransformerMemory(NamedTuple):
    """mask [B, S]: True is a real source token. cross: keys and values of the source for each decoder layer."""

    mask: Tensor
    cross: tuple[KeysValues, ...]


# For each layer, keys and values of the t pieces so far, side by side in each head [N, K, t, 2d].
TransformerState = tuple[Tensor, ...]


class TransformerDecoder(Decoder):
    """Each position attends to those before it and to the encoder's states (Vaswani et al. 2017, 3.1).

    The width H is that of the embeddings; the encoder's states may have another width. With `pre_norm` a last norm
    follows the stack. `positions` builds the encoding of positions. `dropout` is on embeddings and on the output of
    each sublayer, `attention_dropout` on attention weights, `activation_dropout` inside the feed-forward layers.
    `alignment_layer`: the layer, from 0, that gives the weights of `unroll` and `step`, as means over heads; None for
    means over all layers too. With `gradient_checkpointing` the layers are computed again for the gradient, layer by
    layer.

    Raises ValueError if `alignment_layer` does not exist.
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
        self.num_heads = num_heads
        self.layers = nn.ModuleList(DecoderLayer(settings) for _ in range(num_layers))
        # Post-norm layers end in a norm; pre-norm layers end in a sum.
        self.norm = nn.LayerNorm(size) if pre_norm else nn.Identity()
        self.gradient_checkpointing = gradient_checkpointing

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def cross_attentions(self) -> list[nn.Module]:
        return [layer.cross_attention for layer in self.layers]  # type: ignore[misc]

    def prepare(self, encoded: Encoded) -> TransformerMemory:
        # Keys do not change between steps, so project them once.
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
            _stack_layers([layer.cross_weights for layer in decoded]),
            _stack_layers([layer.self_weights for layer in decoded]),
        )

    def init_state(self, memory: TransformerMemory) -> TransformerState:
        batch, heads, size, _ = memory.cross[0].keys.shape
        nothing = memory.cross[0].keys.new_zeros(batch, heads, 0, 2 * size)
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
        """Output of the stack and of its layers: [B, T, H] for tgt [B, T], or [N, 1, H] for tgt [N, 1] and a state.

        need_cross: the layers that must return cross-attention weights.
        """
        first = 0 if state is None else state[0].size(2)
        embedded = self.embedding(tgt) * math.sqrt(self.features_size)
        turns = turns_of(self.positions, embedded, first=first, num_heads=self.num_heads)
        x = self.dropout(self.positions(embedded, first=first))
        mask = memory.mask[:, None, None]  # [B, 1, 1, S]
        decoded: list[Decoded] = []
        for number, layer in enumerate(self.layers):
            past = None if state is None else state[number]
            needs = {"need_self": need_self, "need_cross": number in need_cross, "turns": turns}
            decoded.append(
                run_layer(
                    layer, x, past, memory.cross[number], mask, active=self.gradient_checkpointing, **needs
                )
            )
            x = decoded[-1].x
        return self.norm(x), decoded

    def _aligned_layers(self) -> Collection[int]:
        return range(len(self.layers)) if self.alignment_layer is None else (self.alignment_layer,)

    def _alignment(self, decoded: list[Decoded]) -> Tensor:
        """The mean [B, T, S] over the heads of the layers that returned cross-attention weights."""
        return _stack_layers([layer.cross_weights for layer in decoded]).mean(dim=(1, 2))


def _stack_layers(weights: list[Tensor | None]) -> Tensor:
    """Stack the weights [B, K, T, S] of the layers that have any to [B, L, K, T, S]."""
    return torch.stack([each for each in weights if each is not None], dim=1)
