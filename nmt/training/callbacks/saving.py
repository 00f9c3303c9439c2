"""The callback that decides when checkpoints are written."""

import logging
import sys
import time
from pathlib import Path
from typing import Any, Literal

import lightning as L
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from nmt import distributed
from nmt.checkpoint import (
    BEST,
    LAST,
    check_plain,
    kept_file,
    kept_files,
    pause_in,
    pause_loop,
    read_checkpoint,
    write_checkpoint,
)
from nmt.config.types import Count, Positive
from nmt.data.datamodule import TranslationDataModule
from nmt.errors import UserError
from nmt.training.callbacks.randomness import random_state, set_random_state
from nmt.training.callbacks.tensorboard import tensorboard_writers

log = logging.getLogger(__name__)

_GOES_BY = ("monitor", "mode")  # settings that define the best score


class Checkpoints(Checkpoint):
    """Keeps `last.ckpt`, its predecessor `previous.ckpt`, and `best.ckpt` in `directory`, all with the whole run.

    Checkpoints are written between two batches, with no validation, schedule or accumulated gradients open: after each
    validation, every `every_n_steps` optimizer steps, every `every_n_minutes` (None: never), and when training ends.
    `best.ckpt` has the best score `monitor` (the highest or lowest, by `mode`); of equal scores, the last. A validation
    or an end of training inside the accumulation window of an optimizer step waits for the end of the step.

    keep: how many `step_NUMBER.ckpt` files, with weights only, to keep of the checkpoints after a validation or
    `every_n_steps`. Checkpoints by the clock are not among them, so that a resumed run keeps the same files.
    """

    def __init__(
        self,
        *,
        directory: str,
        monitor: str,
        mode: Literal["min", "max"],
        every_n_steps: Count | None,
        every_n_minutes: Positive | None,
        keep: Count | None = None,
    ) -> None:
        self.directory, self.monitor, self.mode = Path(directory), monitor, mode
        self.every_n_steps, self.every_n_minutes = every_n_steps, every_n_minutes
        self.keep = keep
        self.best_score: float | None = None
        self.best_step = 0
        self.last_score: float | None = None
        self._due: set[str] = set()  # files to write before the next batch: best, last, step
        self._saved_step = self._kept_step = 0
        self._saved_time = 0.0
        self._validation_due = self._end_due = False
        self._random: list[dict[str, Any]] | None = None  # random states by rank, from the resumed checkpoint

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_GOES_BY, "best_score", "best_step", "last_score")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scores, unless `monitor` or `mode` has changed."""
        if any(state_dict[name] != getattr(self, name) for name in _GOES_BY):
            log.warning("best.ckpt goes by %s from here on: the next validation is its first", self.monitor)
        else:
            vars(self).update(state_dict)

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        check_plain(
            {
                "optimizer": [each.state_dict()["param_groups"] for each in trainer.optimizers],
                "scheduler": [each.scheduler.state_dict() for each in trainer.lr_scheduler_configs],
                "callbacks": {each.state_key: each.state_dict() for each in trainer.callbacks},  # type: ignore[attr-defined]
            }
        )
        if self._random is not None:
            set_random_state(self._random[distributed.rank()], pl_module.device)
            self._random = None
        self._saved_step, self._saved_time = trainer.global_step, time.monotonic()
        self._wait_for_window(trainer)
        if trainer.is_global_zero:
            for step, file in kept_files(self.directory).items():
                if step > trainer.global_step:  # this run will write it again
                    file.unlink()

    def is_best(self, score: float) -> bool:
        """True if the score is at least as good as the best so far."""
        sign = 1 if self.mode == "max" else -1
        return self.best_score is None or sign * score >= sign * self.best_score

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        score = trainer.callback_metrics.get(self.monitor)
        if score is None:
            raise UserError(f"callbacks.checkpoint.monitor={self.monitor}: validation gives no such score")
        self._due |= {"last", "step"} if self.keep else {"last"}
        self.last_score = float(score)
        if self.is_best(self.last_score):
            self.best_score, self.best_step = self.last_score, trainer.global_step
            self._due.add("best")

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches:
            return
        self._keep_step(trainer)
        if trainer.global_step > self._saved_step and self._is_time(trainer):
            self._due.add("last")
        if self._due:
            self.save(trainer, validation_due=False)

    def on_train_batch_end(self, trainer: L.Trainer, *unused: Any) -> None:
        trainer.should_stop |= _is_last(trainer)  # Lightning validates before it stops
        self._wait_for_window(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._keep_step(trainer)
        if self._due or trainer.global_step > self._saved_step:
            self.save(trainer, validation_due=False)

    def save(self, trainer: L.Trainer, *, validation_due: bool) -> None:
        """Write `last.ckpt` and the other files that are due; between batches only.

        With `validation_due`, a run resumed from here validates first.
        """
        self._validation_due = validation_due
        # A resumed run logs only later steps
        for writer in tensorboard_writers(trainer):
            writer.flush()
        for logger in trainer.loggers:
            logger.save()
        files = [self.directory / LAST]  # written last, so that the other files exist if it does
        if "best" in self._due:
            files.insert(0, self.directory / BEST)
        if "step" in self._due:
            self._kept_step = trainer.global_step
            files.insert(0, kept_file(self.directory, self._kept_step))
        for file in files:
            trainer.save_checkpoint(file)
        self._due.clear()
        if self.keep and trainer.is_global_zero:
            for file in list(kept_files(self.directory).values())[: -self.keep]:
                file.unlink()
        self._saved_step, self._saved_time = trainer.global_step, time.monotonic()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        num_batches = int(trainer.num_training_batches)
        pause_loop(checkpoint, num_batches=num_batches, validation_due=self._validation_due)
        checkpoint["random"] = distributed.gather(random_state(pl_module.device))

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._random = checkpoint["random"]
        pause = pause_in(checkpoint)
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        data.start_at(pause.epochs, pause.batches)
        for callback in trainer.early_stopping_callbacks:  # patience is a setting, not a state
            if callback.state_key in checkpoint["callbacks"]:
                checkpoint["callbacks"][callback.state_key]["patience"] = callback.patience

    def _wait_for_window(self, trainer: L.Trainer) -> None:
        """Let Lightning validate or end training after this batch only if the batch completes an optimizer step."""
        window = trainer.accumulate_grad_batches
        if window == 1:
            return
        loop, interval = trainer.fit_loop, trainer.val_check_interval
        is_open = loop._should_accumulate()
        self._end_due |= trainer.should_stop
        trainer.should_stop = self._end_due and not is_open
        if not isinstance(interval, int):  # a share of an epoch
            interval = max(1, int(trainer.num_training_batches * interval))
        done = 1 + (loop.total_batch_idx if trainer.check_val_every_n_epoch is None else loop.batch_idx)
        due = not is_open and validation_due(done, loop.batch_idx % window + 1, interval)
        trainer.val_check_batch = 1 if due else sys.maxsize  # Lightning validates after every multiple of it

    def _keep_step(self, trainer: L.Trainer) -> None:
        if self.keep and self._is_step(trainer) and trainer.global_step > self._kept_step:
            self._due.add("step")

    def _is_step(self, trainer: L.Trainer) -> bool:
        return bool(self.every_n_steps and trainer.global_step % self.every_n_steps == 0)

    def _is_time(self, trainer: L.Trainer) -> bool:
        if self._is_step(trainer):
            return True
        if self.every_n_minutes is None:
            return False
        late = time.monotonic() - self._saved_time >= 60 * self.every_n_minutes
        return trainer.strategy.reduce_boolean_decision(late, all=False)


def _is_last(trainer: L.Trainer) -> bool:
    """True after the last batch that `trainer.max_steps` or `max_epochs` allows."""
    if 0 <= trainer.max_steps <= trainer.global_step:
        return True
    epochs, loop = trainer.max_epochs or -1, trainer.fit_loop.epoch_loop
    return 0 < epochs <= trainer.current_epoch + 1 and loop.batch_progress.is_last_batch


def validation_due(done: int, window: int, interval: int) -> bool:
    """True if a multiple of `interval` batches is among the last `window` of `done` batches."""
    return done // interval > (done - window) // interval


class AtomicCheckpointIO(TorchCheckpointIO):
    """Reads and writes checkpoints for Lightning by `nmt.checkpoint`."""

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Load with the version of Lightning set to the installed one, so that Lightning migrates nothing."""
        return read_checkpoint(Path(path)) | {"pytorch-lightning_version": L.__version__}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_checkpoint(checkpoint, Path(path))
