"""Training from a configuration: `train` for a new run, `resume_run` for an interrupted run."""

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf, open_dict
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt import kernels
from nmt.checkpoint import checkpoint_file, checkpoints_of, has_checkpoints, read_weights
from nmt.config.build import build, build_parts, check_buildable, reads_lowercase
from nmt.config.types import GROUPS, flat, key_of, say
from nmt.data.datamodule import TranslationDataModule, make_datamodule
from nmt.data.tokenizer import Tokenizer, model_files
from nmt.environment import launch_rank
from nmt.errors import UserError, command
from nmt.metrics import Bleu
from nmt.run import provenance
from nmt.run.data import read_splits
from nmt.run.loading import load_translator, load_weights
from nmt.run.model import build_translator
from nmt.run.paths import load_config, write_atomically
from nmt.training import launch, resume
from nmt.training.callbacks import (
    AtomicCheckpointIO,
    Checkpoints,
    EndScheduleWithTime,
    LogValidations,
    ProgressBar,
    ScoreValidation,
    TensorBoard,
    summarize,
)
from nmt.training.checks import (
    check_accelerator,
    check_lengths,
    check_monitors,
    check_parts,
    check_references,
    check_rules,
    check_stream,
    check_warmup,
)
from nmt.training.fine_tuning import freeze, mix_in_old_text
from nmt.training.lengths import set_length_ratio, warn_of_long_references
from nmt.training.memory import is_out_of_memory
from nmt.training.module import TranslationModule
from nmt.training.precision import warn_of_slow_precision
from nmt.training.scoring import cost, cost_so_far, hyperparameters, log_final, score, scores_after
from nmt.training.states import sound
from nmt.training.vocabulary import make_tokenizer

log = logging.getLogger("train")

# Arguments of every trainer: the data module draws new batches per epoch and deals them to the ranks, and there is no
# validation before training.
OF_EVERY_RUN: dict[str, Any] = {
    "reload_dataloaders_every_n_epochs": 1,
    "use_distributed_sampler": False,
    "num_sanity_val_steps": 0,
    "gradient_clip_algorithm": "norm",
}


