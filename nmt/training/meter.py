"""The meter of training: loss, target pieces and seconds, since the last logged step and in all."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from nmt import distributed
from nmt.training.losses import LossSum


class Meter:
    """Counts the loss of this rank, the target pieces of all ranks, and the seconds of training.

    Its clock runs from `start` to `stop`; validations do not count. seconds, tokens: the totals at the last `count`.
    """

    def __init__(self) -> None:
        self.seconds, self.tokens = 0.0, 0
        self.since_count: list[LossSum] = []
        # Loss and tokens since the last count that the checkpoint of a resumed run holds
        self._before_resuming = (0.0, 0.0)
        self._started: float | None = None  # time of the last start; None while the clock is stopped
        self._stopped_seconds = 0.0  # on the clock before that time, since the last count

    def add(self, loss: LossSum) -> None:
        self.since_count.append(LossSum(loss.smoothed.detach(), loss.nll, loss.num_tokens))

    def start(self) -> None:
        self.stop()
        self._started = time.perf_counter()

    def stop(self) -> None:
        self._stopped_seconds, self._started = self._seconds_on_clock(), None

    def _seconds_on_clock(self) -> float:
        """Seconds of training since the last count."""
        return self._stopped_seconds + (0.0 if self._started is None else time.perf_counter() - self._started)

    def count(self) -> tuple[float, int, float]:
        """The loss in nats and the target pieces of all ranks, and the seconds, since the last count.

        All ranks must call it.
        """
        loss_sum, tokens_sum = distributed.sum_over_ranks(
            *sum_losses(self.since_count, self._before_resuming)
        )
        self.since_count.clear()
        self._before_resuming = (0.0, 0.0)
        seconds, self._stopped_seconds = self._seconds_on_clock(), 0.0
        if self._started is not None:
            self._started = time.perf_counter()
        self.seconds += seconds
        self.tokens += int(tokens_sum)
        return loss_sum, int(tokens_sum), seconds

    def tokens_per_second(self) -> float:
        """Target pieces of all ranks per second of training so far. All ranks must call it."""
        [since] = distributed.sum_over_ranks(sum_losses(self.since_count, self._before_resuming)[1])
        return (self.tokens + since) / max(self.seconds + self._seconds_on_clock(), 1e-9)

    def state_dict(self) -> dict[str, Any]:
        """The totals of this rank, so that a resumed run counts on from them."""
        return {
            "since_log": sum_losses(self.since_count, self._before_resuming),
            "seconds_on_clock": self._seconds_on_clock(),
            "train_seconds": self.seconds,
            "train_tokens": self.tokens,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._before_resuming, self._stopped_seconds = state["since_log"], state["seconds_on_clock"]
        self.seconds, self.tokens = state["train_seconds"], state["train_tokens"]


def sum_losses(parts: Sequence[LossSum], before: tuple[float, float] = (0.0, 0.0)) -> tuple[float, float]:
    """The loss in nats and the number of target pieces, summed over batches in order, starting with `before`."""
    if not parts:
        return before
    # One transfer: the CPU waits for the device once
    losses, counts = (
        torch.stack(each).tolist() for each in ([p.nll for p in parts], [p.num_tokens for p in parts])
    )
    return sum(losses, start=before[0]), sum(counts, start=before[1])
