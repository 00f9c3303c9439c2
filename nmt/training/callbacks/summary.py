"""The summary that a run prints at its end."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Timer

from nmt.training.callbacks.saving import Checkpoints
from nmt.training.memory import most_memory


def summarize(trainer: L.Trainer, pl_module: Any, run_dir: Path) -> str:
    """Model, duration, speed, reason of the end, peak memory, best and last score, and the run directory."""
    num_parameters = pl_module.translator.num_parameters
    seconds, tokens = pl_module.meter.seconds, pl_module.meter.tokens
    lines = [
        f"trained  {pl_module.translator.name}, {num_parameters:,} parameters: "
        f"{_count_of(trainer.current_epoch, 'epoch')}, {_count_of(trainer.global_step, 'step')}",
        f"time     {timedelta(seconds=round(seconds))} over {tokens:,} target pieces, "
        f"{tokens / max(seconds, 1e-9):,.0f} a second",
        f"ended    {why_ended(trainer)}",
        f"memory   {peak_memory(trainer.strategy.root_device) / 2**30:.2f} GiB at most",
    ]
    kept = trainer.checkpoint_callback
    if isinstance(kept, Checkpoints) and kept.best_score is not None:
        lines.append(
            f"scores   {kept.monitor} {kept.best_score:.4g} at step {kept.best_step:,} (best), "
            f"{kept.last_score:.4g} (last)"
        )
    lines.append(f"run      {run_dir}")
    return "\n".join(lines)


def why_ended(trainer: L.Trainer) -> str:
    """The reason why training ended: early stopping, a limit, or another callback."""
    for each in trainer.early_stopping_callbacks:
        if each.wait_count >= max(1, each.patience):
            return f"early stopping: no better {each.monitor} in {_count_of(each.wait_count, 'validation')}"
    if trainer.max_epochs not in (None, -1) and trainer.current_epoch >= trainer.max_epochs:
        return f"trainer.max_epochs={trainer.max_epochs} is reached"
    if trainer.max_steps not in (None, -1) and trainer.global_step >= trainer.max_steps:
        return f"trainer.max_steps={trainer.max_steps} is reached"
    timers = [each for each in trainer.callbacks if isinstance(each, Timer)]  # type: ignore[attr-defined]
    if any((left := each.time_remaining()) is not None and left <= 0 for each in timers):
        return "trainer.max_time is spent"
    reasons = [each.stopping_reason_message for each in trainer.early_stopping_callbacks]
    return next(filter(None, reasons), "a callback stopped it")


def _count_of(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def peak_memory(device: torch.device) -> int:
    """The most bytes held at once: by torch on a GPU, else by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return most_memory()
