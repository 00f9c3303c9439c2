"""Exchange values between the processes (ranks) of a run."""

from typing import Any

import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """The number of this process in the process group; 0 if it is alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(value: Any) -> list[Any]:
    """Every rank's value, in the order of ranks, on every rank. All ranks must call it."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def merge(part: dict[int, Any]) -> dict[int, Any]:
    """The union of every rank's dictionary by example, in order, on every rank."""
    return dict(sorted((row, value) for each in gather(part) for row, value in each.items()))


def all_true(value: Tensor) -> bool:
    """True if a boolean scalar is true on every rank. All ranks must call it."""
    if not dist.is_initialized():
        return bool(value)
    agreed = value.int()
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    return bool(agreed)


def sum_over_ranks(*numbers: float) -> list[float]:
    """The sums of these numbers over all ranks, in the order of ranks. All ranks must call it."""
    return [sum(each) for each in zip(*gather(numbers), strict=True)]
