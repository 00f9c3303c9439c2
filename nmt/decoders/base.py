"""The base class of decoders."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from nmt.encoders.base import Encoded


class Read(NamedTuple):
    """What the output layer reads under teacher forcing: features [B, T, R]; weights [B, T, S] where asked for.

    Where there are several heads or layers, `weights` is their mean.
    """

    features: Tensor
    weights: Tensor | None


class DecoderStep(NamedTuple):
    """One step of N hypotheses: features [N, R], the state after it, weights [N, S] or None."""

    features: Tensor
    state: Any
    weights: Tensor | None


class Decoder(nn.Module, ABC):
    """Predicts each target piece from those before it and from the encoded source.

    It reads its own or a shared embedding of pieces, `embedding(tgt)` [B, T, E]. Nothing is remembered on `self`
    between calls: what was decoded so far is the state, a value that goes in and comes out.

    features_size: R, the width of what the output layer reads. alignment_layer: the layer whose weights are read as
    the alignment; None is the mean over all. max_length: the most target pieces, BOS included; None is any number.
    needs_documents: whether it needs the sentences of a document. reads_summary: whether it reads the encoder's
    summary.
    """

    needs_documents = False
    reads_summary = False
    features_size: int
    alignment_layer: int | None = None
    max_length: int | None = None

    @property
    @abstractmethod
    def has_attention(self) -> bool:
        """Whether it has an attention."""

    @property
    @abstractmethod
    def cross_attentions(self) -> list[nn.Module]:
        """The modules that attend to the encoder's states, bottom layer first."""

    @abstractmethod
    def prepare(self, encoded: Encoded) -> Any:
        """What is computed once a sentence, keys above all: the memory, a plain container, B first."""

    @abstractmethod
    def unroll(self, memory: Any, tgt_in: Tensor, *, need_weights: bool) -> Read:
        """Features of a whole target under teacher forcing; `tgt_in` [B, T] begins with BOS."""

    @abstractmethod
    def attentions(self, memory: Any, tgt_in: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Each layer's and head's weights: cross [B, L, K, T, S] and self [B, L, K, T, T]; None without any."""

    @abstractmethod
    def init_state(self, memory: Any) -> Any:
        """The state before the first step, one hypothesis a sentence: tensors with B first."""

    @abstractmethod
    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool) -> DecoderStep:
        """Advance N = B * K hypotheses by one piece: `tgt_prev` [N], the K hypotheses of a sentence adjacent."""
