"""Where the time of a training step and the memory go."""

import ctypes
import gc
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from nmt.benchmark.steps import TrainingStep, train_seconds
from nmt.data.batching import Batch
from nmt.training.memory import held_memory


def operator_shares(step: TrainingStep, batches: Sequence[Batch], *, num_operators: int) -> dict[str, float]:
    """The operators with the largest shares of a training step's time, what they call left out, largest first."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it announces itself on standard error
    cuda = step.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        train_seconds(step, batches)
    times = Counter[str]()
    for event in profiler.key_averages():
        # On a GPU an operator's own time is that of the kernels it started; they are listed beside it again.
        if event.device_type == torch.autograd.DeviceType.CPU:
            times[event.key] += event.self_device_time_total if cuda else event.self_cpu_time_total
    total = sum(times.values())
    return {name: own / total for name, own in times.most_common(num_operators)}


def peak_memory(work: Callable[[], Any], device: torch.device) -> int | None:
    """Bytes at most held during `work()` beyond those held before: of the GPU, else of the process (sampled).

    None on a CPU where the system does not tell. `work` runs once before it is watched, so that what libraries
    keep for themselves is not counted.
    """
    work()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - held
    if held_memory() is None:
        return None
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps what was freed
        trim(0)
    with _sampled() as samples:
        work()
    return max(samples) - samples[0]


@contextmanager
def _sampled() -> Iterator[list[int]]:
    """A list that grows every millisecond by what this process holds."""
    samples, left = [held_memory() or 0], threading.Event()

    def sample() -> None:
        while not left.wait(0.001):
            samples.append(held_memory() or 0)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        samples.append(held_memory() or 0)
        left.set()
        thread.join()
