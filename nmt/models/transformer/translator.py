"""The whole: embeddings, encoder, decoder and the output layer."""

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.layers.dropout import Dropout, WordDropout
from nmt.layers.multi_head import KeysValues, LayerSettings, linear
from nmt.layers.transformer import Decoded, DecoderLayer, EncoderLayer
from nmt.models.base import Attentions, Read, Step, Translator


class TransformerMemory(NamedTuple):
    """states [B, S, H]; mask: True is a real source token [B, S]; cross: each decoder layer's keys and values."""

    states: Tensor
    mask: Tensor
    cross: tuple[KeysValues, ...]


# Each decoder layer's keys and values of the t pieces so far [N, t, 2H].
TransformerState = tuple[Tensor, ...]


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
        if min(size, feedforward_size) < 1:
            raise ValueError(
                f"model.size and model.feedforward_size must be at least 1, got {size} and {feedforward_size}"
            )
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

    @property
    def max_length(self) -> int | None:
        return getattr(self.src_positions, "max_length", None)

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
