"""The base class of encoders, and their output."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn


class Encoded(NamedTuple):
    """A batch of encoded sources.

    states: encoder states [B, S, M]. mask: True is a real source token [B, S]. summary: one vector a sentence
    [B, E], where the encoder has one.
    """

    states: Tensor
    mask: Tensor
    summary: Tensor | None


class Encoder(nn.Module, ABC):
    """Turns sources into states. It reads its own or a shared embedding of pieces, `embedding(src)` [B, S, E].

    output_size: M, the width of the states. summary_size: E, the width of the summary; None without one.
    max_length: the most pieces of a source; None is any number.
    """

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
        """Drop what only the states need, for a decoder without attention: its weights would get no gradient."""
