"""Measurement of peak memory."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nmt.training.memory import give_back, held_memory


def peak_memory_of(work: Callable[[], Any], device: torch.device) -> int:
    """Peak memory of `work()` in bytes, above the memory held before: of the GPU, else of the process (sampled).

    `work` runs once before the measurement, so that memory that libraries keep does not count.
    """
    work()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - held
    give_back()
    with _sample_memory() as samples:
        work()
    return max(samples) - samples[0]


@contextmanager
def _sample_memory() -> Iterator[list[int]]:
    """A list to which the memory of this process, in bytes, is appended every millisecond."""
    samples, left = [held_memory()], threading.Event()

    def sample() -> None:
        while not left.wait(0.001):
            samples.append(held_memory())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        samples.append(held_memory())
        left.set()
        thread.join()