def train(
    cfg: DictConfig,
    *,
    checkpoint: Path | None = None,
    step: int = 0,
    num_processes: int | None = None,
    resumed_with: Sequence[str] = (),
    stored_data: bool = False,
) -> dict[str, Any]:
    """Run the configuration in its `run_dir` and return the scores on the test set, else on the validation set.

    The entry `best` is the best validation score, None if there was no validation. Only rank 0 scores and returns
    scores.

    checkpoint: file to resume from, saved after `step` optimizer steps by `num_processes` processes.
    resumed_with: overrides that changed the settings of a resumed run, noted as a command of the run.
    stored_data: True if a resumed run has the same data; text of the Hub is then read from the cache.
    """
    started, commit = time.perf_counter(), provenance.commit()
    check_buildable(cfg, trusted=cfg.trusted)
    check_rules(cfg)
    origin = None if checkpoint or cfg.get("start_from") is None else Path(cfg.start_from)
    if origin is not None:
        there, weights_file = load_config(origin), checkpoint_file(origin, "best")
        weights = read_weights(weights_file)
        models = model_files(origin / "tokenizer", joint=there.data.tokenizer.joint)
        cfg.data.tokenizer = {
            **there.data.tokenizer,
            "sampling": cfg.data.tokenizer.sampling,
            "model": [str(file) for file in models],
        }
        if cfg.freeze:  # a wrong name is refused before the text is read
            like = build_translator(there.model, Tokenizer.load(origin / "tokenizer"), trusted=cfg.trusted)
            log.info("frozen: %s", freeze(like, cfg.freeze))
    run_dir = Path(cfg.run_dir)
    if checkpoint is None and launch_rank() == 0 and has_checkpoints(run_dir):
        raise UserError(f"{run_dir} has a run already: go on with resume={run_dir}, or give another run_dir=")
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    trainer = make_trainer(cfg, run_dir, last_step=step if checkpoint else None)
    kept = check_checkpoints(trainer, run_dir)
    # Checked again when it is known if the data have alignments and the model has attention
    check_monitors(cfg, [TranslationModule, *trainer.callbacks], has_attention=True, has_gold=True)  # type: ignore[attr-defined]
    launch.check_launch(trainer, num_before=num_processes, sweep=is_sweep())
    check_stream(cfg, num_processes=trainer.world_size)
    run_dir.mkdir(parents=True, exist_ok=True)
    if not trainer.is_global_zero:
        logging.disable(logging.WARNING)  # rank 0 logs the same
    warn_of_slow_precision(trainer)
    with launch.first_rank_first(trainer):
        splits = read_splits(cfg.data, trusted=cfg.trusted, stored=stored_data)
        is_new = checkpoint is None and trainer.is_global_zero
        tokenizer = prepare_tokenizer(cfg.data, splits, run_dir, is_new=is_new)
        if cfg.get("old_share"):
            splits["train"] = mix_in_old_text(cfg, splits["train"])
        datamodule = make_datamodule(
            cfg.data, splits, tokenizer, seed=cfg.seed, guided=bool(cfg.guided_alignment)
        )
        overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
        check_warmup(cfg, partial(datamodule.num_batches, trainer.world_size), overrides)
        set_length_ratio(cfg, datamodule)
        module = make_module(cfg, tokenizer, datamodule, trainer)
        warn_of_long_references(module.decoding, module.translator, datamodule, splits)
        freeze(module.translator, cfg.get("freeze") or ())
        if origin is not None:
            load_weights(module.translator, weights, weights_file)
            log_differences(there.model, cfg.model)
        if is_new:  # all checks have passed
            tokenizer.save(run_dir / "tokenizer")
    resolved: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in ("resume", "trusted"):  # settings of this start, not of the run
        resolved.pop(name, None)
    resolved.setdefault("choices", _choices())
    if trainer.is_global_zero:
        write_atomically(run_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(resolved)))
        if resumed_with:
            provenance.note_command(run_dir, resumed_with, resumes=True)
        elif checkpoint is None and HydraConfig.initialized():
            provenance.note_command(run_dir, overrides, resumes=False)
    for logger in trainer.loggers:
        if not isinstance(logger, TensorBoard):  # TensorBoard gets them with the final scores
            logger.log_hyperparams(hyperparameters(resolved))
    log.info("ready after %.0f s; run directory %s", time.perf_counter() - started, run_dir)
    with errors_of_training(cfg, trainer), logging_redirect_tqdm():  # log lines do not break the bar
        trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint, weights_only=True)
    launch.destroy_process_group()
    if not trainer.is_global_zero:
        return {}
    print(summarize(trainer, module, run_dir))
    training = cost(trainer.global_step, module.train_seconds, module.train_tokens) | {"commit": commit}
    device = str(trainer.strategy.root_device)  # Lightning has moved the module to the CPU
    split, scores = score(cfg, run_dir, splits, device=device, training=training)
    log_final(trainer.loggers, resolved, split, scores, step=trainer.global_step)
    return scores | {"best": kept.best_score}


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


def prepare_tokenizer(data: DictConfig, splits: dict[str, Any], run_dir: Path, *, is_new: bool) -> Tokenizer:
    """Make the tokenizer of a new run; on other ranks or for a resumed run, load the saved tokenizer."""
    if not is_new:
        return Tokenizer.load(run_dir / "tokenizer", lowercase=reads_lowercase(data))
    tokenizer = make_tokenizer(data, splits["train"])
    if data.tokenizer.model is not None:
        data.tokenizer.vocab_size = tokenizer.src_vocab_size
        with open_dict(data.tokenizer):
            for name in ("model_type", "character_coverage", "normalization"):  # of its training: unknown
                data.tokenizer.pop(name, None)
    return tokenizer


