"""The Transformer (Vaswani et al. 2017): an encoder and a decoder of attention alone, layer norms before or after.

    h = encoder(E x + P)      r = decoder(E y + P, h)      p(y_t | y_<t, x) = softmax(W_y r_t)

Beside the package's letters: H is the model's size, L its layers, K its heads, d = H / K a head's size.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import kernels
from nmt.dropout import Dropout, WordDropout
from nmt.errors import UserError
from nmt.masks import causal_mask, masked_softmax
from nmt.models.base import Attentions, Read, Step, Translator


class KeysValues(NamedTuple):
    """What a layer attends to, already projected and split into heads: keys and values [B, K, S, d] each."""

    keys: Tensor
    values: Tensor


class TransformerMemory(NamedTuple):
    """states [B, S, H]; mask: True is a real source token [B, S]; cross: each decoder layer's keys and values."""

    states: Tensor
    mask: Tensor
    cross: tuple[KeysValues, ...]


TransformerState = tuple[
    Tensor, ...
]  # each decoder layer's keys and values of the t pieces so far [N, t, 2H]


# --- positions ------------------------------------------------------------------------------------------


class SinusoidalPositions(nn.Module):
    """Add `P[t, 2i] = sin(t / 10000^(2i/H))` and `P[t, 2i+1] = cos(t / 10000^(2i/H))` (Vaswani et al. 2017, 3.5).

    Any length will do. Raises ValueError for an odd size, as sine and cosine come in pairs.
    """

    def __init__(self, *, size: int) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"sinusoidal positions need an even model.size, got {size}")
        self.size = size

    def forward(self, embedded: Tensor, *, first: int) -> Tensor:
        """embedded [B, T, H], whose first position is `first`, plus P."""
        dtype = torch.promote_types(embedded.dtype, torch.float32)  # half a float cannot count to 300
        positions = torch.arange(first, first + embedded.size(1), dtype=dtype, device=embedded.device)
        evens = torch.arange(0, self.size, 2, dtype=dtype, device=embedded.device)
        angles = positions.unsqueeze(1) * 10000 ** (-evens / self.size)  # [T, H/2]
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # [T, H]
        return embedded + table.to(embedded.dtype)


class LearnedPositions(nn.Module):
    """Add a learned vector for each of the positions from 0 to `max_length - 1` (Gehring et al. 2017)."""

    def __init__(self, *, size: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, size))
        nn.init.normal_(self.table, std=size**-0.5)

    def forward(self, embedded: Tensor, *, first: int) -> Tensor:
        """embedded [B, T, H], whose first position is `first`, plus its vectors. Raises UserError, a ValueError,
        past the last."""
        length, max_length = first + embedded.size(1), self.table.size(0)
        if length > max_length:
            raise UserError(
                f"a text of {length} pieces needs model.positions.max_length={length}, got {max_length}"
            )
        return embedded + self.table[first:length]


# --- attention ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerSettings:
    """What every layer is built from."""

    size: int
    feedforward_size: int
    num_heads: int
    pre_norm: bool
    dropout: float
    attention_dropout: float
    activation_dropout: float


class Attended(NamedTuple):
    """context [B, T, H]; weights [B, K, T, S], before any is dropped, where asked for."""

    context: Tensor
    weights: Tensor | None


def linear(in_size: int, out_size: int, *, parts: int) -> kernels.Linear:
    """`parts` maps of equal shape as one, each started by itself (Glorot & Bengio 2010); biases start at 0."""
    layer = kernels.Linear(in_size, parts * out_size)
    with torch.no_grad():
        for part in layer.weight.chunk(parts):
            nn.init.xavier_uniform_(part)
    nn.init.zeros_(layer.bias)
    return layer


