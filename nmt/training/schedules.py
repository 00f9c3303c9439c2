"""Learning-rate schedules, as torch schedulers. Each says how often it steps, and on what.

Steps are optimizer steps, counted from 1. Every function takes `total_steps`, how many the run will make (infinite
where only time or patience ends it), and raises UserError for settings that make no schedule.
"""

import logging
import math
import sys
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from nmt.errors import UserError

log = logging.getLogger(__name__)


def constant(optimizer: Optimizer, *, total_steps: float, warmup_steps: int) -> dict[str, Any]:
    """`lr * min(1, step / warmup_steps)`."""
    _check_whole("warmup_steps", warmup_steps, 0)
    return _every_step(LambdaLR(optimizer, lambda step: _warmup(step + 1, warmup_steps)))


def inverse_sqrt(optimizer: Optimizer, *, total_steps: float, warmup_steps: int) -> dict[str, Any]:
    """`lr * min(step / warmup_steps, sqrt(warmup_steps / step))` (Vaswani et al. 2017, eq. 3, rescaled)."""
    _check_whole("warmup_steps", warmup_steps, 1)
    return _every_step(
        LambdaLR(
            optimizer,
            lambda step: min(_warmup(step + 1, warmup_steps), math.sqrt(warmup_steps / (step + 1))),
        )
    )


def cosine(optimizer: Optimizer, *, total_steps: float, warmup_steps: int) -> dict[str, Any]:
    """Linear warm-up, then `lr * (1 + cos(pi * progress)) / 2`, which would be 0 in the step after `total_steps`.

    Loshchilov & Hutter (2017), one period. A warm-up that outlasts the run is warned of.
    """
    _check_whole("warmup_steps", warmup_steps, 0)
    if total_steps == float("inf"):
        raise UserError(
            "scheduler=cosine falls to nothing after the run's last step, which is not known: give trainer.max_epochs, "
            "trainer.max_steps or scheduler.total_steps, or scheduler=constant"
        )
    _check_whole("total_steps", total_steps, 1)
    if warmup_steps >= total_steps:
        log.warning(
            "the learning rate only rises: scheduler.warmup_steps=%d of %d steps", warmup_steps, total_steps
        )

    def factor(step: int) -> float:
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return _warmup(step + 1, warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))

    return _every_step(LambdaLR(optimizer, factor))


def plateau(
    optimizer: Optimizer,
    *,
    total_steps: float,
    factor: float,
    patience: int,
    monitor: str = "val/bleu",
    mode: Literal["min", "max"] = "max",
) -> dict[str, Any]:
    """Multiply the rate by `factor` when more than `patience` validations in a row were no better than the best.

    Better is more of the score `monitor`, or less, by `mode`. The module steps it, after each validation: Lightning
    would at the end of each epoch, by whatever score it last had.
    """
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1:
        raise UserError(f"scheduler.factor={factor}: give a number between 0 and 1")
    if mode not in ("min", "max"):
        raise UserError(f"scheduler.mode={mode}: give min or max")
    _check_whole("patience", patience, 0)
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience, threshold=0.0)
    return {"scheduler": scheduler, "interval": "epoch", "frequency": sys.maxsize, "monitor": monitor}


def _check_whole(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise UserError(f"scheduler.{name}={value}: give a whole number of at least {least}")


def _warmup(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _every_step(scheduler: LambdaLR) -> dict[str, Any]:
    return {"scheduler": scheduler, "interval": "step"}
