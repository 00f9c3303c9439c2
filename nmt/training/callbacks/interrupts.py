"""Ctrl-C, SIGTERM and SIGHUP: the run saves a checkpoint and ends."""

import logging
import signal
import threading
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from nmt.training.callbacks.saving import Checkpoints

log = logging.getLogger(__name__)


class Interrupted(BaseException):
    """A signal ended the run after its checkpoint was saved. `number`: the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class SaveOnInterrupt(Callback):
    """Ends the run at Ctrl-C, SIGTERM or SIGHUP, before the next batch, and saves `last.ckpt`. Raises Interrupted.

    A second signal ends the run at once. A closed terminal sends SIGHUP; under `nohup` it is ignored. The signal waits
    for the end of the optimizer step, accumulated batches included: a library could swallow an exception raised inside
    a step, and the checkpoint could hold a half-done update.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        # Replaces Lightning's handler of SIGTERM, which is set by now and would end the run between any two batches.
        if threading.current_thread() is threading.main_thread():
            hangup = getattr(signal, "SIGHUP", None)  # not on Windows
            numbers = [signal.SIGINT, signal.SIGTERM]
            if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
                numbers.append(hangup)
            for number in numbers:
                self._previous[number] = signal.signal(number, self._note)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._end_if_asked(trainer, validation_due=False)

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: Any, *unused: Any) -> None:
        self._end_if_asked(trainer, validation_due=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._give_back()

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self._number is not None:
            raise Interrupted(self._number)

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._give_back()

    def _note(self, number: int, frame: Any) -> None:
        if self._number is not None:
            raise KeyboardInterrupt
        self._number = number

    def _end_if_asked(self, trainer: L.Trainer, *, validation_due: bool) -> None:
        if not trainer.strategy.reduce_boolean_decision(self._number is not None, all=False):
            return
        if isinstance(trainer.checkpoint_callback, Checkpoints):
            trainer.checkpoint_callback.save(trainer, validation_due=validation_due)
            log.warning("interrupted at step %d: saved last.ckpt", trainer.global_step)
        raise Interrupted(self._number or signal.SIGTERM)

    def _give_back(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