class MultiHeadAttention(nn.Module):
    """`softmax(q k^T / sqrt(d)) v` in each head, joined and projected (Vaswani et al. 2017, eq. 1 and 3.2.2).

    A subclass says where queries, keys and values come from.
    """

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.num_heads = settings.num_heads
        self.dropout = Dropout(settings.attention_dropout)
        self.output = linear(settings.size, settings.size, parts=1)

    def attend(
        self, query: Tensor, cache: KeysValues, *, mask: Tensor | None, causal: bool, need_weights: bool
    ) -> Attended:
        """Attend with query [B, K, T, d]: to what is True in mask, which broadcasts to [B, K, T, S]; or to all (None);
        or, where `causal`, from position t to those up to t."""
        # A fused kernel neither tells its weights nor, on the CPU, drops any.
        if need_weights or (self.training and self.dropout.p > 0):
            scores = (query * query.size(-1) ** -0.5) @ cache.keys.transpose(-2, -1)  # [B, K, T, S]
            if causal:
                mask = causal_mask(query.size(2), query.device)
            weights = scores.softmax(dim=-1) if mask is None else masked_softmax(scores, mask)
            contexts = self.dropout(weights) @ cache.values  # [B, K, T, d]
        else:
            weights = None
            contexts = F.scaled_dot_product_attention(query, *cache, attn_mask=mask, is_causal=causal)
        return Attended(self.output(contexts.transpose(1, 2).flatten(2)), weights if need_weights else None)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H] as [B, K, T, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class SelfAttention(MultiHeadAttention):
    """Positions of one sequence attend to each other."""

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__(settings)
        self.projection = linear(settings.size, settings.size, parts=3)  # W_q, W_k, W_v

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, K, T, d], and keys and values side by side [B, T, 2H], of x [B, T, H]."""
        query, own = self.projection(x).split((x.size(-1), 2 * x.size(-1)), dim=-1)
        return self.split(query), own

    def heads(self, own: Tensor) -> KeysValues:
        """Keys and values side by side [B, T, 2H], apart and split into heads, without a copy."""
        return KeysValues(*map(self.split, own.chunk(2, dim=-1)))


class CrossAttention(MultiHeadAttention):
    """Target positions attend to the encoder's states."""

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__(settings)
        self.query_projection = linear(settings.size, settings.size, parts=1)
        self.states_projection = linear(settings.size, settings.size, parts=2)  # W_k, W_v

    def project_states(self, states: Tensor) -> KeysValues:
        keys, values = map(self.split, self.states_projection(states).chunk(2, dim=-1))
        return KeysValues(keys, values)

    def forward(self, x: Tensor, cross: KeysValues, mask: Tensor, *, need_weights: bool) -> Attended:
        """Attend with x [B, T, H]; or with x [N, 1, H]: the N / B hypotheses of a sentence, side by side, are then
        its T, and share its keys without a copy. mask [B, 1, 1, S]."""
        beside = x.view(cross.keys.size(0), -1, x.size(-1))  # [B, T, H]
        query = self.split(self.query_projection(beside))
        context, weights = self.attend(query, cross, mask=mask, causal=False, need_weights=need_weights)
        return Attended(context.view_as(x), weights)


# --- layers ---------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """What surrounds a sublayer f: `norm(x + f(x))` (Vaswani et al. 2017), or with `pre_norm` `x + f(norm(x))`
    (Xiong et al. 2020). f's output is dropped out."""

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.size)
        self.dropout = Dropout(settings.dropout)
        self.pre_norm = settings.pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """What f reads."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """x joined with what f made of it."""
        x = x + self.dropout(output)
        return x if self.pre_norm else self.norm(x)


class FeedForward(nn.Module):
    """`W_2 max(0, W_1 x + b_1) + b_2` (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.inner = linear(settings.size, settings.feedforward_size, parts=1)
        self.outer = linear(settings.feedforward_size, settings.size, parts=1)
        self.dropout = Dropout(settings.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.inner(x).relu_()))


