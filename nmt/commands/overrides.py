"""Checks of what the command line sets: each value is of the kind of its default."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.commands.composing import CONFIGS, compose, not_a_choice
from nmt.errors import UserError
from nmt.settings import key_of

_KINDS = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}
# Lightning takes words here too: "auto", "warn", a time.
_WORDS_TOO = ("trainer.devices", "trainer.deterministic", "trainer.val_check_interval")
# Null is an answer here, though it is not the default.
_OR_NULL = (
    "callbacks.checkpoint.every_n_minutes",
    "data.columns",
    "model.attention",
    "encoder.output_size",
    "attention.max_fertility",
    "optimizer.fused",
    "trainer.check_val_every_n_epoch",
    "trainer.gradient_clip_val",
    "trainer.limit_train_batches",
    "trainer.limit_val_batches",
    "trainer.max_epochs",
    # What reads these refuses it, and says from where to where they go.
    "callbacks.spikes.num_deviations",
    "scheduler.warmup_steps",
)
# Null is the default here: what else there may be.
_EXAMPLES: dict[str, Any] = {
    "layer": 0,
    "head": 0,
    "callbacks.alignments.layer": 0,
    "callbacks.alignments.head": 0,
    "data.buffer_pairs": 100000,
    "decoder.alignment_layer": 0,
    "attention.max_fertility": 2.0,
    "decoder.readout_size": 192,
}
_SEEDS = range(2**32)  # NumPy's
# Paths: a directory may be called 2024, which YAML takes for a number.
_PATHS = (
    "alignment",
    "alignments",
    "checkpoint",
    "compare",
    "data.cache_dir",
    "data.path",
    "data.tokenizer.model",
    "gold",
    "heatmaps",
    "input",
    "log_dir",
    "output",
    "page",
    "prefixes",
    "refs",
    "resume",
    "reverse_run",
    "run",
    "run_dir",
    "runs",
    "src",
    "tgt",
)
_LISTS_OF_PATHS = ("compare", "data.tokenizer.model", "run", "runs")


def settle(cfg: DictConfig, config_name: str, overrides: Sequence[str]) -> None:
    """Check what the overrides have set in `cfg` by what stands there without them, and make paths of numbers.

    The defaults are those of the same choices of groups. Raises UserError for a value of another kind than its
    default: a number, true or false, a list, settings of its own; for null where one is needed.
    """
    texts = {text: key_of(text).partition("@")[0] for text in overrides if text[0] != "~"}
    choices = [text for text, key in texts.items() if (CONFIGS / key).is_dir()]
    for text in choices:
        if text.endswith("=[]") and not text.endswith("experiment=[]"):
            raise UserError(not_a_choice(text))
    values = {key: text.partition("=")[2].strip() for text, key in texts.items() if text not in choices}
    if not values:
        return
    defaults = compose(config_name, choices)
    for key, text in values.items():
        value = OmegaConf.select(cfg, key, throw_on_missing=False)
        if value == "" and _is_required(defaults, key):
            raise UserError(f"{key} is required: give {key}=VALUE")
        if key in _PATHS and value is not None:
            _settle_path(cfg, key, value, text)
            continue
        default = OmegaConf.select(defaults, key, throw_on_missing=False)
        if value is None:
            if _is_required(defaults, key) or (key in _PATHS and default is not None):
                raise UserError(f"{key} is required: give {key}=VALUE")
            if default is None or key in _OR_NULL:
                continue
        wanted = None if key in _WORDS_TOO else _wanted(key, value, _EXAMPLES.get(key, default))
        if wanted is not None:
            raise UserError(f"{key}={'null' if value is None else value}: give {wanted}")


def _wanted(key: str, value: Any, example: Any) -> str | None:
    """What to give instead of a value that is not of the example's kind; None where it is."""
    if key == "seed":
        fits = type(value) is int and value in _SEEDS
        return None if fits else f"a whole number of at least 0 and at most {_SEEDS[-1]}, as in seed=1"
    if OmegaConf.is_dict(example):
        own = f"settings of its own, {key}.NAME=VALUE, or leave it out: ~{key}"
        return None if OmegaConf.is_dict(value) else own
    if OmegaConf.is_list(example):
        kind = type(example[0]) if len(example) else object
        fits = OmegaConf.is_list(value) and all(_is_a(kind, each) for each in value)
        what = f"a list, each {_KINDS[kind][0]}" if kind in _KINDS else "a list"
    else:
        fits, what = _is_a(type(example), value), _KINDS.get(type(example), ("",))[0]
    return None if fits else f"{what}, as in {key}={str(example).replace(' ', '').lower()}"


def _is_a(kind: type, value: Any) -> bool:
    # Only NaN differs from itself.
    return kind not in _KINDS or (type(value) in _KINDS[kind][1] and value == value)


def _is_required(defaults: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(defaults, parent, throw_on_missing=False) if parent else defaults
    return isinstance(node, DictConfig) and OmegaConf.is_missing(node, name)


def _settle_path(cfg: DictConfig, key: str, value: Any, text: str) -> None:
    """Make what the user wrote of a number again: a path, or a list of such."""
    if "" in (value if OmegaConf.is_list(value) else [value]):
        raise UserError(f"{key}={text} is empty: give a path, or leave it out")
    if OmegaConf.is_list(value) and key in _LISTS_OF_PATHS:
        OmegaConf.update(cfg, key, [str(each) for each in value])
    elif OmegaConf.is_config(value):
        raise UserError(f"{key}={value}: give one path")
    elif not isinstance(value, str):
        OmegaConf.update(cfg, key, text)