def make_module(
    cfg: DictConfig, tokenizer: Tokenizer, datamodule: TranslationDataModule, trainer: L.Trainer
) -> TranslationModule:
    """The Lightning module of the run. Raises UserError for incompatible settings."""
    kernels.use(cfg.kernels)
    translator = build_translator(cfg.model, tokenizer, trusted=cfg.trusted)
    check_parts(cfg, translator, tokenizer)
    check_monitors(
        cfg,
        [TranslationModule, *trainer.callbacks],  # type: ignore[attr-defined]
        has_attention=translator.has_attention,
        has_gold="alignment" in datamodule.val_text.column_names,
    )
    check_lengths(translator, datamodule.rows("val"))
    for each in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(each, ScoreValidation) and isinstance(bleu := each.scorers["bleu"], Bleu):
            check_references(cfg, bleu, datamodule.val_text["tgt"][:1000])
    log.info("%s with %s parameters", translator.name, f"{translator.num_parameters:,}")
    module = TranslationModule(
        translator,
        optimizer=build(cfg.optimizer, "optimizer", trusted=cfg.trusted),
        scheduler=build(cfg.scheduler, "scheduler", trusted=cfg.trusted),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=cfg.guided_alignment,
        r_drop=cfg.r_drop,
        decoding=build(cfg.decoding, "decoding"),
    )
    # Lightning converts it only after loading a checkpoint, which would round the weights of 64-true.
    trainer.precision_plugin.convert_module(module)
    return module


def log_differences(there: DictConfig, here: DictConfig) -> None:
    """Log the model settings that differ from the run of start_from. Loading weights finds only some, not heads."""
    old, new = (flat(OmegaConf.to_container(each, resolve=True)) for each in (there, here))
    if lines := [
        f"{key} {say(old.get(key))} → {say(value)}" for key, value in new.items() if value != old.get(key)
    ]:
        log.info("the model differs from that of start_from: %s", ", ".join(lines))


@contextlib.contextmanager
def errors_of_training(cfg: DictConfig, trainer: L.Trainer) -> Iterator[None]:
    """End the run's other processes after an error, and raise UserError for errors that the user can fix."""
    try:
        yield
    except SystemExit as end:  # Lightning's reaction to an interrupt
        raise KeyboardInterrupt from end
    except Exception as error:
        launch.end_children(trainer)
        if advice := advise(error, cfg, trainer):
            raise UserError(advice) from error
        raise


def advise(error: Exception, cfg: DictConfig, trainer: L.Trainer) -> str | None:
    """Advice for errors that the user can fix; None for others."""
    if isinstance(error, MisconfigurationException):
        return f"trainer: {error}"
    if isinstance(error, ValueError) and "`val_check_interval`" in str(error):
        return (
            f"trainer.val_check_interval={cfg.trainer.val_check_interval}: an epoch has only "
            f"{trainer.num_training_batches:.0f} batches; give fewer, or trainer.check_val_every_n_epoch=null "
            "beside it to count batches over epochs"
        )
    if is_out_of_memory(error):
        return (
            f"memory ran out at step {trainer.global_step}, though the largest batch had fitted at the start: "
            "see in TensorBoard whether train/memory grows, and what else runs here; "
            f"go on with resume={cfg.run_dir}, or lower data.max_tokens={cfg.data.max_tokens} in a new run"
        )
    if launch.has_lost_another(error):
        return f"another process of the run has ended, see its error ({str(error).splitlines()[0]})"
    return launch.port_in_use(error)


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