class EncoderLayer(nn.Module):
    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings)
        self.feedforward = FeedForward(settings)
        self.around_self, self.around_feedforward = Residual(settings), Residual(settings)

    def forward(self, x: Tensor, mask: Tensor, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """x [B, S, H] and weights [B, K, S, S] where asked for, under mask [B, 1, 1, S]."""
        query, own = self.self_attention.project(self.around_self.enter(x))
        context, weights = self.self_attention.attend(
            query, self.self_attention.heads(own), mask=mask, causal=False, need_weights=need_weights
        )
        x = self.around_self.leave(x, context)
        return self.around_feedforward.leave(x, self.feedforward(self.around_feedforward.enter(x))), weights


class Decoded(NamedTuple):
    """x: what a layer made of its input, of the same shape; past: its keys and values side by side [B, t, 2H], the new
    ones included;
    self_weights [B, K, T, T] and cross_weights [B, K, T, S] where asked for."""

    x: Tensor
    past: Tensor
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
    ) -> Decoded:
        """A whole target x [B, T, H] without a past; or one position x [N, 1, H] after the past [N, t, 2H] of t.

        mask [B, 1, 1, S]. The target needs none for its padding, which stands after what a real position sees.
        """
        query, own = self.self_attention.project(self.around_self.enter(x))
        if past is not None:
            own = torch.cat((past, own), dim=1)
        context, self_weights = self.self_attention.attend(
            query, self.self_attention.heads(own), mask=None, causal=past is None, need_weights=need_self
        )
        x = self.around_self.leave(x, context)
        context, cross_weights = self.cross_attention(
            self.around_cross.enter(x), cross, mask, need_weights=need_cross
        )
        x = self.around_cross.leave(x, context)
        x = self.around_feedforward.leave(x, self.feedforward(self.around_feedforward.enter(x)))
        return Decoded(x, own, self_weights, cross_weights)


# --- the translator -------------------------------------------------------------------------------------


