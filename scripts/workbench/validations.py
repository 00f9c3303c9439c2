"""The callback that tells speedrun.py of the validations of a run."""

import json
import os
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback


class PrintValidations(Callback):
    """Prints the step and BLEU of each validation as a line of JSON; ends the process after training."""

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        bleu = float(trainer.callback_metrics["val/bleu"])
        print(json.dumps({"step": trainer.global_step, "bleu": bleu}), flush=True)

    def on_fit_end(self, *_: Any) -> None:
        os._exit(0)
