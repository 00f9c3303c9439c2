"""What several processes, and several loggers, share."""

from typing import Any

import lightning as L
import torch


def from_all_ranks(trainer: L.Trainer, part: dict[int, Any]) -> dict[int, Any]:
    """The union of every rank's dictionary by example, in order, on every rank."""
    if trainer.world_size > 1:
        parts: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(parts, part)
        part = {row: value for each in parts for row, value in each.items()}
    return dict(sorted(part.items()))


def tensorboard_writers(trainer: L.Trainer) -> list[Any]:
    """The TensorBoard writers among the loggers."""
    loggers: list[Any] = list(trainer.loggers)
    return [logger.experiment for logger in loggers if hasattr(logger.experiment, "add_image")]
