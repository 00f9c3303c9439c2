"""Train a translator, keep its best checkpoint, and score its test set with it."""

import logging
import time
import warnings
from pathlib import Path
from typing import Any

import hydra
import lightning as L
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from nmt.callbacks import AtomicCheckpointIO, ProgressBar
from nmt.commands import command
from nmt.data.datamodule import TranslationDataModule
from nmt.data.tokenizer import Tokenizer
from nmt.module import TranslationModule
from nmt.run import Run, build_translator, instantiate, read_splits, report, write_atomically, write_scores

log = logging.getLogger("train")


def train(cfg: DictConfig) -> dict[str, Any]:
    """Run the configuration in its `run_dir` and return the test scores (validation's where there is no test)."""
    started = time.perf_counter()
    run_dir = Path(cfg.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    splits = read_splits(cfg.data)
    tokenizer = make_tokenizer(cfg.data.tokenizer, splits)
    tokenizer.save(run_dir / "tokenizer")
    datamodule = TranslationDataModule(
        splits,
        tokenizer,
        max_length=cfg.data.max_length,
        max_ratio=cfg.data.max_ratio,
        max_tokens=cfg.data.max_tokens,
        num_workers=cfg.data.num_workers,
        seed=cfg.seed,
        guided=bool(cfg.guided_alignment),
    )
    translator = build_translator(cfg.model, tokenizer)
    num_parameters = sum(p.numel() for p in translator.parameters())
    log.info("%s with %s parameters", type(translator).__name__, f"{num_parameters:,}")
    module = TranslationModule(
        translator,
        optimizer=hydra.utils.instantiate(cfg.optimizer),
        scheduler=hydra.utils.instantiate(cfg.scheduler),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=cfg.guided_alignment,
    )
    resolved = OmegaConf.to_container(cfg, resolve=True)
    write_atomically(run_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(resolved)))
    trainer: L.Trainer = hydra.utils.instantiate(
        cfg.trainer,
        logger=hydra.utils.instantiate(cfg.logger),
        callbacks=[
            callback
            for callback in hydra.utils.instantiate(cfg.callbacks).values()
            if cfg.trainer.enable_progress_bar or not isinstance(callback, ProgressBar)
        ],
        plugins=[AtomicCheckpointIO()],
        default_root_dir=str(run_dir),
    )
    log.info("ready after %.0f s; run directory %s", time.perf_counter() - started, run_dir)
    begun = time.perf_counter()
    trainer.fit(module, datamodule=datamodule)
    seconds = time.perf_counter() - begun
    log.info("trained %d steps in %.0f s", trainer.global_step, seconds)
    if not trainer.is_global_zero:
        return {}
    split = "test" if "test" in splits else "val"
    run = Run.load(run_dir, device=str(module.device))
    scores, translations = run.score(
        splits[split], scorers=instantiate(cfg.metrics), show_progress=True, **cfg.decoding
    )
    scores["training"] = {
        "seconds": seconds,
        "steps": trainer.global_step,
        "tokens_per_second": module.train_tokens / max(module.train_seconds, 1e-9),
        "num_parameters": num_parameters,
    }
    write_scores(run_dir, split, scores, translations)
    log_hyperparameters(trainer, resolved, split, scores)
    print(f"{split} of {run_dir}\n{report(scores)}")
    return scores


def make_tokenizer(cfg: DictConfig, splits: dict[str, Any]) -> Tokenizer:
    """The given SentencePiece model or models, else one trained on the training text."""
    if cfg.model is not None:
        files = [cfg.model] if isinstance(cfg.model, str) else list(cfg.model)
        return Tokenizer.from_models(*files)
    return Tokenizer.train(
        splits["train"]["src"],
        splits["train"]["tgt"],
        model_type=cfg.model_type,
        joint=cfg.joint,
        vocab_size=cfg.vocab_size,
        character_coverage=cfg.character_coverage,
    )


def log_hyperparameters(trainer: L.Trainer, resolved: Any, split: str, scores: dict[str, Any]) -> None:
    """One row of TensorBoard's HPARAMS: what was chosen, and the final scores."""
    chosen = {f"choice/{group}": name for group, name in _choices().items()} | {
        key: value
        for key, value in _flat(resolved)
        if key.split(".")[0] in ("model", "wiring", "optimizer", "scheduler", "seed", "label_smoothing")
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
            logger.log_hyperparams(chosen, final)
        logger.finalize("success")


def _choices() -> dict[str, str]:
    """The option chosen from each group of configurations; nothing where Hydra did not start the run."""
    if not HydraConfig.initialized():
        return {}
    choices = HydraConfig.get().runtime.choices
    return {
        group.split("@")[0]: str(choices[group])
        for group in sorted(choices)
        if group.split("/")[0].split("@")[0]
        in ("attention", "content", "data", "model", "normalizer", "optimizer", "scheduler", "wiring")
    }


def quieten() -> None:
    """Leave out what libraries say of themselves at each start."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
    warnings.filterwarnings("ignore", ".*does not have many workers")


def _flat(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        return [(prefix[:-1], tree if isinstance(tree, int | float | str | bool) else str(tree))]
    return [pair for key, value in tree.items() for pair in _flat(value, f"{prefix}{key}.")]


@command("train")
def main(cfg: DictConfig) -> None:
    quieten()
    train(cfg)


if __name__ == "__main__":
    main()
