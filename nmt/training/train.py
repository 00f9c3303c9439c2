"""Training from a configuration: `train` for a new run, `resume_run` for one that was interrupted."""

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
from omegaconf import DictConfig, OmegaConf
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt import kernels
from nmt.config.build import build, build_parts, check_buildable, reads_lowercase
from nmt.config.types import GROUPS, flat, key_of, say
from nmt.data.datamodule import TranslationDataModule, make_datamodule
from nmt.data.tokenizer import Tokenizer, model_files
from nmt.environment import launch_rank
from nmt.errors import UserError, command
from nmt.run import provenance
from nmt.run.data import read_splits
from nmt.run.model import build_translator
from nmt.run.paths import checkpoint_file, load_config, write_atomically
from nmt.run.weights import load_translator, load_weights
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
from nmt.training.lengths import set_length_ratio, warn_of_long_references
from nmt.training.memory import is_out_of_memory
from nmt.training.module import TranslationModule
from nmt.training.precision import warn_of_slow_precision
from nmt.training.scoring import cost, cost_so_far, hyperparameters, log_final, score, scores_after
from nmt.training.states import sound
from nmt.training.vocabulary import make_tokenizer

log = logging.getLogger("train")

# What the parts of this package rely on: batches are drawn anew in each epoch, and dealt to the ranks, by the data
# module, and the first validation is one of a trained model.
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
    """Run the configuration in its `run_dir` and return the test scores (validation's where there is no test).

    The entry `best` is the best validation score, None if there was no validation.

    With a `checkpoint`, which `num_processes` saved after `step`, its run goes on, with other settings where it is
    `resumed_with` some; with `stored_data`, its data are those that the run names. Only rank 0 scores and returns
    scores.
    """
    started, commit = time.perf_counter(), provenance.commit()
    check_buildable(cfg, trusted=cfg.trusted)
    check_rules(cfg)
    origin = None if checkpoint or cfg.get("start_from") is None else Path(cfg.start_from)
    if origin is not None:
        there, weights = load_config(origin), checkpoint_file(origin, "best")
        models = model_files(origin / "tokenizer", joint=there.data.tokenizer.joint)
        cfg.data.tokenizer = {
            **there.data.tokenizer,
            "sampling": cfg.data.tokenizer.sampling,
            "model": [str(file) for file in models],
        }
    run_dir = Path(cfg.run_dir)
    if checkpoint is None and launch_rank() == 0 and any(run_dir.glob("checkpoints/*.ckpt")):
        raise UserError(f"{run_dir} has a run already: go on with resume={run_dir}, or give another run_dir=")
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    trainer = make_trainer(cfg, run_dir, last_step=step if checkpoint else None)
    kept = check_checkpoints(trainer, run_dir)
    # Again when the data and the model are known, which may have no alignments or no attention
    check_monitors(cfg, [TranslationModule, *trainer.callbacks], has_attention=True, has_gold=True)  # type: ignore[attr-defined]
    launch.check_launch(trainer, num_before=num_processes, sweep=is_sweep())
    check_stream(cfg, num_processes=trainer.world_size)
    run_dir.mkdir(parents=True, exist_ok=True)
    if not trainer.is_global_zero:
        logging.disable(logging.WARNING)  # rank 0 says it
    warn_of_slow_precision(trainer)
    with launch.first_rank_first(trainer):
        splits = read_splits(cfg.data, trusted=cfg.trusted, stored=stored_data)
        is_new = checkpoint is None and trainer.is_global_zero
        tokenizer = prepare_tokenizer(cfg.data, splits, run_dir, is_new=is_new)
        datamodule = make_datamodule(
            cfg.data, splits, tokenizer, seed=cfg.seed, guided=bool(cfg.guided_alignment)
        )
        overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
        check_warmup(cfg, partial(datamodule.num_batches, trainer.world_size), overrides)
        set_length_ratio(cfg, datamodule)
        module = make_module(cfg, tokenizer, datamodule, trainer)
        warn_of_long_references(module.decoding, module.translator, datamodule, splits)
        if origin is not None:
            load_weights(module.translator, weights)
            log_differences(there.model, cfg.model)
        if is_new:  # and nothing was refused
            tokenizer.save(run_dir / "tokenizer")
    resolved: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in ("resume", "trusted"):  # of this start, not of the run
        resolved.pop(name, None)
    resolved.setdefault("choices", _choices())
    if trainer.is_global_zero:
        write_atomically(run_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(resolved)))
        if resumed_with:
            provenance.note_command(run_dir, resumed_with, resumes=True)
        elif checkpoint is None and HydraConfig.initialized():
            provenance.note_command(run_dir, overrides, resumes=False)
    for logger in trainer.loggers:
        if not isinstance(logger, TensorBoard):  # which has them beside the final scores
            logger.log_hyperparams(hyperparameters(resolved))
    log.info("ready after %.0f s; run directory %s", time.perf_counter() - started, run_dir)
    with errors_of_training(cfg, trainer), logging_redirect_tqdm():  # or a line would stand behind the bar
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
    """Lightning's trainer with its callbacks and loggers; `last_step` is that of the checkpoint of a resumed run."""
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
    """The loggers of a run, which may have none; `last_step` is that of the checkpoint of a resumed run."""
    # Of a run that went on, TensorBoard leaves out what was logged after the checkpoint: it will be logged again.
    again = {} if last_step is None else {"purge_step": last_step + 1}
    parts = cfg.get("logger") or OmegaConf.create()
    more = {
        str(name): again
        for name, part in parts.items()
        if OmegaConf.is_dict(part) and str(part.get("_target_")).endswith("TensorBoard")
    }
    return list(build_parts(parts, "logger", trusted=cfg.trusted, more=more).values())