def resume_run(
    cfg: DictConfig, overrides: list[str], check_settings: Callable[[DictConfig], None] = lambda config: None
) -> None:
    """Continue the run in the directory `cfg.resume` with settings changed by `overrides`, or score it if finished.

    Raises UserError, also from `check_settings`, for a stored setting with a wrong type or value.
    """
    run_dir = Path(cfg.resume).resolve()
    keys = [key_of(override) for override in overrides]
    if "run_dir" in keys:
        raise UserError(f"resume= goes on in {run_dir}: leave out run_dir=")
    cfg.run_dir = str(run_dir)
    keys_given = [key for key in keys if key not in ("resume", "trusted")]
    stored = resume.load_stored_settings(run_dir)
    resume.settle_defaults(cfg, stored, keys)
    stored = resume.take_over(stored, cfg, keys_given)
    wanted, written = (OmegaConf.to_container(cfg, resolve=resolve) for resolve in (True, False))
    config, changes = resume.apply_changes(stored, wanted, keys_given, written=written)  # type: ignore[arg-type]
    resumed = OmegaConf.create(config | {"trusted": list(cfg.trusted)})
    check_settings(resumed)
    check_buildable(resumed, trusted=cfg.trusted)
    file, checkpoint = resume.load_checkpoint(run_dir)
    with sound(file):
        reason, step = resume.why_finished(checkpoint, config), checkpoint["global_step"]
        num_processes, training = len(checkpoint["random"]), cost_so_far(checkpoint)
        new_end = bool(changes) and resume.stretches_schedule(stored, config)
    tokenizer = Tokenizer.load(run_dir / "tokenizer", lowercase=reads_lowercase(resumed.data))
    # Fails early if the weights do not fit
    load_translator(resumed.model, tokenizer, [file], trusted=cfg.trusted, checkpoint=checkpoint)
    for line in changes:
        log.info(line)
    if new_end:
        log.warning("the learning rate follows the schedule of the new end from here on")
    stored_data = not {"data.path", "data.name"} & set(keys)
    if reason is None:
        log.info("going on from %s, step %d", file, step)
        del checkpoint  # frees memory; Lightning reads the file again
        train(
            resumed,
            checkpoint=file,
            step=step,
            num_processes=num_processes,
            resumed_with=overrides if changes else (),
            stored_data=stored_data,
        )
    elif launch_rank() > 0:
        return
    elif scored := scores_after(run_dir, step):
        if idle := [line for line in changes if line.startswith(("decoding.", "metrics."))]:
            raise UserError(
                f"{run_dir} has finished ({reason}), and its scores are in {scored.name}: {'; '.join(idle)} would "
                f"change nothing. {command('evaluate')} scores it with other settings"
            )
        print(
            f"{run_dir} has finished ({reason}); its scores are in {scored.name}, its best checkpoint is best.ckpt"
        )
    else:
        print(f"{run_dir} has finished ({reason}); scoring it")
        if changes:
            provenance.note_command(run_dir, overrides, resumes=True)
        kernels.use(resumed.kernels)
        splits = read_splits(resumed.data, trusted=cfg.trusted, stored=stored_data)
        split, scores = score(resumed, run_dir, splits, device="auto", training=training)
        log_final(make_loggers(resumed, last_step=None), config, split, scores, step=step)


def is_sweep() -> bool:
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def _choices() -> dict[str, str]:
    """The chosen option of every recorded group; empty if Hydra did not start the run."""
    if not HydraConfig.initialized():
        return {}
    choices = HydraConfig.get().runtime.choices
    recorded = [group.name for group in GROUPS if group.recorded or group.name in ("callbacks", "trainer")]
    return {
        group.split("@")[0]: str(choices[group])
        for group in sorted(choices)
        if group.split("/")[0].split("@")[0] in recorded and choices[group] is not None
    }


def silence_warnings() -> None:
    """Silence known harmless messages of Lightning and torch."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
    warnings.filterwarnings("ignore", ".*does not have many workers")
    # All logged values are the same on every rank
    warnings.filterwarnings("ignore", ".*sync_dist=True")
    # A short epoch; the advice names a setting of Lightning
    warnings.filterwarnings("ignore", ".*is smaller than the logging interval")
    # Callbacks of a resumed run may change
    warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`, callbacks used to create")
    # Lightning expects the position in the loader; the data module's sampler has it
    warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch")
