"""Checks of a configuration, made before training starts."""

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning.pytorch.accelerators import AcceleratorRegistry
from omegaconf import DictConfig, OmegaConf
from torch import nn

from nmt.alignment import choose_units
from nmt.analysis.explanation import check_explainers
from nmt.config.build import build, build_parts, errors_of, reads_lowercase
from nmt.config.types import Explainer, key_of
from nmt.data.encoding import Rows
from nmt.data.find import FEW_HELD_OUT
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError, command
from nmt.languages import wanted_tokenization
from nmt.metrics import Bleu
from nmt.models.base import Translator
from nmt.run.aligning import AligningModel
from nmt.run.limits import check_case
from nmt.training.muon import make_optimizer
from nmt.training.schedules import schedule

log = logging.getLogger(__name__)


def check_accelerator(name: Any) -> None:
    """Raise UserError for an accelerator that this machine lacks."""
    kinds = ("cuda", "mps") if name == "gpu" else (name,)
    found = [AcceleratorRegistry[kind]["accelerator"] for kind in kinds if kind in AcceleratorRegistry]
    if isinstance(name, str) and name != "auto" and not any(each.is_available() for each in found):
        raise UserError(
            f"trainer.accelerator={name} cannot be used here: give trainer=cpu, or trainer.accelerator=auto"
        )


def check_model(cfg: DictConfig) -> None:
    """Raise UserError for settings of which no model can be built, before the text is read."""
    pieces = cfg.data.tokenizer
    # The pieces of a given model are not known yet
    may_separate = pieces.get("documents") or pieces.model is not None
    build(
        cfg.model,
        "model",
        trusted=cfg.trusted,
        src_vocab_size=8,
        tgt_vocab_size=8,
        joint_vocabulary=pieces.joint,
        separator_id=4 if may_separate else None,
        pad_id=0,
        bos_id=2,
        eos_id=3,
    )


def check_monitors(cfg: DictConfig, givers: list[Any], *, has_attention: bool, has_gold: bool) -> None:
    """Raise UserError if a setting monitors a score that none of `givers` logs, or has the wrong `mode` for it.

    `scores` of a giver has the best value of each: min, max, or None for either. Scores `val/attention/…` need
    attention; `val/aer` and `val/importance/…` need gold alignments too.
    """
    given = {
        name: best
        for each in givers
        for name, best in getattr(each, "scores", {}).items()
        if (has_attention or not name.startswith("val/attention/"))
        and ((has_attention and has_gold) or not name.startswith(("val/aer", "val/importance/")))
    }
    for key in ("callbacks.checkpoint", "callbacks.early_stopping", "scheduler"):
        monitor, mode = (OmegaConf.select(cfg, f"{key}.{name}") for name in ("monitor", "mode"))
        if monitor is None:
            continue
        if monitor not in given:
            raise UserError(
                f"{key}.monitor={monitor}: validation gives no such score; it gives {', '.join(given)}"
            )
        best = given[monitor]
        if best is not None and mode != best:
            raise UserError(f"{key}.mode={mode}: the best {monitor} is its {best}: give {key}.mode={best}")


def check_lengths(translator: Translator, val: Rows) -> None:
    """Raise UserError if a validation pair is longer than the model can read."""
    longest = int(max(val.src_lengths.max(), val.tgt_lengths.max()))
    if translator.max_length is not None and longest > translator.max_length:
        raise UserError(
            f"a validation pair has {longest} pieces, and positions.max_length={translator.max_length}: give "
            f"positions.max_length={longest} or positions=sinusoidal"
        )


def check_explainer(method: Explainer, translator: Translator, tokenizer: Tokenizer) -> None:
    """Raise UserError if sample sentences cannot be explained by a method. The model stays in training mode."""
    if method != "attention":
        try:
            check_explainers(AligningModel(tokenizer, translator), [method])
        except UserError as error:
            raise UserError(f"callbacks.alignments.method={method}: {error}") from error
        translator.train()


def check_splits(data: DictConfig, splits: Mapping[str, Any]) -> None:
    """Raise UserError if there is no training or validation text. Warn if there is little to validate on."""
    for split in ("train", "val"):
        if split not in splits:
            raise UserError(
                f"{data.get('path') or 'the data'}: there is no {split} split; training needs train and val: "
                f"{command('prepare')} with output=DIR takes val from the training text; or move some lines of "
                f"each file into one named {split}"
            )
    if len(splits["val"]) < FEW_HELD_OUT:
        log.warning(
            "val has %d pairs: too few to tell good checkpoints and length penalties from lucky ones. Give %d or more",
            *(len(splits["val"]), FEW_HELD_OUT),
        )


