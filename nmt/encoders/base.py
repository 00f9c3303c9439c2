"""The base class of encoders, and the type of their output."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn


class Document(NamedTuple):
    """The sentences of a batch of documents: at most N sentences of at most W words.

    states [B, N, M]: a state per sentence.
    mask [B, N]: True is a real sentence.
    pooling [B, N, W]: the weight of each word in its sentence.
    slots [B, S]: the index in N * W of each source position.
    places [B, N, W]: the source position of each slot.
    inside [B, N, W]: True is a slot that holds a word.
    """

    states: Tensor
    mask: Tensor
    pooling: Tensor
    slots: Tensor
    places: Tensor
    inside: Tensor


class Encoded(NamedTuple):
    """A batch of encoded sources.

    states [B, S, M]: the encoder's states.
    mask [B, S]: True is a real source token.
    summary [B, E]: a vector per sentence, or None if the encoder has no summary.
    document: the sentences of the sources, or None if the encoder does not know them.
    """

    states: Tensor
    mask: Tensor
    summary: Tensor | None
    document: Document | None = None


class Encoder(nn.Module, ABC):
    """Turns sources into states. `embedding(src)` [B, S, E] embeds pieces; the decoder may share it.

    output_size: M, the width of the states.
    summary_size: E, the width of the summary; None without a summary.
    max_length: the most pieces of a source; None for no limit.
    reads_documents: True if the output has a `document`.
    """

    reads_documents = False
    output_size: int
    summary_size: int | None = None
    max_length: int | None = None

    @abstractmethod
    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        """Encode `src` [B, S] under `src_mask` [B, S] (True is real)."""

    def attentions(self, src: Tensor, src_mask: Tensor) -> tuple[Encoded, Tensor | None]:
        """The result of `forward`, and the self-attention by layer and head [B, L, K, S, S]; None without any."""
        return self(src, src_mask), None

    def keep_summary_only(self) -> None:
        """Drop the layers that serve only the states (in a hierarchical encoder, the states of sentences).

        For a decoder that does not read these states: the weights of the layers would get no gradient.
        """
