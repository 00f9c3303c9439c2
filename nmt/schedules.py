"""Learning-rate schedules, as torch schedulers. Each says how often it steps, and on what.

Steps are optimizer steps, counted from 1. Every function takes `total_steps`, how many the run will make.
"""

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from nmt.errors import UserError


def constant(optimizer: Optimizer, *, total_steps: int, warmup_steps: int) -> dict[str, Any]:
    """`lr * min(1, step / warmup_steps)`."""
    return _every_step(LambdaLR(optimizer, lambda step: _warmup(step + 1, warmup_steps)))


def inverse_sqrt(optimizer: Optimizer, *, total_steps: int, warmup_steps: int) -> dict[str, Any]:
    """`lr * min(step / warmup_steps, sqrt(warmup_steps / step))` (Vaswani et al. 2017, eq. 3, rescaled)."""
    if warmup_steps < 1:
        raise UserError(f"scheduler.warmup_steps={warmup_steps}: inverse_sqrt needs at least 1")
    return _every_step(
        LambdaLR(
            optimizer,
            lambda step: min(_warmup(step + 1, warmup_steps), math.sqrt(warmup_steps / (step + 1))),
        )
    )


def cosine(optimizer: Optimizer, *, total_steps: int, warmup_steps: int) -> dict[str, Any]:
    """Linear warm-up, then `lr * (1 + cos(pi * progress)) / 2`, reaching 0 at `total_steps`.

    Loshchilov & Hutter (2017), one period.
    """

    def factor(step: int) -> float:
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return _warmup(step + 1, warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))

    return _every_step(LambdaLR(optimizer, factor))


def plateau(optimizer: Optimizer, *, total_steps: int, factor: float, patience: int) -> dict[str, Any]:
    """Multiply the rate by `factor` when val/bleu has not risen for `patience` validations.

    Steps at the end of an epoch that validated.
    """
    scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=factor, patience=patience)
    return {"scheduler": scheduler, "interval": "epoch", "monitor": "val/bleu", "strict": False}


def _warmup(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _every_step(scheduler: LambdaLR) -> dict[str, Any]:
    return {"scheduler": scheduler, "interval": "step"}