def check_references(cfg: DictConfig, bleu: Bleu, references: Sequence[str]) -> None:
    """Warn if BLEU chooses the best checkpoint or is a final score, and cannot count most references: they are too
    short for it, or written without spaces, which its tokenisation needs."""
    chooses = cfg.callbacks.checkpoint.monitor == "val/bleu"
    if cfg.metrics.get("bleu") is None and not chooses:
        return
    tokenize, language = (cfg.metrics.get("bleu") or {}).get("tokenize", "13a"), str(cfg.data.tgt_lang)
    if tokenize == "char" and (wanted := wanted_tokenization(language)).endswith("-mecab"):
        log.warning(
            "BLEU counts characters (metrics.bleu.tokenize=char), as MeCab is not installed: pip install "
            "'sacrebleu[%s]' for metrics.bleu.tokenize=%s",
            *(wanted[:2], wanted),
        )
    if tokenize == "13a":
        num_unspaced = sum(choose_units(text, "auto") == "mixed" for text in references)
        if 2 * num_unspaced > len(references):
            log.warning(
                "%.0f %% of the validation references are written without spaces between words, but BLEU counts words "
                "between spaces (metrics.bleu.tokenize=13a for %s): give metrics.bleu.tokenize=char, or zh for Chinese",
                *(100 * num_unspaced / len(references), language),
            )
            return
    order = bleu.max_ngram_order
    num_short = sum(len(bleu.tokenizer(text).split()) < order for text in references)
    if 2 * num_short > len(references):
        log.warning(
            "%.0f %% of the validation references have fewer than %d tokens (metrics.bleu.tokenize=%s): BLEU will be "
            "near 0%s",
            *(100 * num_short / len(references), order, tokenize),
            " and tell no checkpoints apart: give callbacks.checkpoint.monitor=val/chrf" * chooses,
        )


def check_rules(cfg: DictConfig) -> None:
    """Build metrics, optimizer and schedule, which need no text. Raises UserError for a fault."""
    metrics = build_parts(cfg.metrics, "metrics", trusted=cfg.trusted)
    check_case(metrics, lowercase=reads_lowercase(cfg.data))
    with errors_of("optimizer"):
        optimizer = make_optimizer(build(cfg.optimizer, "optimizer", trusted=cfg.trusted), nn.Linear(2, 2))
    with errors_of("scheduler"):
        # The number of steps is not known yet
        schedule(build(cfg.scheduler, "scheduler", trusted=cfg.trusted), optimizer, sys.maxsize)


def check_warmup(cfg: DictConfig, num_batches: Callable[[], int], overrides: Sequence[str]) -> None:
    """Raise UserError if a warm-up among `overrides` outlasts the run. (A default warm-up only gives a warning.)"""
    if "scheduler.warmup_steps" in map(key_of, overrides):
        warmup_steps, total_steps = cfg.scheduler.warmup_steps, num_steps(cfg.trainer, num_batches())
        if warmup_steps >= total_steps:
            raise UserError(
                f"scheduler.warmup_steps={warmup_steps} of {total_steps} steps: the learning rate would only rise; "
                "give fewer"
            )


def num_steps(trainer: DictConfig, num_batches: int) -> float:
    """Optimizer steps of a run by its limits on batches, epochs and steps. num_batches: per process and epoch."""
    limit = trainer.get("limit_train_batches")
    if limit is not None:
        num_batches = min(num_batches, limit) if isinstance(limit, int) else int(num_batches * limit)
    steps: float = math.ceil(num_batches / trainer.accumulate_grad_batches)
    steps *= trainer.max_epochs if trainer.max_epochs not in (None, -1) else math.inf
    return steps if trainer.max_steps == -1 else min(steps, trainer.max_steps)


def check_stream(cfg: DictConfig, *, num_processes: int) -> None:
    """Raise UserError for settings that are incompatible with `data.streaming`."""
    if cfg.data.get("streaming") is None:
        return
    if cfg.trainer.limit_train_batches not in (None, 1.0):
        raise UserError(
            f"trainer.limit_train_batches={cfg.trainer.limit_train_batches}: of a stream, data.streaming="
            f"{cfg.data.streaming} says how many batches an epoch has: leave it out"
        )
    if num_processes > 1 and 2 * cfg.data.max_length > cfg.data.max_tokens:
        raise UserError(
            f"data.max_length={cfg.data.max_length} is more than half of data.max_tokens={cfg.data.max_tokens}: "
            f"a stream may bring batches of one pair, which cannot be dealt to {num_processes} processes"
        )
