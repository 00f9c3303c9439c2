"""Attention held by hand: the weights of chosen target positions are given, all others are the model's own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

_Held = Mapping[int, Tensor]  # target position t, from 0: its weights [S]
_held: ContextVar[tuple[nn.Module, _Held] | None] = ContextVar("held", default=None)


@contextmanager
def holding(attention: nn.Module, rows: _Held) -> Iterator[None]:
    """Inside the block `attention` gives target position t the weights `rows[t]` [S], in each of its heads.

    The block is for sentences of one source, S positions long with its end. Other threads are not concerned.
    """
    token = _held.set((attention, rows) if rows else None)
    try:
        yield
    finally:
        _held.reset(token)


def is_held(attention: nn.Module) -> bool:
    """Whether rows of this attention are held, so that its weights must exist."""
    held = _held.get()
    return held is not None and held[0] is attention


def held(attention: nn.Module, weights: Tensor, positions: Tensor | None) -> Tensor:
    """Weights [..., T, S] with the rows that are held; positions [..., T], or [..., 1] where all queries share one."""
    now = _held.get()
    if now is None or now[0] is not attention or positions is None:
        return weights
    for position, row in now[1].items():
        weights = torch.where((positions == position).unsqueeze(-1), row.to(weights), weights)
    return weights
