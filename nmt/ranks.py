"""The processes (ranks) of one run: what they agree on and exchange."""

import functools
import os
from datetime import datetime
from typing import Any

import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """This process' number among those that have joined; 0 where it is alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def gathered(value: Any) -> list[Any]:
    """Every rank's value, in the order of ranks, on every rank. All must call it."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def united(part: dict[int, Any]) -> dict[int, Any]:
    """The union of every rank's dictionary by example, in order, on every rank."""
    return dict(sorted((row, value) for each in gathered(part) for row, value in each.items()))


def all_true(value: Tensor) -> bool:
    """Whether a boolean scalar is true on every rank. All must call it."""
    if not dist.is_initialized():
        return bool(value)
    agreed = value.int()
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    return bool(agreed)


def summed(*numbers: float) -> list[float]:
    """The sums of each of these numbers over all ranks, in the order of ranks. All must call it."""
    return [sum(each) for each in zip(*gathered(numbers), strict=True)]


def started(form: str) -> str:
    """When the run started, by rank 0's clock and as strftime writes it: the same in each process of the run.

    Tasks of a SLURM job step have no one to ask before they join: they take the numbers of job and step instead.
    """
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1 and not dist.is_torchelastic_launched():
        return f"job_{os.environ['SLURM_JOB_ID']}_{os.environ['SLURM_STEP_ID']}"
    return _start()[0].strftime(form)


@functools.cache
def _start() -> tuple[datetime, Any]:
    """When the run started, and the store that said so: rank 0 may hold it for all, and the others may ask later."""
    now = datetime.now()
    if not dist.is_torchelastic_launched():
        return now, None
    store, number, _ = next(dist.rendezvous("env://"))
    if number == 0:
        store.set("nmt/started", now.isoformat())
    return datetime.fromisoformat(store.get("nmt/started").decode()), store
