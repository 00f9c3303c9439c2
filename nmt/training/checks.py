"""Checks of a configuration, made before training starts."""

import sys
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.data.pairs import Rows
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.run.building import build, instantiate
from nmt.run.checks import check_case, check_decoding

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
    "trainer.limit_train_batches": (ABOVE, True),
    "trainer.gradient_clip_val": (ABOVE, True),  # Lightning's 0 for none would be a limit of 0
    "callbacks.checkpoint.every_n_steps": (1, True),
    "callbacks.checkpoint.every_n_minutes": (ABOVE, True),
    "callbacks.early_stopping.patience": (0, False),
    "callbacks.spikes.num_deviations": (ABOVE, False),
    "callbacks.alignments.num_sentences": (0, False),
    "callbacks.score.num_samples": (0, False),
}
# What Lightning's trainer takes too, and which settings say it here
ELSEWHERE = {
    "logger": "the settings of logger",
    "callbacks": "the settings of callbacks",
    "plugins": "trainer.strategy and trainer.precision",
    "default_root_dir": "log_dir and run_dir",
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
    for key in ("trainer.max_epochs", "trainer.max_steps"):
        if OmegaConf.select(cfg, key) == 0:
            raise UserError(f"{key}=0 would train nothing: give at least 1")
    betas = OmegaConf.select(cfg, "optimizer.betas", default=(0.9, 0.999))
    if len(betas) != 2:
        raise UserError(f"optimizer.betas={betas}: give two numbers, as in optimizer.betas=[0.9,0.999]")


def check_trainer(trainer: DictConfig, fixed: dict[str, Any]) -> None:
    """Raise UserError for a setting of the trainer that is `fixed` to another value, or is another group's to make."""
    for key in (*fixed, *ELSEWHERE):
        if key in trainer and trainer[key] != fixed.get(key):
            why = (
                f"it is {fixed[key]} in every run" if key in fixed else f"it is {ELSEWHERE[key]} that say it"
            )
            raise UserError(f"trainer.{key}={trainer[key]} has no effect, {why}: leave it out")


def check_monitors(cfg: DictConfig, givers: list[Any], *, has_attention: bool, has_gold: bool) -> None:
    """Raise UserError where something goes by a score that none of `givers` gives, or takes the worst for the best.

    Scores of the attention are given where the model has one, and its error where validation has gold alignments too.
    """
    given = [
        name
        for each in givers
        for name in getattr(each, "scores", ())
        if (has_attention or not name.startswith("val/attention/"))
        and ((has_attention and has_gold) or name != "val/aer")
    ]
    if OmegaConf.select(cfg, "callbacks.early_stopping.check_on_train_epoch_end", default=False):
        raise UserError(
            "callbacks.early_stopping.check_on_train_epoch_end=true: it goes by a validation's scores: leave it out"
        )
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


def check_lengths(translator: Translator, val: Rows) -> None:
    """Raise UserError where a validation pair is longer than the model can read."""
    longest = int(max(val.src_lengths.max(), val.tgt_lengths.max()))
    if translator.max_length is not None and longest > translator.max_length:
        raise UserError(
            f"a validation pair has {longest} pieces, and positions.max_length={translator.max_length}: give "
            f"positions.max_length={longest} or positions=sinusoidal"
        )


def check_parts(cfg: DictConfig, translator: Translator, tokenizer: Tokenizer) -> None:
    """Build what is first used in the middle or at the end of a run: what cannot be ends it before its work."""
    check_decoding(cfg.decoding, translator)
    check_case(instantiate(cfg.metrics), lowercase=tokenizer.lowercase)
    try:
        optimizer = build(cfg.optimizer)(translator.parameters())
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer: {error}") from error
    total_steps = cfg.scheduler.get("total_steps")
    if total_steps is not None and cfg.scheduler._target_ != "nmt.training.schedules.cosine":
        raise UserError(
            f"scheduler.total_steps={total_steps} has no effect without scheduler=cosine: leave it out"
        )
    try:  # how many steps there are is not known yet
        build(cfg.scheduler)(
            optimizer,
            **({} if total_steps is not None else {"total_steps": sys.maxsize}),
        )
    except TypeError as error:
        raise UserError(f"scheduler: {error}") from error
    if cfg.data.get("streaming") is not None and cfg.trainer.limit_train_batches not in (None, 1.0):
        raise UserError(
            f"trainer.limit_train_batches={cfg.trainer.limit_train_batches}: of a stream, data.streaming="
            f"{cfg.data.streaming} says how many batches an epoch has: leave it out"
        )
    algorithm = cfg.trainer.get("gradient_clip_algorithm")
    if algorithm not in (None, "norm"):
        raise UserError(f"trainer.gradient_clip_algorithm={algorithm}: it is the norm that is clipped")
