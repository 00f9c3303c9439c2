"""Learning-rate schedules as torch schedulers, in Lightning's form with interval and monitored score.

Steps are optimizer steps, counted from 1. A schedule with a parameter `total_steps` gets the number of steps of the run
(infinite if only patience ends it), unless the setting is given. If `trainer.max_time` ends the run, it is measured.
"""

import inspect
import logging
import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from nmt.config.types import Count, Positive, Whole
from nmt.errors import UserError

log = logging.getLogger(__name__)


def schedule(
    factory: Callable[..., dict[str, Any]], optimizer: Optimizer, total_steps: float
) -> dict[str, Any]:
    """Call a schedule's factory, with the run's `total_steps` if it takes them and they were not given."""
    return factory(optimizer, **({"total_steps": total_steps} if takes_total_steps(factory) else {}))


def takes_total_steps(factory: Callable[..., dict[str, Any]]) -> bool:
    """True if a factory takes `total_steps`, and the setting was not given."""
    taken = inspect.signature(factory).parameters.get("total_steps")
    return taken is not None and taken.default in (None, inspect.Parameter.empty)


def warn_of_warmup(factory: Callable[..., dict[str, Any]], total_steps: float) -> None:
    """Warn if the warm-up outlasts the run."""
    warmup_steps = getattr(factory, "keywords", {}).get("warmup_steps", 0)
    if warmup_steps >= total_steps:
        log.warning(
            "the learning rate only rises: scheduler.warmup_steps=%d of %d steps", warmup_steps, total_steps
        )


def constant(optimizer: Optimizer, *, warmup_steps: Whole) -> dict[str, Any]:
    """`lr * min(1, step / warmup_steps)`."""
    return _every_step(LambdaLR(optimizer, lambda step: _warmup(step + 1, warmup_steps)))


def inverse_sqrt(optimizer: Optimizer, *, warmup_steps: Count) -> dict[str, Any]:
    """`lr * min(step / warmup_steps, sqrt(warmup_steps / step))` (Vaswani et al. 2017, eq. 3, rescaled)."""
    return _every_step(
        LambdaLR(
            optimizer,
            lambda step: min(_warmup(step + 1, warmup_steps), math.sqrt(warmup_steps / (step + 1))),
        )
    )


def cosine(optimizer: Optimizer, *, total_steps: Positive | None, warmup_steps: Whole) -> dict[str, Any]:
    """Linear warm-up, then `lr * (1 + cos(pi * progress)) / 2` (Loshchilov & Hutter 2017, one period).

    The rate would be 0 in the step after `total_steps`. Raises UserError if `total_steps` is not known.
    """
    if total_steps is None or total_steps == float("inf"):
        raise UserError(
            "scheduler=cosine falls to nothing after the run's last step, which is not known: give trainer.max_epochs, "
            "trainer.max_steps, trainer.max_time or scheduler.total_steps, or scheduler=constant"
        )

    def factor(step: int) -> float:
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return _warmup(step + 1, warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))

    return _every_step(LambdaLR(optimizer, factor))


def plateau(
    optimizer: Optimizer,
    *,
    factor: Annotated[float, Field(gt=0, lt=1)],
    patience: Whole,
    monitor: str = "val/bleu",
    mode: Literal["min", "max"] = "max",
) -> dict[str, Any]:
    """Multiply the rate by `factor` after more than `patience` validations in a row without a better score `monitor`.

    mode: max if a higher score is better. The module steps the schedule after every validation; Lightning would step it
    at the end of every epoch.
    """
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience, threshold=0.0)
    return {"scheduler": scheduler, "interval": "epoch", "frequency": sys.maxsize, "monitor": monitor}


def _warmup(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _every_step(scheduler: LambdaLR) -> dict[str, Any]:
    return {"scheduler": scheduler, "interval": "step"}
