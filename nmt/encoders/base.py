"""The base class of encoders, and their output."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn


class Document(NamedTuple):
    """The sentences of sources that are documents, at most N of at most W words.

    states: [B, N, M], one a sentence. mask: True is a real sentence [B, N]. pooling: what each word weighs in its
    sentence [B, N, W]. slots: where in N * W each source position stands [B, S]. places: the position in S of each slot
    [B, N, W]. inside: True is a slot that has one [B, N, W].
    """

    states: Tensor
    mask: Tensor
    pooling: Tensor
    slots: Tensor
    places: Tensor
    inside: Tensor


class Encoded(NamedTuple):
    """A batch of encoded sources.

    states: encoder states [B, S, M]. mask: True is a real source token [B, S]. summary: one vector a sentence
    [B, E], where the encoder has one. document: its sentences, where the encoder knows them.
    """

    states: Tensor
    mask: Tensor
    summary: Tensor | None
    document: Document | None = None


class Encoder(nn.Module, ABC):
    """Turns sources into states. It reads its own or a shared embedding of pieces, `embedding(src)` [B, S, E].

    output_size: M, the width of the states. summary_size: E, the width of the summary; None without one.
    max_length: the most pieces of a source; None is any number. reads_documents: whether its output has `document`.
    """

    reads_documents = False
    output_size: int
    summary_size: int | None = None
    max_length: int | None = None

    @abstractmethod
    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        """Encode `src` [B, S] under `src_mask` [B, S] (True is real)."""

    def attentions(self, src: Tensor, src_mask: Tensor) -> tuple[Encoded, Tensor | None]:
        """As `forward`, and each layer's and head's self-attention [B, L, K, S, S]; None without any."""
        return self(src, src_mask), None

    def keep_summary_only(self) -> None:
        """Drop what only the states need (of a document those of its sentences), for a decoder that does not read them:
        its weights would get no gradient.
        """
