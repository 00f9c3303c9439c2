"""Train a translator or go on with a run, keep its best checkpoint, and score its test set with it."""

import contextlib
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
import lightning as L
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from nmt import kernels, launch, resume
from nmt.callbacks import AtomicCheckpointIO, Interrupted, ProgressBar, is_out_of_memory, summarize
from nmt.commands import command
from nmt.data.datamodule import make_datamodule
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError, WriteError
from nmt.models.base import Translator
from nmt.module import TranslationModule
from nmt.run import (
    Run,
    build_translator,
    check_decoding,
    instantiate,
    load_config,
    make_tokenizer,
    read_splits,
    report,
    stored_data,
    write_atomically,
    write_scores,
)

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("train")

# Groups whose options are written down with the run
NAMED_GROUPS = [
    "attention",
    "averaging",
    "content",
    "data",
    "model",
    "normalizer",
    "optimizer",
    "scheduler",
    "wiring",
]


def train(
    cfg: DictConfig, *, checkpoint: Path | None = None, step: int = 0, num_processes: int | None = None
) -> dict[str, Any]:
    """Run the configuration in its `run_dir` and return the test scores (validation's where there is no test).

    With a `checkpoint`, which was saved after `step` by `num_processes`, its run goes on. Of several processes rank 0
    scores and returns the scores, the others nothing.
    """
    started = time.perf_counter()
    check_numbers(cfg)
    run_dir = Path(cfg.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    if checkpoint is None and rank_zero_only.rank == 0 and any(run_dir.glob("checkpoints/*.ckpt")):
        raise UserError(f"{run_dir} has a run already: go on with resume={run_dir}, or give another run_dir=")
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    # A run of an earlier version has no such key.
    averaging = [hydra.utils.instantiate(cfg.averaging)] if cfg.get("averaging") else []
    trainer: L.Trainer = hydra.utils.instantiate(
        cfg.trainer,
        # What was logged after the checkpoint will be logged again.
        logger=hydra.utils.instantiate(cfg.logger, **({"purge_step": step + 1} if checkpoint else {})),
        callbacks=[
            callback
            for callback in hydra.utils.instantiate(cfg.callbacks).values()
            if cfg.trainer.enable_progress_bar or not isinstance(callback, ProgressBar)
        ]
        + averaging,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=str(run_dir),
    )
    launch.check_launch(trainer, num_before=num_processes, sweep=is_sweep())
    if not trainer.is_global_zero:
        logging.disable(logging.WARNING)  # rank 0 says it
    with launch.first_rank_first(trainer):
        splits = read_splits(cfg.data)
        if checkpoint is None and trainer.is_global_zero:
            tokenizer = make_tokenizer(cfg.data, splits["train"])
            tokenizer.save(run_dir / "tokenizer")
        else:
            tokenizer = Tokenizer.load(run_dir / "tokenizer")
        datamodule = make_datamodule(
            cfg.data, splits, tokenizer, seed=cfg.seed, guided=bool(cfg.guided_alignment)
        )
    kernels.use(cfg.kernels)
    translator = build_translator(cfg.model, tokenizer)
    check(cfg, translator, tokenizer)
    check_monitors(cfg, [TranslationModule, *trainer.callbacks])  # type: ignore[attr-defined]
    num_parameters = sum(p.numel() for p in translator.parameters())
    log.info("%s with %s parameters", type(translator).__name__, f"{num_parameters:,}")
    module = TranslationModule(
        translator,
        optimizer=hydra.utils.instantiate(cfg.optimizer),
        scheduler=hydra.utils.instantiate(cfg.scheduler),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=cfg.guided_alignment,
        r_drop=cfg.get("r_drop", 0.0),  # runs of earlier versions have none
    )
    # Lightning converts it only after the weights of a checkpoint are in, which would round those of 64-true.
    trainer.precision_plugin.convert_module(module)
    resolved: Any = OmegaConf.to_container(cfg, resolve=True)
    resolved.pop("resume", None)
    resolved.setdefault("choices", _choices())
    if trainer.is_global_zero:
        write_atomically(run_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(resolved)))
    log.info("ready after %.0f s; run directory %s", time.perf_counter() - started, run_dir)
    try:
        trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint, weights_only=True)
    except Exception as error:
        launch.end_children(trainer)
        if isinstance(error, MisconfigurationException):
            raise UserError(f"trainer: {error}") from error
        if advice := launch.port_in_use(error):
            raise UserError(advice) from error
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise UserError(
                f"memory ran out at step {trainer.global_step}, though the largest batch had fitted at the start: "
                "see in TensorBoard whether train/memory grows, and what else runs here; "
                f"go on with resume={run_dir}, or lower data.max_tokens={cfg.data.max_tokens} in a new run"
            ) from error
        if launch.has_lost_another(error):
            reason = str(error).splitlines()[0]
            raise UserError(f"another process of the run has ended, see its error ({reason})") from error
        raise
    launch.part()
    if not trainer.is_global_zero:
        return {}
    print(summarize(trainer, module, run_dir))
    training = {
        "seconds": module.train_seconds,
        "steps": trainer.global_step,
        "tokens_per_second": module.train_tokens / max(module.train_seconds, 1e-9),
        "num_parameters": num_parameters,
    }
    split, scores = score(cfg, run_dir, splits, device=str(module.device), training=training)
    log_hyperparameters(trainer, resolved, split, scores)
    return scores


