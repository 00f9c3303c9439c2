"""Training from a configuration: set up, build, fit, score."""

import logging
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt import kernels
from nmt.checkpoint import checkpoint_file, has_checkpoints, read_weights
from nmt.config.build import build, check_buildable, reads_lowercase
from nmt.config.types import GROUPS, flat, say
from nmt.data.augmentation import augment
from nmt.data.datamodule import TranslationDataModule, make_datamodule
from nmt.data.tokenizer import Tokenizer, model_files
from nmt.environment import is_sweep, launch_rank
from nmt.errors import UserError
from nmt.metrics import Bleu
from nmt.run import provenance
from nmt.run.data import read_splits
from nmt.run.limits import check_decoding
from nmt.run.loading import load_translator, load_weights
from nmt.run.model import build_translator
from nmt.run.paths import load_config, write_config
from nmt.training import launch
from nmt.training.callbacks import (
    DrawAlignments,
    ScoreValidation,
    TensorBoard,
    summarize,
)
from nmt.training.checks import (
    check_explainer,
    check_lengths,
    check_model,
    check_monitors,
    check_references,
    check_rules,
    check_splits,
    check_stream,
    check_warmup,
)
from nmt.training.fine_tuning import freeze, mix_in_old_text
from nmt.training.lengths import set_length_ratio, warn_of_long_references
from nmt.training.module import TranslationModule
from nmt.training.precision import choose_precision, defer_choice, warn_of_slow_precision
from nmt.training.scoring import cost, hyperparameters, log_final, score
from nmt.training.trainer import check_checkpoints, make_trainer
from nmt.training.vocabulary import make_tokenizer

log = logging.getLogger("train")


class Resumed(NamedTuple):
    """The checkpoint that a run goes on from, saved after `step` optimizer steps by `num_processes` processes.

    overrides: those that changed settings, noted as a command of the run. stored_data: True if the run has the same
    data; text of the Hub is then read from the cache.
    """

    checkpoint: Path
    step: int
    num_processes: int
    overrides: Sequence[str]
    stored_data: bool


def train(cfg: DictConfig, resumed: Resumed | None = None) -> dict[str, Any]:
    """Run the configuration in its `run_dir` and return the scores on the test set, else on the validation set.

    The entry `best` is the best validation score, None if there was no validation. Only rank 0 scores and returns
    scores. `cfg` gets the settings that follow from the text.
    """
    started, commit = time.perf_counter(), provenance.commit()
    # First: callbacks refer to settings of the tokenizer
    start = None if resumed or cfg.get("start_from") is None else take_start(cfg, Path(cfg.start_from))
    chooses = defer_choice(cfg.trainer)
    trainer = set_up(cfg, resumed)
    with launch.first_rank_first(trainer):
        module, datamodule, splits = build_run(cfg, trainer, resumed, start)
    if chooses:
        cfg.trainer.precision = choose_precision(trainer, module, datamodule)
    resolved = record_settings(cfg, trainer, resumed)
    log.info("ready after %.0f s; run directory %s", time.perf_counter() - started, cfg.run_dir)
    fit(cfg, trainer, module, datamodule, resumed)
    if not trainer.is_global_zero:
        return {}
    print(summarize(trainer, module, Path(cfg.run_dir)))
    training = cost(trainer.global_step, module.meter.seconds, module.meter.tokens) | {"commit": commit}
    device = str(trainer.strategy.root_device)  # Lightning has moved the module to the CPU
    split, scores = score(cfg, Path(cfg.run_dir), splits, device=device, training=training)
    resolved["decoding"]["length_alpha"] = cfg.decoding.length_alpha  # it may be chosen now
    log_final(trainer.loggers, resolved, split, scores, step=trainer.global_step)
    return scores | {"best": check_checkpoints(trainer, Path(cfg.run_dir)).best_score}


def set_up(cfg: DictConfig, resumed: Resumed | None) -> L.Trainer:
    """Check the settings that need no text, seed the random generators, and make the trainer and the run directory."""
    check_buildable(cfg, trusted=cfg.trusted)
    check_rules(cfg)
    if resumed is None:
        check_model(cfg)
    run_dir = Path(cfg.run_dir)
    if resumed is None and launch_rank() == 0 and has_checkpoints(run_dir):
        raise UserError(f"{run_dir} has a run already: go on with resume={run_dir}, or give another run_dir=")
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    trainer = make_trainer(cfg, run_dir, last_step=resumed.step if resumed else None)
    check_checkpoints(trainer, run_dir)
    # Checked again when it is known if the data have alignments and the model has attention
    check_monitors(cfg, [TranslationModule, *trainer.callbacks], has_attention=True, has_gold=True)  # type: ignore[attr-defined]
    launch.check_launch(trainer, num_before=resumed.num_processes if resumed else None, sweep=is_sweep())
    check_stream(cfg, num_processes=trainer.world_size)
    run_dir.mkdir(parents=True, exist_ok=True)
    if not trainer.is_global_zero:
        logging.disable(logging.WARNING)  # rank 0 logs the same
    warn_of_slow_precision(trainer)
    return trainer


