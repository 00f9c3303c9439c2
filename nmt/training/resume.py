"""Resuming a run: load its latest whole checkpoint, then train on, or score it if it has finished."""

import contextlib
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import EarlyStopping, Timer
from omegaconf import DictConfig, OmegaConf

from nmt import kernels
from nmt.checkpoint import (
    BEST,
    BROKEN,
    LAST,
    PREVIOUS,
    RESUMABLE,
    checkpoints_of,
    has_checkpoints,
    pause_in,
    read_checkpoint,
)
from nmt.config.build import check_buildable, reads_lowercase
from nmt.config.types import key_of
from nmt.data.tokenizer import Tokenizer
from nmt.environment import launch_rank
from nmt.errors import UserError, command, first_line
from nmt.run import provenance
from nmt.run.data import read_splits
from nmt.run.loading import load_translator
from nmt.run.paths import write_config
from nmt.training import changes
from nmt.training.memory import is_out_of_memory
from nmt.training.scoring import cost, cost_so_far, log_final, score, scores_after
from nmt.training.states import check_like, checkpoint_errors
from nmt.training.train import Resumed, train
from nmt.training.trainer import make_loggers

log = logging.getLogger("train")


def resume_run(
    cfg: DictConfig,
    stored: DictConfig,
    overrides: list[str],
    check_settings: Callable[[DictConfig], None] = lambda config: None,
) -> None:
    """Continue the run in the directory `cfg.resume` with settings changed by `overrides`, or score it if finished.

    stored: the configuration of the run. Raises UserError, also from `check_settings`, for a stored setting with a
    wrong type or value.
    """
    run_dir = Path(cfg.resume).resolve()
    if not has_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has no checkpoint to go on from: start_from={run_dir} begins a new run with its weights, if it "
            "has any"
        )
    before, config, lines = merge_settings(cfg, stored, overrides, run_dir)
    resumed = OmegaConf.create(config | {"trusted": list(cfg.trusted)})
    check_settings(resumed)
    check_buildable(resumed, trusted=cfg.trusted)
    file, checkpoint = load_checkpoint(run_dir)
    with checkpoint_errors(file):
        num_processes, training = len(checkpoint["random"]), cost_so_far(checkpoint)
        check_like(training, cost(0, 0.0, 0), "training")
        reason, step = why_finished(checkpoint, config), training["steps"]
        new_end = bool(lines) and changes.stretches_schedule(before, config)
    tokenizer = Tokenizer.load(run_dir / "tokenizer", lowercase=reads_lowercase(resumed.data))
    # Fails early if the weights do not fit
    load_translator(resumed.model, tokenizer, [file], trusted=cfg.trusted, checkpoint=checkpoint)
    for line in lines:
        log.info(line)
    if new_end:
        log.warning("the learning rate follows the schedule of the new end from here on")
    stored_data = not {"data.path", "data.name"} & set(map(key_of, overrides))
    if reason is None:
        log.info("going on from %s, step %d", file, step)
        del checkpoint  # frees memory; Lightning reads the file again
        train(resumed, Resumed(file, step, num_processes, overrides if lines else (), stored_data))
    elif launch_rank() == 0 and not is_scored(run_dir, step, reason, lines):
        print(f"{run_dir} has finished ({reason}); scoring it")
        if lines:
            provenance.note_command(run_dir, overrides, resumes=True)
            write_config(run_dir, OmegaConf.create(config))
        kernels.use(resumed.kernels)
        splits = read_splits(resumed.data, trusted=cfg.trusted, stored=stored_data)
        split, scores = score(resumed, run_dir, splits, device="auto", training=training)
        config["decoding"]["length_alpha"] = resumed.decoding.length_alpha
        log_final(make_loggers(resumed, last_step=None), config, split, scores, step=step)


