"""Initial weights of models."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def glorot_(weight: Tensor, *, parts: int = 1) -> None:
    """Initialise `parts` maps of equal shape, one below the other in weight, each by itself: uniform with a variance of
    2 / (in + out) (Glorot & Bengio 2010, eq. 16)."""
    for part in weight.chunk(parts):
        nn.init.xavier_uniform_(part)


@torch.no_grad()
def orthogonal_(weight: Tensor, *, parts: int = 1) -> None:
    """Initialise `parts` square maps, one below the other in weight, each orthogonal by itself (Saxe et al. 2014)."""
    for part in weight.chunk(parts):
        nn.init.orthogonal_(part)


def initialise_linear(layer: nn.Linear, *, parts: int = 1) -> None:
    """Initialise a layer of `parts` maps of equal shape by `glorot_`, its biases at 0."""
    glorot_(layer.weight, parts=parts)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
