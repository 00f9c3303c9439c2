"""Attention set by hand: given weights at chosen target positions, the model's own weights elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

_Held = Mapping[int, Tensor]  # target position t, from 0: its weights [S]
_held: ContextVar[tuple[nn.Module, _Held] | None] = ContextVar("held", default=None)


@contextmanager
def holding(attention: nn.Module, rows: _Held) -> Iterator[None]:
    """Inside the block, `attention` has the weights `rows[t]` [S] at target position t, in all heads.

    All sentences in the block have the same source of S positions, its end included. Other threads are not affected.
    """
    token = _held.set((attention, rows) if rows else None)
    try:
        yield
    finally:
        _held.reset(token)


def is_held(attention: nn.Module) -> bool:
    """Whether rows of this attention are held, so that its weights must be computed."""
    held = _held.get()
    return held is not None and held[0] is attention


def held(attention: nn.Module, weights: Tensor, positions: Tensor | None) -> Tensor:
    """`weights` [..., T, S] with the held rows replaced; positions [..., T], or [..., 1] if all queries share one."""
    now = _held.get()
    if now is None or now[0] is not attention or positions is None:
        return weights
    for position, row in now[1].items():
        weights = torch.where((positions == position).unsqueeze(-1), row.to(weights), weights)
    return weights