def merge_settings(
    cfg: DictConfig, stored: DictConfig, overrides: list[str], run_dir: Path
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The stored settings of a run, these with the `overrides`, and a line for every setting that differs."""
    keys = [key_of(override) for override in overrides]
    if "run_dir" in keys:
        raise UserError(f"resume= goes on in {run_dir}: leave out run_dir=")
    cfg.run_dir = str(run_dir)
    given = [key for key in keys if key not in ("resume", "trusted")]
    before = changes.check_stored(stored, run_dir)
    changes.settle_defaults(cfg, before, keys)
    before = changes.take_over(before, cfg, given)
    wanted: Any = OmegaConf.to_container(cfg, resolve=True)
    written: Any = OmegaConf.to_container(cfg, resolve=False)
    return before, *changes.apply_changes(before, wanted, given, written=written)


def is_scored(run_dir: Path, step: int, reason: str, lines: list[str]) -> bool:
    """True if a finished run has scores of its last step, whose place is printed.

    Raises UserError for changes without effect.
    """
    if (scored := scores_after(run_dir, step)) is None:
        return False
    if idle := [line for line in lines if line.startswith(("decoding.", "metrics."))]:
        raise UserError(
            f"{run_dir} has finished ({reason}), and its scores are in {scored.name}: {'; '.join(idle)} would change "
            f"nothing. {command('evaluate')} scores it with other settings"
        )
    print(
        f"{run_dir} has finished ({reason}); its scores are in {scored.name}, its best checkpoint is {BEST}"
    )
    return True


def load_checkpoint(run_dir: Path) -> tuple[Path, dict[str, Any]]:
    """The latest whole checkpoint: (file, content). A broken file is renamed NAME.broken, with a warning.

    Raises UserError if there is none, or if it cannot be read or resumed from.
    """
    for name in (LAST, PREVIOUS, BEST):  # from the latest to the earliest
        file = checkpoints_of(run_dir) / name
        if not file.is_file():
            continue
        try:
            checkpoint = read_checkpoint(file)
            missing = RESUMABLE - set(checkpoint)
        except UserError:  # of another format
            raise
        except (*BROKEN, MemoryError) as error:
            if is_out_of_memory(error):
                raise UserError(f"{file}: there is not enough memory to read it") from error
            if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.EINVAL, None):
                raise UserError(f"{file}: cannot read ({error.strerror})") from error
            aside = file.with_name(f"{name}.broken")
            with contextlib.suppress(FileNotFoundError):  # another rank has renamed it
                file.replace(aside)
            reason = first_line(error)
            log.warning("%s is broken (%s): now %s, and the one before it is used", file, reason, aside.name)
            continue
        if missing:
            raise UserError(f"{file} has no {', '.join(sorted(missing))}: it was not saved to go on from")
        return file, checkpoint
    raise UserError(f"{run_dir} has no whole checkpoint to go on from: start the run anew")


def why_finished(checkpoint: dict[str, Any], config: dict[str, Any]) -> str | None:
    """The reason if the run has finished, by the limits of `config` or by early stopping; else None."""
    trainer, stopping = config["trainer"], config["callbacks"].get("early_stopping")
    pause = pause_in(checkpoint)
    if not pause.validation_due:
        if trainer["max_epochs"] not in (None, -1) and pause.epochs >= trainer["max_epochs"]:
            return f"trainer.max_epochs={trainer['max_epochs']} is reached"
        if trainer["max_steps"] != -1 and checkpoint["global_step"] >= trainer["max_steps"]:
            return f"trainer.max_steps={trainer['max_steps']} is reached"
        if trainer.get("max_time") is not None:
            timer = Timer(trainer["max_time"])
            timer.load_state_dict(checkpoint["callbacks"].get("Timer", {}))
            if (timer.time_remaining() or 0) <= 0:
                return f"trainer.max_time={trainer['max_time']} is spent"
    if stopping:
        # Lightning names the state by monitor and mode
        key = EarlyStopping(stopping["monitor"], mode=stopping["mode"]).state_key
        state = checkpoint["callbacks"].get(key)
        if state is not None and state["wait_count"] >= max(1, stopping["patience"]):
            return f"callbacks.early_stopping.patience={stopping['patience']} is spent"
    return None
