"""The progress bar."""

import time
from datetime import timedelta
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar


class ProgressBar(TQDMProgressBar):
    """The epoch's bar with loss, tokens/s, the last validation scores and the time left of the whole run."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=10)
        self._started = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        # A run that goes on inside an epoch is told of no epoch's start, and its bar would have no end.
        super().on_train_epoch_start(trainer, pl_module)
        self._started = time.perf_counter()
        self._first_step = trainer.global_step

    def get_metrics(self, trainer: L.Trainer, pl_module: Any) -> dict[str, Any]:
        shown = dict(pl_module.progress)
        done = trainer.global_step - self._first_step
        if self._started and done and trainer.estimated_stepping_batches != float("inf"):
            rate = (time.perf_counter() - self._started) / done
            left = max(0.0, rate * (trainer.estimated_stepping_batches - trainer.global_step))
            shown["left"] = str(timedelta(seconds=round(left)))
        return shown
