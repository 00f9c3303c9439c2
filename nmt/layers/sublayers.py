"""The layers of a Transformer: attention and a feed-forward network, both with residual connection and norm."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.layers.dropout import Dropout
from nmt.layers.transformer_attention import (
    CrossAttention,
    KeysValues,
    LayerSettings,
    SelfAttention,
    make_linear,
)


class Residual(nn.Module):
    """Residual connection and norm around a sublayer f, with dropout on the output of f.

    `norm(x + f(x))` (Vaswani et al. 2017), or with `pre_norm` `x + f(norm(x))` (Xiong et al. 2020).
    """

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.size)
        self.dropout = Dropout(settings.dropout)
        self.pre_norm = settings.pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """Input of f."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """Join x and the output of f."""
        x = x + self.dropout(output)
        return x if self.pre_norm else self.norm(x)


class FeedForward(nn.Module):
    """`W_2 max(0, W_1 x + b_1) + b_2` (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.inner = make_linear(settings.size, settings.feedforward_size, parts=1)
        self.outer = make_linear(settings.feedforward_size, settings.size, parts=1)
        self.dropout = Dropout(settings.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        # Not in place: the output of a linear layer is a view, and autograd would copy its gradient.
        return self.outer(self.dropout(self.inner(x).relu()))


class EncoderLayer(nn.Module):
    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings)
        self.feedforward = FeedForward(settings)
        self.around_self, self.around_feedforward = Residual(settings), Residual(settings)

    def forward(
        self, x: Tensor, mask: Tensor, *, need_weights: bool, turns: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Output [B, S, H] for x [B, S, H] under mask [B, 1, 1, S], and weights [B, K, S, S], or None if not needed.

        turns: of queries and keys (`RotaryPositions`).
        """
        query, own = self.self_attention.project(self.around_self.enter(x), turns)
        context, weights = self.self_attention.attend(
            query, own, mask=mask, causal=False, need_weights=need_weights
        )
        x = self.around_self.leave(x, context)
        return self.around_feedforward.leave(x, self.feedforward(self.around_feedforward.enter(x))), weights


class Decoded(NamedTuple):
    """Output of a decoder layer.

    x: of the shape of the layer's input. past [N, K, t, 2d]: keys and values of each head side by side, including
    those of x; None for a whole target.
    self_weights [B, K, T, T], cross_weights [B, K, T, S]: None if not needed.
    """

    x: Tensor
    past: Tensor | None
    self_weights: Tensor | None
    cross_weights: Tensor | None


class DecoderLayer(nn.Module):
    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings)
        self.cross_attention = CrossAttention(settings)
        self.feedforward = FeedForward(settings)
        self.around_self, self.around_cross = Residual(settings), Residual(settings)
        self.around_feedforward = Residual(settings)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        cross: KeysValues,
        mask: Tensor,
        *,
        need_self: bool,
        need_cross: bool,
        turns: Tensor | None = None,
    ) -> Decoded:
        """Decode a whole target x [B, T, H] without a past, or a single position x [N, 1, H] after a past
        [N, K, t, 2d].

        mask [B, 1, 1, S] is of the source. turns: of queries and keys (`RotaryPositions`). The target needs no mask of
        padding, since its padding comes after all real positions and self-attention is causal.
        """
        query, own = self.self_attention.project(self.around_self.enter(x), turns)
        if past is not None:
            newest = torch.cat((own.keys.transpose(-2, -1), own.values), dim=-1)
            past = torch.cat((past, newest), dim=2)
            keys, values = past.chunk(2, dim=-1)
            own = KeysValues(keys.transpose(-2, -1), values)
        context, self_weights = self.self_attention.attend(
            query, own, mask=None, causal=past is None, need_weights=need_self
        )
        x = self.around_self.leave(x, context)
        context, cross_weights = self.cross_attention(
            self.around_cross.enter(x),
            cross,
            mask,
            first=own.values.size(2) - x.size(1),
            need_weights=need_cross,
        )
        x = self.around_cross.leave(x, context)
        x = self.around_feedforward.leave(x, self.feedforward(self.around_feedforward.enter(x)))
        return Decoded(x, past, self_weights, cross_weights)


def run_layer(layer: nn.Module, *inputs: Any, active: bool, **needs: Any) -> Any:
    """Return `layer(*inputs, **needs)`.

    If `active`, nothing inside the layer is kept: it is computed again for the gradient.
    """
    run = partial(layer, **needs)
    if not (active and torch.is_grad_enabled()):
        return run(*inputs)
    return checkpoint(run, *inputs, use_reentrant=False)
