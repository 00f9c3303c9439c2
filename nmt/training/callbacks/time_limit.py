"""The callback that ends a schedule with the time limit of a run."""

import logging
import math
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, Timer

from nmt.training.schedules import takes_total_steps

log = logging.getLogger(__name__)


class EndScheduleWithTime(Callback):
    """Ends a schedule that runs to the end of training when `trainer.max_time` is spent.

    The seconds per step, validations included, are measured at each validation until a quarter of the time is over,
    since the validation before, as first steps take longer (on a GPU many times as long); or after a quarter of the
    time if there was none. Checkpoints store the resulting number of steps, so that a resumed run has the same learning
    rates. If `trainer.max_time` changes, that number changes by the measured seconds. All ranks use rank 0's clock.
    """

    def __init__(self) -> None:
        self._timer: Timer | None = None
        self._last = (0, 0.0)  # step and seconds when this process began, or measured last
        self._measured = {"seconds_per_step": 0.0, "max_time": 0.0, "total_steps": 0.0}  # 0: not measured

    def state_dict(self) -> dict[str, Any]:
        return dict(self._measured)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        measured = {name: float(state_dict[name]) for name in self._measured}
        if all(map(math.isfinite, measured.values())):
            self._measured = measured

    @property
    def _duration(self) -> float:
        """`trainer.max_time` in seconds, 0 without it."""
        return 0.0 if self._timer is None else float(self._timer._duration or 0)

    @property
    def _is_measured(self) -> bool:
        return self._measured["seconds_per_step"] > 0

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not takes_total_steps(pl_module.scheduler_factory):
            return
        timers = [each for each in trainer.callbacks if isinstance(each, Timer)]  # type: ignore[attr-defined]
        self._timer = next(iter(timers), None)
        if self._timer is not None:
            self._last = (trainer.global_step, trainer.strategy.broadcast(self._timer.time_elapsed()))
            if self._is_measured:
                pl_module.end_schedule(self._total_steps())

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *unused: Any) -> None:
        if not self._is_measured:
            self._measure(trainer, pl_module, share=0.25)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not self._is_measured or self._last[1] <= 0.25 * self._duration:
            self._measure(trainer, pl_module, share=0.0)

    def _measure(self, trainer: L.Trainer, pl_module: Any, *, share: float) -> None:
        """Measure if there were steps since `_last`, and more than this share of the time that was left then."""
        if self._timer is None:
            return
        first, start = self._last
        now = trainer.strategy.broadcast(self._timer.time_elapsed())
        steps, duration = trainer.global_step - first, self._duration
        if not steps or now - start <= share * (duration - start):
            return
        seconds = (now - start) / steps
        self._last = (trainer.global_step, now)
        self._measured = {
            "seconds_per_step": seconds,
            "max_time": duration,
            "total_steps": trainer.global_step + (duration - now) / seconds,
        }
        if now > 0.25 * duration and self._total_steps() < trainer.estimated_stepping_batches:
            log.info(
                "%.3g s per step: trainer.max_time is spent after about %d steps, and the schedule ends there",
                *(seconds, self._total_steps()),
            )
        pl_module.end_schedule(self._total_steps())

    def _total_steps(self) -> int:
        more = self._duration - self._measured["max_time"]
        steps = self._measured["total_steps"] + more / self._measured["seconds_per_step"]
        return round(min(max(1.0, steps), 1e15))
