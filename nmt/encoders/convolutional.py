"""The convolutional encoder: a stack of gated convolutions."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.types import Count, Share
from nmt.encoders.base import Encoded, Encoder
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding
from nmt.layers.initialisation import initialise_linear
from nmt.layers.positions import RotaryPositions


class ConvolutionalEncoder(Encoder):
    """Gated convolutions over embeddings with positions (Gehring et al. 2017, section 3).

        x^0 = W_in (E x + P)      [A; B] = conv^l(x^{l-1})
        x^l = sqrt(1/2) (x^{l-1} + A * sigmoid(B))      h = W_out x^L

    A convolution reads the `kernel_size` positions around its position; the edges of a sentence are padded with
    zeros. `size` is the width of x^l; the states are as wide as the embeddings. `positions` builds the encoding of
    positions. `dropout` is on embeddings and on the input of each convolution. Weights are initialised as in section
    3.5 of the paper, without weight normalisation. Attention reads h, not h + E x as in the paper.

    Raises ValueError for an even kernel size, which has no middle.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        size: Count,
        num_layers: Count,
        kernel_size: Count,
        dropout: Share,
        positions: Callable[..., nn.Module],
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"encoder.kernel_size must be odd, got {kernel_size}")
        self.embedding, self.output_size = embedding, embedding.embedding_dim
        self.positions, self.dropout = positions(size=self.output_size), Dropout(dropout)
        if isinstance(self.positions, RotaryPositions):
            raise ValueError("encoder=convolutional has no queries to turn: give positions=learned")
        self.max_length = getattr(self.positions, "max_length", None)
        self.enter, self.leave = nn.Linear(self.output_size, size), nn.Linear(size, self.output_size)
        convolutions = [
            nn.Conv1d(size, 2 * size, kernel_size, padding=kernel_size // 2) for _ in range(num_layers)
        ]
        self.convolutions = nn.ModuleList(convolutions)
        for linear in (self.enter, self.leave):
            initialise_linear(linear)
        for convolution in convolutions:
            # The gate halves A, so the variance of A must be four times that of the output.
            nn.init.normal_(convolution.weight, std=math.sqrt(4 * (1 - dropout) / (size * kernel_size)))
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]

    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        mask = src_mask.unsqueeze(-1)  # [B, S, 1]
        x = self.enter(self.dropout(self.positions(self.embedding(src), first=0)))  # [B, S, H]
        for convolution in self.convolutions:
            real = (self.dropout(x) * mask).transpose(1, 2)  # [B, H, S]
            x = math.sqrt(0.5) * (x + F.glu(convolution(real), dim=1).transpose(1, 2))
        return Encoded(self.leave(x) * mask, src_mask, None)
