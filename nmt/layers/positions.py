"""Encodings of positions, added to embeddings or turning queries and keys."""

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


class RotaryPositions(nn.Module):
    """Turn queries and keys by angles that grow with the position, and add nothing to embeddings (Su et al. 2021, 3.2).

    At position t, numbers i and i + d/2 of a head of width d turn together by `t / 10000^(2i/d)`, so that the score of
    t and s depends on what they hold and on t - s. Texts may have any length.
    """

    def __init__(self, *, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, embedded: Tensor, *, first: int) -> Tensor:
        """Return `embedded` as it is."""
        return embedded

    def turns(self, embedded: Tensor, *, first: int, num_heads: int) -> Tensor:
        """Cosine and sine [2, T, d/2] of the angles for `embedded` [B, T, H], which begins at position `first`."""
        half = self.size // num_heads // 2
        dtype = torch.promote_types(embedded.dtype, torch.float32)  # bfloat16 cannot represent 257
        positions = torch.arange(first, first + embedded.size(1), dtype=dtype, device=embedded.device)
        numbers = torch.arange(half, dtype=dtype, device=embedded.device)
        angles = positions.unsqueeze(1) * 10000 ** (-numbers / half)
        return torch.stack((angles.cos(), angles.sin()))


def turns_of(positions: nn.Module, embedded: Tensor, *, first: int, num_heads: int) -> Tensor | None:
    """`RotaryPositions.turns`; None for positions that turn nothing."""
    if not isinstance(positions, RotaryPositions):
        return None
    return positions.turns(embedded, first=first, num_heads=num_heads)


def turn(x: Tensor, turns: Tensor) -> Tensor:
    """Turn x [B, K, T, d] by the angles whose cosine and sine are `turns` [2, T, d/2]; the last of an odd d stays."""
    cosine, sine = turns.to(x.dtype)
    half = cosine.size(-1)
    left, right, rest = x.split((half, half, x.size(-1) - 2 * half), dim=-1)
    return torch.cat((left * cosine - right * sine, left * sine + right * cosine, rest), dim=-1)