def prepare_tokenizer(data: DictConfig, splits: dict[str, Any], run_dir: Path, *, is_new: bool) -> Tokenizer:
    """The tokenizer of a new run; of another, or on another rank, the one saved in its directory."""
    if not is_new:
        return Tokenizer.load(run_dir / "tokenizer", lowercase=reads_lowercase(data))
    tokenizer = make_tokenizer(data, splits["train"])
    if data.tokenizer.model is not None:  # how it was trained is not known here
        unknown = {"model_type": None, "character_coverage": None, "normalization": None}
        data.tokenizer.update(unknown, vocab_size=tokenizer.src_vocab_size)
    return tokenizer


def make_module(
    cfg: DictConfig, tokenizer: Tokenizer, datamodule: TranslationDataModule, trainer: L.Trainer
) -> TranslationModule:
    """The translator and how it is trained. Raises UserError for settings that do not go together."""
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
        if isinstance(each, ScoreValidation):
            check_references(cfg, each.scorers["bleu"], datamodule.val_text["tgt"][:1000])
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
    # Lightning converts it only after the weights of a checkpoint are in, which would round those of 64-true.
    trainer.precision_plugin.convert_module(module)
    return module


def log_differences(there: DictConfig, here: DictConfig) -> None:
    """Say which settings of the model are not those of the run that this one starts from, as heads have no weights."""
    old, new = (flat(OmegaConf.to_container(each, resolve=True)) for each in (there, here))
    if lines := [
        f"{key} {say(old.get(key))} → {say(value)}" for key, value in new.items() if value != old.get(key)
    ]:
        log.info("the model differs from that of start_from: %s", ", ".join(lines))


@contextlib.contextmanager
def errors_of_training(cfg: DictConfig, trainer: L.Trainer) -> Iterator[None]:
    """End the run's other processes at an error, and turn one that the person can mend into a UserError."""
    try:
        yield
    except SystemExit as end:  # how Lightning answers an interrupt
        raise KeyboardInterrupt from end
    except Exception as error:
        launch.end_children(trainer)
        if advice := advise(error, cfg, trainer):
            raise UserError(advice) from error
        raise


def advise(error: Exception, cfg: DictConfig, trainer: L.Trainer) -> str | None:
    """What to do about an error that ended training, where the person can do something."""
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
    """What keeps the checkpoints. Raises UserError where a run could not be scored or gone on with."""
    kept = trainer.checkpoint_callback
    if not isinstance(kept, Checkpoints):
        raise UserError(
            "callbacks.checkpoint is missing: without it a run could not be scored or gone on with"
        )
    if kept.directory.resolve() != (run_dir / "checkpoints").resolve():
        raise UserError(
            f"callbacks.checkpoint.directory={kept.directory}: a run has its checkpoints in {run_dir / 'checkpoints'}, "
            "where all else looks for them: leave it out"
        )
    return kept


def resume_run(
    cfg: DictConfig, overrides: list[str], check_settings: Callable[[DictConfig], None] = lambda config: None
) -> None:
    """Continue the run in the directory `cfg.resume`, with what the overrides change of its configuration.

    Raises UserError, as `check_settings` does, for a stored setting that is not what is declared.
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
    load_translator(resumed.model, tokenizer, [file], trusted=cfg.trusted)  # before the text is read
    for line in changes:
        log.info(line)
    if new_end:
        log.warning("the learning rate follows the schedule of the new end from here on")
    stored_data = not {"data.path", "data.reader.name"} & set(keys)
    if reason is None:
        log.info("going on from %s, step %d", file, step)
        del checkpoint  # Lightning reads it again: it would stay in memory
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
    """The option chosen from each group that has one; nothing where Hydra did not start the run."""
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
    """Leave out what libraries say of themselves at each start."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
    warnings.filterwarnings("ignore", ".*does not have many workers")
    # What is logged without is the same on every rank already.
    warnings.filterwarnings("ignore", ".*sync_dist=True")
    # Of a short epoch; its advice names a setting of Lightning's
    warnings.filterwarnings("ignore", ".*is smaller than the logging interval")
    # Callbacks may change in a run that goes on.
    warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`, callbacks used to create")
    # It looks for the position in the loader; the data module's sampler has it.
    warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch")