def build_run(
    cfg: DictConfig,
    trainer: L.Trainer,
    resumed: Resumed | None,
    start: tuple[dict[str, Tensor], Path] | None,
) -> tuple[TranslationModule, TranslationDataModule, dict[str, Any]]:
    """Read the text, make the vocabulary, the batches and the model: (module, data module, text by split).

    start: the weights that the model starts from, and their file. A new run saves its tokenizer when all checks have
    passed.
    """
    run_dir, is_new = Path(cfg.run_dir), resumed is None and trainer.is_global_zero
    splits = read_splits(cfg.data, trusted=cfg.trusted, stored=bool(resumed and resumed.stored_data))
    check_splits(cfg.data, splits)
    splits["train"] = augment(splits["train"], cfg.data, cfg.seed)
    tokenizer = prepare_tokenizer(cfg.data, splits, run_dir, is_new=is_new)
    if cfg.get("old_share"):
        splits["train"] = mix_in_old_text(cfg, splits["train"])
    datamodule = make_datamodule(
        cfg.data, splits, tokenizer, seed=cfg.seed, guided=bool(cfg.guided_alignment)
    )
    check_warmup(cfg, partial(datamodule.num_batches, trainer.world_size), given_overrides())
    set_length_ratio(cfg, datamodule)
    module = make_module(cfg, tokenizer, datamodule, trainer)
    warn_of_long_references(module.decoding, module.translator, datamodule, splits)
    freeze(module.translator, cfg.get("freeze") or ())
    if start is not None:
        load_weights(module.translator, *start)
    if is_new:
        tokenizer.save(run_dir / "tokenizer")
    return module, datamodule, splits


def record_settings(cfg: DictConfig, trainer: L.Trainer, resumed: Resumed | None) -> dict[str, Any]:
    """Write config.yaml, note the command, and log the hyper-parameters. Returns the resolved settings."""
    run_dir = Path(cfg.run_dir)
    resolved: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in ("resume", "trusted"):  # settings of this start, not of the run
        resolved.pop(name, None)
    resolved.setdefault("choices", _choices())
    if trainer.is_global_zero:
        write_config(run_dir, OmegaConf.create(resolved))
        overrides = resumed.overrides if resumed else given_overrides()
        if overrides or (resumed is None and HydraConfig.initialized()):
            provenance.note_command(run_dir, overrides, resumes=resumed is not None)
    for logger in trainer.loggers:
        if not isinstance(logger, TensorBoard):  # TensorBoard gets them with the final scores
            logger.log_hyperparams(hyperparameters(resolved))
    return resolved


def fit(
    cfg: DictConfig,
    trainer: L.Trainer,
    module: TranslationModule,
    datamodule: TranslationDataModule,
    resumed: Resumed | None,
) -> None:
    """Train to the end, and leave the process group."""
    checkpoint = resumed.checkpoint if resumed else None
    with launch.errors_of_training(cfg, trainer), logging_redirect_tqdm():  # log lines do not break the bar
        trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint, weights_only=True)
    launch.destroy_process_group()


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
    decoding = build(cfg.decoding, "decoding")
    check_decoding(decoding, translator)
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
        if isinstance(each, DrawAlignments):
            check_explainer(each.method, translator, tokenizer)
    log.info("%s with %s parameters", translator.name, f"{translator.num_parameters:,}")
    module = TranslationModule(
        translator,
        optimizer=build(cfg.optimizer, "optimizer", trusted=cfg.trusted),
        scheduler=build(cfg.scheduler, "scheduler", trusted=cfg.trusted),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=cfg.guided_alignment,
        r_drop=cfg.r_drop,
        decoding=decoding,
    )
    # Lightning converts it only after loading a checkpoint, which would round the weights of 64-true.
    trainer.precision_plugin.convert_module(module)
    return module


def take_start(cfg: DictConfig, origin: Path) -> tuple[dict[str, Tensor], Path]:
    """The weights of the run that `cfg` starts from, and their file. Sets the tokenizer of that run in `cfg`.

    Logs the settings of the model that differ: loading weights finds only some, not heads.
    """
    there, file = load_config(origin), checkpoint_file(origin, "best")
    if not OmegaConf.is_dict(there.data.get("tokenizer")) or "joint" not in there.data.tokenizer:
        raise UserError(f"{origin / 'config.yaml'} is broken: it has no data.tokenizer.joint")
    models = model_files(origin / "tokenizer", joint=there.data.tokenizer.joint)
    cfg.data.tokenizer = {
        **there.data.tokenizer,
        "sampling": cfg.data.tokenizer.sampling,
        "model": [str(each) for each in models],
    }
    old, new = (flat(OmegaConf.to_container(each.model, resolve=True)) for each in (there, cfg))
    if lines := [
        f"{key} {say(old.get(key))} → {say(value)}" for key, value in new.items() if value != old.get(key)
    ]:
        log.info("the model differs from that of start_from: %s", ", ".join(lines))
    if cfg.get("freeze"):  # a wrong name is refused before the text is read
        tokenizer = Tokenizer.load(origin / "tokenizer")
        like = load_translator(there.model, tokenizer, [file], trusted=cfg.trusted)
        log.info("frozen: %s", freeze(like, cfg.freeze))
    return read_weights(file), file


def given_overrides() -> list[str]:
    """The overrides of the command line; none if Hydra did not start the run."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


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
