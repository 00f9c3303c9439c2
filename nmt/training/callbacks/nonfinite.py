"""The callback that ends a run if its loss or gradient norm is NaN or infinite."""

import json
import math
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from nmt import distributed
from nmt.data.batching import Batch
from nmt.errors import UserError, WriteError


class StopOnNonfinite(Callback):
    """Ends the run at the first loss or gradient norm that is NaN or infinite, before anything is saved.

    Writes the numbers of the training rows of that step, of all ranks, to `directory`/nonfinite_batch.json. Raises
    UserError on all ranks.
    """

    def __init__(self, *, directory: str) -> None:
        self.file = Path(directory) / "nonfinite_batch.json"
        self._rows: list[Tensor] = []  # of each batch since the last optimizer step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self._rows.append(batch.indices)
        values = {"loss": outputs["loss"]}
        stepped = not trainer.fit_loop._should_accumulate()
        # A gradient scaler checks for overflow itself, and skips such steps.
        if stepped and getattr(trainer.precision_plugin, "scaler", None) is None:
            values["gradient norm"] = pl_module.grad_norm
        # All ranks decide together: a rank that ended alone would leave the others waiting for its gradients.
        if not distributed.all_true(torch.stack(list(values.values())).isfinite().all()):
            self._stop(trainer, {name: float(value) for name, value in values.items()})
        if stepped:
            self._rows.clear()

    def _stop(self, trainer: L.Trainer, values: dict[str, float]) -> None:
        each_rank = distributed.gather((values, torch.cat(self._rows).tolist()))
        found_values = [pair for values, _ in each_rank for pair in values.items()]
        [name, value] = next(pair for pair in found_values if not math.isfinite(pair[1]))
        rows = [row for _, rows in each_rank for row in rows]
        found = {"step": trainer.global_step, "epoch": trainer.current_epoch, name: str(value), "rows": rows}
        left = f"named in {self.file}"
        if distributed.rank() == 0:
            try:
                self.file.write_text(json.dumps(found) + "\n", "utf-8")
            except OSError as error:  # the message has the first rows instead
                left = f"{', '.join(map(str, rows[:8]))}, … ({WriteError(self.file, error)})"
        raise UserError(
            f"the {name} is {value} at step {trainer.global_step}: lower optimizer.lr or trainer.gradient_clip_val, "
            f"or look at the training rows {left}"
        )
