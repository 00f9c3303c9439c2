"""Dropout of single units and of whole words.

    y = x * m / (1 - p)      m = 1 with probability 1 - p, else 0      (Srivastava et al. 2014)

Active only in training, and only if p > 0.
"""

import torch
from torch import Tensor, nn


def dropout_mask(shape: tuple[int, ...], p: float, *, like: Tensor) -> Tensor:
    """Draw a mask of `1 / (1 - p)` with probability 1 - p, else 0, with the type and device of `like`.

    On the CPU a random byte decides each element, and a draw of 64 bits decides eight: five times as fast as a
    Bernoulli draw per element. There p is rounded to a multiple of 1/256, from 1/256 to 255/256.
    """
    if like.device.type != "cpu":
        return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - p).div_(1 - p)
    kept = min(max(round(256 * (1 - p)), 1), 255)  # values of a byte, of 256, that keep an element
    size = torch.Size(shape).numel()
    draws = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    mask = draws.view(torch.uint8)[:size].view(shape) < kept
    return mask.to(like.dtype).mul_(256 / kept)


class Dropout(nn.Module):
    """Dropout of single elements of x. Raises ValueError unless `0 <= p < 1`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability must be from 0 to below 1, got {p}")
        self.p = p

    def mask_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(self.mask_shape(x), self.p, like=x)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class WordDropout(Dropout):
    """Dropout of whole positions of embedded words x [B, T, E] (Sennrich & Zhang 2019)."""

    def mask_shape(self, x: Tensor) -> tuple[int, ...]:
        return (x.size(0), x.size(1), 1)
