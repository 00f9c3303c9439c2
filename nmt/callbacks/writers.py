"""TensorBoard's writers."""

from typing import Any

import lightning as L


def tensorboard_writers(trainer: L.Trainer) -> list[Any]:
    """The TensorBoard writers among the loggers."""
    loggers: list[Any] = list(trainer.loggers)
    return [logger.experiment for logger in loggers if hasattr(logger.experiment, "add_image")]
