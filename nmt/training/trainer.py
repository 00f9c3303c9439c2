"""Lightning's trainer with the callbacks and loggers of a run."""

from pathlib import Path
from typing import Any

import lightning as L
from omegaconf import DictConfig, OmegaConf

from nmt.checkpoint import checkpoints_of
from nmt.config.build import build, build_parts
from nmt.errors import UserError
from nmt.training.callbacks import (
    AtomicCheckpointIO,
    Checkpoints,
    EndScheduleWithTime,
    LogValidations,
    ProgressBar,
)
from nmt.training.checks import check_accelerator

# Arguments of every trainer: the data module draws new batches per epoch and deals them to the ranks, and there is no
# validation before training.
OF_EVERY_RUN: dict[str, Any] = {
    "reload_dataloaders_every_n_epochs": 1,
    "use_distributed_sampler": False,
    "num_sanity_val_steps": 0,
    "gradient_clip_algorithm": "norm",
}


def make_trainer(cfg: DictConfig, run_dir: Path, *, last_step: int | None) -> L.Trainer:
    """Lightning's trainer with callbacks and loggers. last_step: step of the checkpoint of a resumed run."""
    check_accelerator(cfg.trainer.get("accelerator", "auto"))
    callbacks = list(build_parts(cfg.callbacks, "callbacks", trusted=cfg.trusted).values())
    if not cfg.trainer.enable_progress_bar:
        callbacks = [each for each in callbacks if not isinstance(each, ProgressBar)]
    if cfg.get("averaging"):
        callbacks.append(build(cfg.averaging, "averaging", trusted=cfg.trusted))
    callbacks.append(LogValidations())
    if cfg.trainer.get("max_time") is not None:
        callbacks.append(EndScheduleWithTime())
    return build(
        cfg.trainer,
        "trainer",
        trusted=cfg.trusted,
        logger=make_loggers(cfg, last_step=last_step),
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=str(run_dir),
        **OF_EVERY_RUN,
    )


def make_loggers(cfg: DictConfig, *, last_step: int | None) -> list[Any]:
    """The loggers of a run, perhaps none. last_step: step of the checkpoint of a resumed run."""
    # TensorBoard discards events after the checkpoint, because the resumed run logs these steps again.
    again = {} if last_step is None else {"purge_step": last_step + 1}
    parts = cfg.get("logger") or OmegaConf.create()
    more = {
        str(name): again
        for name, part in parts.items()
        if OmegaConf.is_dict(part) and str(part.get("_target_")).endswith("TensorBoard")
    }
    return list(build_parts(parts, "logger", trusted=cfg.trusted, more=more).values())


def check_checkpoints(trainer: L.Trainer, run_dir: Path) -> Checkpoints:
    """The checkpoint callback. Raises UserError if it is missing or writes to another directory."""
    kept = trainer.checkpoint_callback
    if not isinstance(kept, Checkpoints):
        raise UserError(
            "callbacks.checkpoint is missing: without it a run could not be scored or gone on with"
        )
    if kept.directory.resolve() != checkpoints_of(run_dir).resolve():
        raise UserError(
            f"callbacks.checkpoint.directory={kept.directory}: a run has its checkpoints in {checkpoints_of(run_dir)}, "
            "where all else looks for them: leave it out"
        )
    return kept
