"""Callbacks for memory: a trial of the largest batches, and a log of the memory of the process."""

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from nmt.data.batching import Batch
from nmt.data.datamodule import TranslationDataModule
from nmt.training.callbacks.randomness import without_trace
from nmt.training.memory import explain_too_large, give_back, held_memory

OFTEN = 250  # batches


class TryLargestBatch(Callback):
    """Runs the first epoch's largest batches forward and backward when training starts.

    These are the batches with the most padded tokens and with the largest attention. Gradients and random numbers are
    reset, so that this callback does not change training. Raises UserError if memory runs out. The largest batches of
    later epochs have as many tokens; their attention was at most an eighth larger on the corpora that were checked.
    """

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        for each in data.largest_batches(trainer.current_epoch):
            self._try(trainer, pl_module, data.max_tokens, trainer.strategy.batch_to_device(each))

    def _try(self, trainer: L.Trainer, pl_module: Any, max_tokens: int, batch: Batch) -> None:
        with explain_too_large(batch, max_tokens), without_trace(pl_module):
            with trainer.precision_plugin.train_step_context():
                loss = pl_module.loss_of(batch)
            loss.smoothed.backward()


class LogMemory(Callback):
    """Logs `train/memory` at each validation, the MiB that rank 0 holds, so that a leak can be seen.

    The C library's unused memory is returned to the system first, and after every `OFTEN` batches. Mapped files, such
    as the cached corpus, do not count on Linux. On a GPU, logs the memory that torch reserves as `train/gpu_memory`.
    """

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % OFTEN == OFTEN - 1:
            give_back()

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        give_back()
        metrics = {"train/memory": held_memory() / 2**20}
        if pl_module.device.type == "cuda":
            metrics["train/gpu_memory"] = torch.cuda.memory_reserved(pl_module.device) / 2**20
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