class TransformerTranslator(Translator):
    """Embeddings, encoder, decoder and the output layer.

    Embeddings start at N(0, 1/H) and are multiplied by sqrt(H). With `pre_norm` a last norm stands above
    either stack. `positions` builds what adds positions, once a language. `tie_output`: W_y is the target
    embedding; `tie_source`: the source embedding is the target's, which needs one joint vocabulary.
    `dropout` is on embeddings and what each sublayer adds, `attention_dropout` on attention weights,
    `activation_dropout` inside the feed-forward layers; `word_dropout` drops whole words of either input, before
    positions are added. `alignment_layer`: the decoder layer, from 0, whose
    weights, averaged over its heads, are those of `forward` and `step`; None averages over all layers too.
    With `gradient_checkpointing` the layers are computed again for the gradient, one at a time.

    Raises ValueError where sizes, ties or a number of layers do not fit.
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
        size: int,
        feedforward_size: int,
        num_heads: int,
        num_encoder_layers: int,
        num_decoder_layers: int,
        pre_norm: bool,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        tie_output: bool,
        tie_source: bool,
        alignment_layer: int | None,
        gradient_checkpointing: bool,
        positions: Callable[..., nn.Module],
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or size % num_heads:
            raise ValueError(f"model.num_heads must divide model.size={size}, got {num_heads}")
        if min(num_encoder_layers, num_decoder_layers) < 1:
            raise ValueError(
                "model.num_encoder_layers and model.num_decoder_layers must be at least 1, "
                f"got {num_encoder_layers} and {num_decoder_layers}"
            )
        if tie_source and not joint_vocabulary:
            raise ValueError(
                "model.tie_source=true needs one joint vocabulary: "
                "set model.tie_source=false or data.tokenizer.joint=true"
            )
        if alignment_layer is not None and alignment_layer not in range(num_decoder_layers):
            raise ValueError(
                f"model.alignment_layer={alignment_layer}: the decoder has {num_decoder_layers} layers, "
                "counted from 0"
            )
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.size, self.alignment_layer = size, alignment_layer
        self.gradient_checkpointing = gradient_checkpointing
        settings = LayerSettings(
            size=size,
            feedforward_size=feedforward_size,
            num_heads=num_heads,
            pre_norm=pre_norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
        )
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, size, padding_idx=pad_id)
        self.src_embedding = (
            self.tgt_embedding if tie_source else nn.Embedding(src_vocab_size, size, padding_idx=pad_id)
        )
        self.src_positions, self.tgt_positions = positions(size=size), positions(size=size)
        self.dropout, self.word_dropout = Dropout(dropout), WordDropout(word_dropout)
        self.encoder: Any = nn.ModuleList(EncoderLayer(settings) for _ in range(num_encoder_layers))
        self.decoder: Any = nn.ModuleList(DecoderLayer(settings) for _ in range(num_decoder_layers))
        # A stack of post-norm layers ends in a norm of its own; one of pre-norm layers ends in a bare sum.
        self.encoder_norm = nn.LayerNorm(size) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size) if pre_norm else nn.Identity()
        self.output = linear(size, tgt_vocab_size, parts=1)  # W_y
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=size**-0.5)
            nn.init.zeros_(embedding.weight[pad_id])
        if tie_output:
            self.output.weight = self.tgt_embedding.weight

    @property
    def has_attention(self) -> bool:
        return True

    def encode(self, src: Tensor, src_mask: Tensor) -> TransformerMemory:
        return self._encode(src, src_mask, need_weights=False)[0]

    def read(self, memory: TransformerMemory, tgt_in: Tensor, *, need_weights: bool = False) -> Read:
        layers = self._aligned_layers() if need_weights else ()
        top, decoded = self._decode(tgt_in, None, memory, need_self=False, need_cross=layers)
        return Read(top, self._alignment(decoded) if need_weights else None)

    def attentions(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Attentions:
        memory, encoder_self = self._encode(src, src_mask, need_weights=True)
        every = range(len(self.decoder))
        _, decoded = self._decode(tgt_in, None, memory, need_self=True, need_cross=every)
        return Attentions(
            cross=_stacked([layer.cross_weights for layer in decoded]),
            encoder_self=_stacked(encoder_self),
            decoder_self=_stacked([layer.self_weights for layer in decoded]),
        )

    def init_state(self, memory: TransformerMemory) -> TransformerState:
        nothing = memory.states.new_zeros(memory.states.size(0), 0, 2 * self.size)
        return (nothing,) * len(self.decoder)

    def step(
        self,
        tgt_prev: Tensor,
        state: TransformerState,
        memory: TransformerMemory,
        *,
        need_weights: bool = False,
    ) -> Step:
        layers = self._aligned_layers() if need_weights else ()
        top, decoded = self._decode(tgt_prev.unsqueeze(1), state, memory, need_self=False, need_cross=layers)
        weights = self._alignment(decoded).flatten(0, 1) if need_weights else None  # [B, K, S] -> [N, S]
        return Step(self.output(top.squeeze(1)), tuple(layer.past for layer in decoded), weights)

    def _encode(
        self, src: Tensor, src_mask: Tensor, *, need_weights: bool
    ) -> tuple[TransformerMemory, list[Tensor | None]]:
        """The memory of src [B, S], and each layer's weights where asked for."""
        x = self._embed(self.src_embedding(src), self.src_positions, first=0)  # [B, S, H]
        mask = src_mask[:, None, None]  # [B, 1, 1, S]
        all_weights = []
        for layer in self.encoder:
            x, weights = self._run(layer, x, mask, need_weights=need_weights)
            all_weights.append(weights)
        states = self.encoder_norm(x)
        # The keys of a sentence are the same at every step, so they are projected once.
        cross = tuple(layer.cross_attention.project_states(states) for layer in self.decoder)
        return TransformerMemory(states, src_mask, cross), all_weights

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
        x = self._embed(self.tgt_embedding(tgt), self.tgt_positions, first=first)
        mask = memory.mask[:, None, None]  # [B, 1, 1, S]
        decoded: list[Decoded] = []
        for number, layer in enumerate(self.decoder):
            past = None if state is None else state[number]
            needs = {"need_self": need_self, "need_cross": number in need_cross}
            decoded.append(self._run(layer, x, past, memory.cross[number], mask, **needs))
            x = decoded[-1].x
        return self.decoder_norm(x), decoded

    def _embed(self, embedded: Tensor, positions: nn.Module, *, first: int) -> Tensor:
        return self.dropout(positions(self.word_dropout(embedded * math.sqrt(self.size)), first=first))

    def _run(self, layer: nn.Module, *inputs: Any, **needs: bool) -> Any:
        """layer(*inputs), computed again for the gradient where that is asked for."""
        run = partial(layer, **needs)
        if not (self.gradient_checkpointing and torch.is_grad_enabled()):
            return run(*inputs)
        return checkpoint(run, *inputs, use_reentrant=False)

    def _aligned_layers(self) -> Collection[int]:
        return range(len(self.decoder)) if self.alignment_layer is None else (self.alignment_layer,)

    def _alignment(self, decoded: list[Decoded]) -> Tensor:
        """The mean [B, T, S] over the heads of those layers that gave cross-attention weights."""
        return _stacked([layer.cross_weights for layer in decoded]).mean(dim=(1, 2))


def _stacked(weights: list[Tensor | None]) -> Tensor:
    """Those layers' weights [B, K, T, S] that there are, as one [B, L, K, T, S]."""
    return torch.stack([each for each in weights if each is not None], dim=1)
