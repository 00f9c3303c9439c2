"""Progress bar of training, and a log line per validation."""

import logging
import math
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, Timer, TQDMProgressBar

from nmt.run.observations import note_validation
from nmt.training.callbacks.saving import Checkpoints

log = logging.getLogger("train")

FORMATS = {"val/loss": "loss {:.3f}", "val/bleu": "BLEU {:.2f}", "val/aer": "AER {:.3f}"}


class ProgressBar(TQDMProgressBar):
    """The epoch's bar with loss, tokens/s, the last validation scores and the time left of the whole run."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=10)
        self._start: tuple[int, float] | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        # Lightning does not call this hook for a run that resumes inside an epoch, and the bar would have no total.
        self.on_train_epoch_start(trainer, pl_module)
        self._start = (trainer.global_step, time.perf_counter())

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_train_epoch_start(trainer, pl_module)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")

    def get_metrics(self, trainer: L.Trainer, pl_module: Any) -> dict[str, Any]:
        shown = dict(pl_module.progress)
        if self._start and (left := seconds_left(trainer, *self._start)) is not None:
            shown["left"] = str(timedelta(seconds=round(left)))
        return shown


class LogValidations(Callback):
    """Logs a line per validation, in the terminal and in train.log: epoch, step, scores, best, speed and time left.

    Also writes its scores to `validations.json`.
    """

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._start = (trainer.global_step, time.perf_counter())

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        speed = pl_module.meter.tokens_per_second()  # of all ranks
        left = seconds_left(trainer, *self._start)
        log.info("%s", describe_validation(trainer, speed=speed, left=left))
        if trainer.is_global_zero:
            scores = {name: float(score) for name, score in trainer.callback_metrics.items()}
            losses = {"step": trainer.global_step, "train/loss": pl_module.train_loss or math.nan}
            note_validation(Path(trainer.default_root_dir), scores | losses)


def describe_validation(trainer: L.Trainer, *, speed: float, left: float | None) -> str:
    """`epoch 2, step 548: loss 1.214, BLEU 86.31; best BLEU 86.31 at step 548; 5,210 pieces/s, 4 min left`."""
    kept, scores = trainer.checkpoint_callback, trainer.callback_metrics
    assert isinstance(kept, Checkpoints)
    epochs = trainer.current_epoch + (trainer.fit_loop.batch_idx + 1) / trainer.num_training_batches
    names = dict.fromkeys([*FORMATS, kept.monitor])
    said = [_say_score(name, float(scores[name])) for name in names if name in scores]
    score, step = float(scores[kept.monitor]), trainer.global_step
    if not kept.is_best(score):
        assert kept.best_score is not None
        score, step = kept.best_score, kept.best_step
    pace = f"{speed:,.0f} pieces/s"
    if left:
        pace += f", {left / 60:,.0f} min left" if left >= 60 else ", less than a minute left"
    return (
        f"epoch {round(epochs, 2):g}, step {trainer.global_step:,}: {', '.join(said)}; "
        f"best {_say_score(kept.monitor, score)} at step {step:,}; {pace}"
    )


def _say_score(name: str, score: float) -> str:
    return FORMATS.get(name, f"{name.removeprefix('val/')} {{:.4g}}").format(score)


def seconds_left(trainer: L.Trainer, first_step: int, started: float) -> float | None:
    """Seconds until the first limit of training, at the pace since `first_step`; None if no limit or pace is known."""
    limits = [
        left
        for each in trainer.callbacks  # type: ignore[attr-defined]
        if isinstance(each, Timer) and (left := each.time_remaining()) is not None
    ]
    done, total = trainer.global_step - first_step, trainer.estimated_stepping_batches
    if done and total != float("inf"):
        limits.append((time.perf_counter() - started) / done * (total - trainer.global_step))
    return max(0.0, min(limits)) if limits else None
