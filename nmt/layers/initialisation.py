"""Initial weights of layers."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def glorot_(weight: Tensor, *, parts: int = 1) -> None:
    """Initialise `parts` maps of equal shape, stacked in `weight`, separately (Glorot & Bengio 2010, eq. 16).

    The distribution is uniform with variance 2 / (in + out).
    """
    for part in weight.chunk(parts):
        nn.init.xavier_uniform_(part)


@torch.no_grad()
def orthogonal_(weight: Tensor, *, parts: int = 1) -> None:
    """Initialise `parts` square maps, stacked in `weight`, as separate orthogonal maps (Saxe et al. 2014)."""
    for part in weight.chunk(parts):
        nn.init.orthogonal_(part)


def initialise_linear(layer: nn.Linear, *, parts: int = 1) -> None:
    """Initialise a layer of `parts` maps of equal shape by `glorot_`, and its bias with zeros."""
    glorot_(layer.weight, parts=parts)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
