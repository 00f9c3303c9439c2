"""The base class of decoders."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from nmt.encoders.base import Encoded


class Read(NamedTuple):
    """Input of the output layer under teacher forcing: features [B, T, R]; weights [B, T, S], None if not needed.

    `weights` are means over heads, and over layers unless there is an `alignment_layer`.
    """

    features: Tensor
    weights: Tensor | None


class DecoderStep(NamedTuple):
    """A step of N hypotheses: features [N, R], the next state, weights [N, S] or None."""

    features: Tensor
    state: Any
    weights: Tensor | None


class Decoder(nn.Module, ABC):
    """Predicts each target piece from the pieces before it and from the encoded source.

    `embedding(tgt)` [B, T, E] embeds pieces; the encoder may share it. Nothing is remembered on `self` between calls:
    the state is passed in and returned.

    features_size: R, the width of the features.
    alignment_layer: the layer that alignments are read from; None for the mean over all layers.
    max_length: the most target pieces, BOS included; None for no limit.
    needs_documents: True if it needs the sentences of a document.
    reads_summary: True if it reads the encoder's summary.
    """

    needs_documents = False
    reads_summary = False
    features_size: int
    alignment_layer: int | None = None
    max_length: int | None = None

    @property
    @abstractmethod
    def has_attention(self) -> bool:
        """True if the decoder has an attention."""

    @property
    @abstractmethod
    def cross_attentions(self) -> list[nn.Module]:
        """The modules that attend to the encoder's states, bottom layer first."""

    @abstractmethod
    def prepare(self, encoded: Encoded) -> Any:
        """Compute the memory, above all keys, once per sentence. Returns a plain container with B first."""

    @abstractmethod
    def unroll(self, memory: Any, tgt_in: Tensor, *, need_weights: bool) -> Read:
        """Features of a whole target under teacher forcing; `tgt_in` [B, T] begins with BOS."""

    @abstractmethod
    def attentions(self, memory: Any, tgt_in: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Weights by layer and head: cross [B, L, K, T, S] and self [B, L, K, T, T]; None without such an attention."""

    @abstractmethod
    def init_state(self, memory: Any) -> Any:
        """The state before the first step, a hypothesis per sentence: tensors with B first."""

    @abstractmethod
    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool) -> DecoderStep:
        """Advance N = B * K hypotheses by one piece; `tgt_prev` [N] has the K hypotheses of a sentence side by side."""
