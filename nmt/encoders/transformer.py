"""The Transformer's encoder: a stack of self-attention and feed-forward layers."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.config.types import Count, Share
from nmt.encoders.base import Encoded, Encoder
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding
from nmt.layers.positions import turns_of
from nmt.layers.sublayers import EncoderLayer, LayerSettings, run_layer


class TransformerEncoder(Encoder):
    """A stack of self-attention over all positions (Vaswani et al. 2017, 3.1): `h = layers(sqrt(H) E x + P)`.

    H is the width of the embeddings. With `pre_norm` a last norm follows the stack. `positions` builds the encoding
    of positions. `dropout` is on embeddings and on the output of each sublayer, `attention_dropout` on attention
    weights, `activation_dropout` inside the feed-forward layers. With `gradient_checkpointing` the layers are
    computed again for the gradient, layer by layer.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        feedforward_size: Count,
        num_heads: Count,
        num_layers: Count,
        pre_norm: bool,
        dropout: Share,
        attention_dropout: Share,
        activation_dropout: Share,
        gradient_checkpointing: bool,
        positions: Callable[..., nn.Module],
    ) -> None:
        super().__init__()
        size = embedding.embedding_dim
        settings = LayerSettings(
            size=size,
            memory_size=size,
            feedforward_size=feedforward_size,
            num_heads=num_heads,
            pre_norm=pre_norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
        )
        self.embedding, self.output_size = embedding, size
        self.positions, self.dropout = positions(size=size), Dropout(dropout)
        self.max_length = getattr(self.positions, "max_length", None)
        self.num_heads = num_heads
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(num_layers))
        # Post-norm layers end in a norm; pre-norm layers end in a sum.
        self.norm = nn.LayerNorm(size) if pre_norm else nn.Identity()
        self.gradient_checkpointing = gradient_checkpointing

    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        return self._encode(src, src_mask, need_weights=False)[0]

    def attentions(self, src: Tensor, src_mask: Tensor) -> tuple[Encoded, Tensor]:
        encoded, weights = self._encode(src, src_mask, need_weights=True)
        return encoded, torch.stack([each for each in weights if each is not None], dim=1)

    def _encode(
        self, src: Tensor, src_mask: Tensor, *, need_weights: bool
    ) -> tuple[Encoded, list[Tensor | None]]:
        """The encoded source, and the weights [B, K, S, S] of each layer, None if not needed."""
        embedded = self.embedding(src) * math.sqrt(self.output_size)
        turns = turns_of(self.positions, embedded, first=0, num_heads=self.num_heads)
        x = self.dropout(self.positions(embedded, first=0))  # [B, S, H]
        mask = src_mask[:, None, None]  # [B, 1, 1, S]
        all_weights = []
        for layer in self.layers:
            x, weights = run_layer(
                layer, x, mask, active=self.gradient_checkpointing, need_weights=need_weights, turns=turns
            )
            all_weights.append(weights)
        return Encoded(self.norm(x), src_mask, None), all_weights
