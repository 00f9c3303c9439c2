"""Multi-head attention of a Transformer: of a sequence to itself, and of the target to the encoder's states."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt import kernels
from nmt.attention.masks import causal_mask, masked_softmax
from nmt.attention.override import Override
from nmt.layers.dropout import Dropout
from nmt.layers.initialisation import initialise_linear
from nmt.layers.positions import turn

FEW = 16  # queries of a sentence: up to this many, two products on a CPU are faster than the fused kernel


class KeysValues(NamedTuple):
    """Keys [B, K, d, S], transposed for products, and values [B, K, S, d], projected and split into heads."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class LayerSettings:
    """Settings of all layers of a stack. size: width of the stack; memory_size: width of the encoder's states.

    Raises ValueError unless num_heads divides size.
    """

    size: int
    memory_size: int
    feedforward_size: int
    num_heads: int
    pre_norm: bool
    dropout: float
    attention_dropout: float
    activation_dropout: float

    def __post_init__(self) -> None:
        if self.size % self.num_heads:
            raise ValueError(f"num_heads must divide model.size={self.size}, got {self.num_heads}")


class HeadContexts(NamedTuple):
    """context [B, T, H]; weights [B, K, T, S] before dropout, or None if not needed."""

    context: Tensor
    weights: Tensor | None


def make_linear(in_size: int, out_size: int, *, parts: int) -> kernels.Linear:
    """Build a linear layer of `parts` stacked maps of equal shape, initialised separately."""
    layer = kernels.Linear(in_size, parts * out_size)
    initialise_linear(layer, parts=parts)
    return layer


def _fused_attention(query: Tensor, cache: KeysValues, mask: Tensor | None, causal: bool) -> Tensor:
    """torch's attention in one kernel, but not cuDNN's: that prepares itself for each new shape, for a twentieth of a
    second and more, and a search has new shapes at each step."""
    keys, values = cache.keys.transpose(-2, -1), cache.values
    if not query.is_cuda:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()  # or no fused kernel takes them
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


class TransformerAttention(nn.Module):
    """`softmax(q k^T / sqrt(d)) v` in each head, joined and projected (Vaswani et al. 2017, eq. 1 and 3.2.2).

    A subclass provides queries, keys and values.
    """

    override: Override | None = None  # set on an instance by `nmt.attention.override_attention`

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.num_heads = settings.num_heads
        self.dropout = Dropout(settings.attention_dropout)
        self.output = make_linear(settings.size, settings.size, parts=1)

    def attend(
        self,
        query: Tensor,
        cache: KeysValues,
        *,
        mask: Tensor | None,
        causal: bool,
        need_weights: bool,
        positions: Tensor | None = None,
    ) -> HeadContexts:
        """Attend with query [B, K, T, d] to the positions that are True in mask, which broadcasts to [B, K, T, S].

        Without a mask, attend to all, or, if `causal`, from position t to those up to t. `override` may replace the
        weights of positions [T].
        """
        # The fused kernel does not return weights. On a CPU it drops none, and is slow for the few queries of a search
        # and in 16 bits.
        in_search = query.is_cpu and not torch.is_grad_enabled() and kernels.fast(query)
        slow = (in_search and query.size(2) <= FEW) or (query.is_cpu and query.dtype == torch.bfloat16)
        if slow or need_weights or self.override is not None or (self.training and self.dropout.p > 0):
            scores = (query * query.size(-1) ** -0.5) @ cache.keys  # [B, K, T, S]
            if causal:
                mask = causal_mask(query.size(2), query.device)
            weights = scores.softmax(dim=-1) if mask is None else masked_softmax(scores, mask)
            if self.override is not None and positions is not None:
                weights = self.override(weights, positions)
            contexts = self.dropout(weights) @ cache.values  # [B, K, T, d]
        else:
            weights = None
            contexts = _fused_attention(query, cache, mask, causal)
        return HeadContexts(
            self.output(contexts.transpose(1, 2).flatten(2)), weights if need_weights else None
        )

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H] as [B, K, T, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class SelfAttention(TransformerAttention):
    """Positions of one sequence attend to each other."""

    stacked_maps: ClassVar = {"projection.weight": 3}  # W_q, W_k, W_v

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__(settings)
        self.projection = make_linear(settings.size, settings.size, parts=3)

    def project(self, x: Tensor, turns: Tensor | None = None) -> tuple[Tensor, KeysValues]:
        """Queries [B, K, T, d], keys and values of x [B, T, H]. turns: of queries and keys, for rotary positions."""
        query, keys, values = map(self.split, self.projection(x).chunk(3, dim=-1))
        if turns is not None:
            query, keys = turn(query, turns), turn(keys, turns)
        return query, KeysValues(keys.transpose(-2, -1), values)


class CrossAttention(TransformerAttention):
    """Target positions attend to the encoder's states."""

    stacked_maps: ClassVar = {"states_projection.weight": 2}  # W_k, W_v

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__(settings)
        self.query_projection = make_linear(settings.size, settings.size, parts=1)
        self.states_projection = make_linear(settings.memory_size, settings.size, parts=2)

    def project_states(self, states: Tensor) -> KeysValues:
        keys, values = map(self.split, self.states_projection(states).chunk(2, dim=-1))
        keys = keys.transpose(-2, -1)
        if torch.is_grad_enabled() or not states.is_cpu:
            return KeysValues(keys, values)
        return KeysValues(keys.contiguous(), values.contiguous())  # for the products of all steps of a search

    def forward(
        self, x: Tensor, cross: KeysValues, mask: Tensor, *, first: int = 0, need_weights: bool
    ) -> HeadContexts:
        """Attend with x [B, T, H], from target position `first` on; or with x [N, 1, H]: the N / B hypotheses of a
        sentence, side by side, are then its T, and share its keys without a copy. mask [B, 1, 1, S]."""
        beside = x.view(cross.keys.size(0), -1, x.size(-1))  # [B, T, H]
        query = self.split(self.query_projection(beside))
        positions = None if self.override is None else torch.arange(first, first + x.size(1), device=x.device)
        context, weights = self.attend(
            query, cross, mask=mask, causal=False, need_weights=need_weights, positions=positions
        )
        return HeadContexts(context.view_as(x), weights)
