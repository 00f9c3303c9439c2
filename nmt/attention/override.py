"""Attention set by hand: a function that replaces the weights of one attention module."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Weights [..., T, S] and target positions [..., T] from 0 to the weights to use. Positions are [..., 1] if all queries
# share one.
Override = Callable[[Tensor, Tensor], Tensor]


@contextmanager
def override_attention(attention: nn.Module, override: Override | None) -> Iterator[None]:
    """Inside the block, `attention`, a mechanism or a Transformer's cross-attention, uses the weights of `override`."""
    attention.override = override  # type: ignore[assignment]
    try:
        yield
    finally:
        attention.override = None  # type: ignore[assignment]


def fixed_rows(rows: Mapping[int, Tensor]) -> Override:
    """The override that gives target position t the weights `rows[t]` [S], in all heads and sentences."""

    def override(weights: Tensor, positions: Tensor) -> Tensor:
        for position, row in rows.items():
            weights = torch.where((positions == position).unsqueeze(-1), row.to(weights), weights)
        return weights

    return override