def score(
    cfg: DictConfig, run_dir: Path, splits: dict[str, Any], *, device: str, training: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Write and print the scores on the test set, else the validation set: (split, scores).

    They are those of the best checkpoint; of the last where the run ended before a validation.
    """
    split = "test" if "test" in splits else "val"
    found = [name for name in ("best", "last") if (run_dir / "checkpoints" / f"{name}.ckpt").exists()]
    if not found:
        raise UserError(
            f"{run_dir}: nothing was trained, so that there is nothing to score: see trainer.max_epochs"
        )
    checkpoint = found[0]
    run = Run.load(run_dir, checkpoint=checkpoint, device=device)
    scores, translations = run.score(
        splits[split], scorers=instantiate(cfg.metrics), show_progress=True, **cfg.decoding
    )
    scores["training"] = training
    scores["decoding"], scores["checkpoint"] = OmegaConf.to_container(cfg.decoding, resolve=True), checkpoint
    write_scores(run_dir, split, scores, translations)
    print(f"{split} of {run_dir}\n{report(scores)}")
    return split, scores


def go_on(cfg: DictConfig, overrides: list[str]) -> None:
    """Continue the run in the directory `cfg.resume`, with what the overrides change of its configuration."""
    run_dir = Path(cfg.resume).resolve()
    loaded: Any = OmegaConf.to_container(load_config(run_dir))
    if not isinstance(loaded.get("run_dir"), str):
        raise UserError(f"{run_dir / 'config.yaml'} is broken: it has no run_dir")
    stored = resume.moved(loaded, loaded["run_dir"], str(run_dir))
    cfg.run_dir = str(run_dir)
    keys = [override.lstrip("+~").split("=")[0] for override in overrides]
    wanted: Any = OmegaConf.to_container(cfg, resolve=True)
    config, changes = resume.changed(stored, wanted, [key for key in keys if key != "resume"])
    resume.check_targets(config)
    resume.check_places(config, run_dir, keys)
    file, checkpoint = resume.load_checkpoint(run_dir)
    for line in changes:
        log.info(line)
    if changes and resume.stretches_schedule(stored, config):
        log.warning("the learning rate follows the schedule of the new end from here on")
    step = checkpoint["global_step"]
    resumed = OmegaConf.create(config)
    if "data.cache_dir" not in keys:
        resumed.data = stored_data(resumed.data)
    reason = resume.finished(checkpoint, config)
    if reason is None:
        log.info("going on from %s, step %d", file, step)
        train(resumed, checkpoint=file, step=step, num_processes=len(checkpoint["random"]))
    elif rank_zero_only.rank > 0:
        return
    elif scored := scores_after(run_dir, step):
        print(
            f"{run_dir} has finished ({reason}); its scores are in {scored.name}, its best checkpoint is best.ckpt"
        )
    else:
        print(f"{run_dir} has finished ({reason}); scoring it")
        score(resumed, run_dir, read_splits(resumed.data), device="auto", training={"steps": step})


# What would otherwise end in the middle of a run, or in an error that says little: the least that may stand there (a
# whole number where it is one, above 0 where it is ABOVE), and whether null may.
ABOVE = 5e-324
NUMBERS = {
    "seed": (0, False),
    "data.num_workers": (0, False),
    "optimizer.lr": (0.0, False),
    "trainer.val_check_interval": (ABOVE, True),
    "trainer.check_val_every_n_epoch": (1, True),
    "trainer.log_every_n_steps": (1, False),
    "trainer.accumulate_grad_batches": (1, False),
    "trainer.gradient_clip_val": (ABOVE, True),  # Lightning's 0 for none would be a limit of 0
    "callbacks.checkpoint.every_n_steps": (1, True),
    "callbacks.checkpoint.every_n_minutes": (ABOVE, True),
    "callbacks.early_stopping.patience": (0, False),
    "callbacks.spikes.num_deviations": (ABOVE, False),
}
WORSE_IF_MORE = ("val/loss", "val/perplexity", "val/aer")


def check_numbers(cfg: DictConfig) -> None:
    """Raise UserError for a number out of its range."""
    for key, (least, or_null) in NUMBERS.items():
        value = OmegaConf.select(cfg, key, default=least)
        if (value is None and or_null) or (key == "trainer.val_check_interval" and isinstance(value, str)):
            continue  # a time is Lightning's to read
        whole = type(least) is int
        if (
            isinstance(value, bool)
            or not isinstance(value, int if whole else int | float)
            or not value >= least
        ):
            wanted = "above 0" if least == ABOVE else f"of at least {least:g}"
            raise UserError(
                f"{key}={'null' if value is None else value}: give a {'whole ' if whole else ''}number {wanted}"
                f"{', or null' if or_null else ''}"
            )


def check_monitors(cfg: DictConfig, givers: list[Any]) -> None:
    """Raise UserError where something goes by a score that none of `givers` gives, or takes the worst for the best."""
    given = [name for each in givers for name in getattr(each, "scores", ())]
    for key in ("callbacks.checkpoint", "callbacks.early_stopping", "scheduler"):
        monitor, mode = (OmegaConf.select(cfg, f"{key}.{name}") for name in ("monitor", "mode"))
        if monitor is None:
            continue
        if monitor not in given:
            raise UserError(
                f"{key}.monitor={monitor}: validation gives no such score; it gives {', '.join(given)}"
            )
        best = "min" if monitor in WORSE_IF_MORE else "max"
        if not monitor.startswith("val/attention/") and mode != best:
            raise UserError(f"{key}.mode={mode}: the best {monitor} is its {best}: give {key}.mode={best}")


@contextlib.contextmanager
def claimed(run_dir: Path) -> Iterator[None]:
    """Hold a run directory while the block runs. Raises UserError where another process holds it: runs that start in
    one second have one name."""
    if fcntl is None or rank_zero_only.rank > 0:
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(run_dir, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that locks nothing
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{run_dir} is where another process trains now: wait for it, or give another run_dir="
                ) from error
        yield
    finally:
        os.close(descriptor)


def scores_after(run_dir: Path, step: int) -> Path | None:
    """The file with the scores of a run that ended after `step`; None where there is none, or of an earlier end."""
    for file in (run_dir / "metrics.json", run_dir / "metrics_val.json"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            if json.loads(file.read_text("utf-8"))["training"]["steps"] == step:
                return file
    return None


def check(cfg: DictConfig, translator: Translator, tokenizer: Tokenizer) -> None:
    """Build what is first used in the middle or at the end of a run: what cannot be ends it before its work."""
    check_decoding(cfg.decoding, translator, tokenizer)
    instantiate(cfg.metrics)
    try:
        optimizer = hydra.utils.instantiate(cfg.optimizer)(translator.parameters())
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer: {error}") from error
    try:  # how many steps there are is not known yet
        hydra.utils.instantiate(cfg.scheduler)(
            optimizer,
            **({} if cfg.scheduler.get("total_steps") is not None else {"total_steps": sys.maxsize}),
        )
    except TypeError as error:
        raise UserError(f"scheduler: {error}") from error
    algorithm = cfg.trainer.get("gradient_clip_algorithm")
    if algorithm not in (None, "norm"):
        raise UserError(f"trainer.gradient_clip_algorithm={algorithm}: it is the norm that is clipped")


def log_hyperparameters(trainer: L.Trainer, resolved: Any, split: str, scores: dict[str, Any]) -> None:
    """One row of TensorBoard's HPARAMS: what was chosen, and the final scores."""
    chosen = {f"choice/{group}": name for group, name in resolved["choices"].items()} | {
        key: value
        for key, value in _flat(resolved)
        if key.split(".")[0]
        in (
            *("model", "wiring", "optimizer", "scheduler", "averaging"),
            *("seed", "label_smoothing", "guided_alignment", "r_drop", "kernels"),
        )
        or key.startswith(("data.tokenizer.", "data.max_", "data.num_train"))
        if not key.endswith(("_partial_", "_target_"))
    }
    final = {
        f"{split}/{name}": result["score"]
        for name, result in scores.items()
        if isinstance(result, dict) and "score" in result
    }
    for logger in trainer.loggers:
        if hasattr(logger.experiment, "add_image"):
            logger.log_hyperparams(chosen, final, step=trainer.global_step)
        logger.finalize("success")


def is_sweep() -> bool:
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def _choices() -> dict[str, str]:
    """The option chosen from each group that has one; nothing where Hydra did not start the run."""
    if not HydraConfig.initialized():
        return {}
    choices = HydraConfig.get().runtime.choices
    return {
        group.split("@")[0]: str(choices[group])
        for group in sorted(choices)
        if group.split("/")[0].split("@")[0] in NAMED_GROUPS and choices[group] is not None
    }


def quieten() -> None:
    """Leave out what libraries say of themselves at each start."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
    warnings.filterwarnings("ignore", ".*does not have many workers")
    # What is logged without is the same on every rank already.
    warnings.filterwarnings("ignore", ".*sync_dist=True")
    # It looks for the position in the loader; the data module's sampler has it.
    warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch")


def for_hydra(arguments: list[str]) -> list[str]:
    """What Hydra is to be told: the command-line arguments, and what they mean for this process.

    Of the processes of a run only rank 0 writes Hydra's files. A run that goes on does so in its own directory.
    The keys of a run may be those of another choice than the default (`data.path`), so that each is told to be set
    whether it is there or not; `go_on` refuses those that the run has not got.
    """
    if rank_zero_only.rank > 0:
        arguments = [*arguments, "hydra.output_subdir=null", "hydra/job_logging=stderr"]
    given = [argument for argument in arguments if argument.startswith("resume=")]
    if not given or given[-1] in ("resume=", "resume=null"):
        return arguments
    directory = given[-1].removeprefix("resume=")
    config = Path(directory.strip("'\"")) / "config.yaml"
    if not config.is_file():  # before Hydra makes the directory
        raise UserError(f"{config.parent} is no run to go on with: it has no config.yaml")
    forced = [
        f"++{each}" if "." in each.split("=")[0] and each[0].isalpha() and "=" in each else each
        for each in arguments
    ]
    return [*forced, f"hydra.run.dir={directory}"]


def _flat(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        return [(prefix[:-1], tree if isinstance(tree, int | float | str | bool) else str(tree))]
    return [pair for key, value in tree.items() for pair in _flat(value, f"{prefix}{key}.")]


@command("train")
def main(cfg: DictConfig) -> None:
    quieten()
    try:
        with claimed(Path(cfg.run_dir if cfg.resume is None else cfg.resume)):
            if cfg.resume is None:
                train(cfg)
            else:
                go_on(cfg, list(HydraConfig.get().overrides.task))
    except Interrupted as signal:
        sys.exit(128 + signal.number)
    except WriteError as error:
        if any(Path(cfg.run_dir).glob("checkpoints/*.ckpt")):
            raise UserError(f"{error}, then go on with resume={cfg.run_dir}") from error
        raise


if __name__ == "__main__":
    try:
        sys.argv[1:] = for_hydra(sys.argv[1:])
    except UserError as error:
        sys.exit(f"train.py: error: {error}")
    main()
