"""Encodings of positions, added to embeddings."""

import torch
from torch import Tensor, nn

from nmt.config.types import Count
from nmt.errors import UserError


class SinusoidalPositions(nn.Module):
    """Add `P[t, 2i] = sin(t / 10000^(2i/H))` and `P[t, 2i+1] = cos(t / 10000^(2i/H))` (Vaswani et al. 2017, 3.5).

    Texts may have any length. Raises ValueError for an odd size, as sine and cosine come in pairs.
    """

    def __init__(self, *, size: int) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"sinusoidal positions need an even model.size, got {size}")
        self.size = size

    def forward(self, embedded: Tensor, *, first: int) -> Tensor:
        """Add P to `embedded` [B, T, H], which begins at position `first`."""
        dtype = torch.promote_types(embedded.dtype, torch.float32)  # bfloat16 cannot represent 257
        positions = torch.arange(first, first + embedded.size(1), dtype=dtype, device=embedded.device)
        evens = torch.arange(0, self.size, 2, dtype=dtype, device=embedded.device)
        angles = positions.unsqueeze(1) * 10000 ** (-evens / self.size)  # [T, H/2]
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # [T, H]
        return embedded + table.to(embedded.dtype)


class LearnedPositions(nn.Module):
    """Add a learned vector for each of the positions from 0 to `max_length - 1` (Gehring et al. 2017)."""

    def __init__(self, *, size: int, max_length: Count) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, size))
        nn.init.normal_(self.table, std=size**-0.5)

    @property
    def max_length(self) -> int:
        return self.table.size(0)

    def forward(self, embedded: Tensor, *, first: int) -> Tensor:
        """Add the learned vectors to `embedded` [B, T, H], which begins at position `first`.

        Raises UserError if it reaches beyond `max_length`.
        """
        length = first + embedded.size(1)
        if length > self.max_length:
            raise UserError(
                f"a text of {length} pieces is longer than positions.max_length={self.max_length}: train with more, "
                "or with positions=sinusoidal"
            )
        return embedded + self.table[first:length]
