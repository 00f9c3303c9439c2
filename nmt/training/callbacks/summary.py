"""The summary that a run prints at its end."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch

from nmt.training.callbacks.checkpoints import Checkpoints
from nmt.training.memory import most_memory


def summarize(trainer: L.Trainer, pl_module: Any, run_dir: Path) -> str:
    """What was trained, how long and how fast, its best and last score, peak memory, and where it all is."""
    num_parameters = pl_module.translator.num_parameters
    seconds, tokens = pl_module.train_seconds, pl_module.train_tokens
    lines = [
        f"trained  {pl_module.translator.name}, {num_parameters:,} parameters: "
        f"{_counted(trainer.current_epoch, 'epoch')}, {_counted(trainer.global_step, 'step')}",
        f"time     {timedelta(seconds=round(seconds))} over {tokens:,} target pieces, "
        f"{tokens / max(seconds, 1e-9):,.0f} a second",
        f"memory   {peak_memory(trainer.strategy.root_device) / 2**30:.2f} GiB at most",
    ]
    kept = trainer.checkpoint_callback
    if isinstance(kept, Checkpoints) and kept.best_score is not None:
        lines.append(
            f"scores   {kept.monitor} {kept.best_score:.4g} at step {kept.best_step:,} (best), "
            f"{kept.last_score:.4g} (last)"
        )
    watch = f"tensorboard --samples_per_plugin images=200 --logdir {run_dir}"
    lines.append(f"run      {run_dir}: checkpoints/, and {watch}")
    return "\n".join(lines)


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def peak_memory(device: torch.device) -> int:
    """The most bytes held at once: of a GPU by torch, else by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return most_memory()
