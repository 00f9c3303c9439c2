"""What a configuration names, built if it is allowed: a run directory from a stranger is data."""

import hashlib
import importlib
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import hydra
from datasets import Dataset
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from nmt import kernels
from nmt.attention import Attention
from nmt.data import pairs
from nmt.data.cache import cached_tokenizer
from nmt.data.corpus import SPLITS
from nmt.data.streaming import TextStream
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models.base import Translator

ALLOWED_TARGETS = (
    "nmt.models.",
    "nmt.attention.",
    "nmt.decoders.",
    "nmt.layers.",
    "nmt.data.corpus.read_",
    "nmt.metrics.",
)


def build(config: DictConfig, **keywords: Any) -> Any:
    """Build what `config` names. Its lists and dicts are plain ones, which a checkpoint can hold."""
    return hydra.utils.instantiate(config, _convert_="all", **keywords)


def instantiate(config: DictConfig, **keywords: Any) -> Any:
    """`build` what `config` names, if it is allowed; a fault in the settings is a UserError of one line."""
    _check_targets(config)
    try:
        return build(config, **keywords)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):
            raise UserError(str(cause)) from error
        if isinstance(cause, TypeError):
            raise UserError(_explain_type_error(config, cause)) from error
        raise


def _explain_type_error(config: DictConfig, error: TypeError) -> str:
    target = str(config.get("_target_", "")).rsplit(".", 1)[-1]
    unexpected = str(error).rpartition("unexpected keyword argument ")[2]
    if unexpected.strip("'") in ("attention", "wiring"):
        return f"{target} has its own attention and takes no attention=NAME: leave attention= out"
    return f"{target}: {error}"


def _check_targets(config: Any) -> None:
    if OmegaConf.is_dict(config):
        target = config.get("_target_")
        if target is not None and not _may_build(str(target)):
            raise UserError(f"a run may not build {target}: only {', '.join(ALLOWED_TARGETS)}* are allowed")
        for key in config:
            _check_targets(config[key])
    elif OmegaConf.is_list(config):
        for part in config:
            _check_targets(part)


def _may_build(target: str) -> bool:
    """Whether `target` is defined where a run may build from: `nmt.models.gru.torch.load` is not, though reached so."""
    if not target.startswith(ALLOWED_TARGETS):
        return False
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return str(getattr(found, "__module__", "")).startswith("nmt.")


def build_translator(config: DictConfig, tokenizer: Tokenizer) -> Translator:
    """The model of a configuration's `model` node, with what follows from the vocabulary passed in."""
    return instantiate(
        config,
        src_vocab_size=tokenizer.src_vocab_size,
        tgt_vocab_size=tokenizer.tgt_vocab_size,
        joint_vocabulary=tokenizer.joint,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )


def quantise(translator: Translator) -> None:
    """Let the linear maps of a translator multiply in bytes (`nmt.kernels.int8`), for good; the attention
    mechanisms of `nmt.attention` stay as they are. Raises UserError where it is not on a CPU."""
    kernels.quantise(translator, leave=Attention)


def make_tokenizer(config: DictConfig, train: Dataset | TextStream) -> Tokenizer:
    """What a `data` node says: the given SentencePiece model or models, else one trained on the training text.

    At most `tokenizer.max_pairs` of its pairs are looked at: evenly drawn, or the first of each file of a stream.
    The same pairs and settings are trained on once, but for a stream's.
    """
    settings, lowercase = config.tokenizer, reads_lowercase(config)
    if settings.model is not None:
        files = [settings.model] if isinstance(settings.model, str) else list(settings.model)
        if len(files) > 2:
            raise UserError(
                f"data.tokenizer.model has {len(files)} files: give one, or [SOURCE_FILE, TARGET_FILE]"
            )
        if settings.joint != (len(files) == 1):
            said, sides = str(settings.joint).lower(), "both sides" if len(files) == 1 else "one side each"
            raise UserError(
                f"data.tokenizer.joint={said}: the models given are of {sides}: give "
                f"data.tokenizer.joint={str(not settings.joint).lower()}"
            )
        return Tokenizer.from_models(*files, lowercase=lowercase)
    if settings.max_pairs < 1:
        raise UserError(f"data.tokenizer.max_pairs={settings.max_pairs}: give at least 1")
    keywords: Any = {
        name: settings[name] for name in ("model_type", "joint", "vocab_size", "character_coverage")
    }
    if lowercase:  # else the key of a cache is as it was
        keywords["lowercase"] = True
    if isinstance(train, TextStream):
        src = (row[0] for row in train.first_pairs(settings.max_pairs))
        tgt = (row[1] for row in train.first_pairs(settings.max_pairs))
        return Tokenizer.train(src, tgt, **keywords)
    some = pairs.sample(train, settings.max_pairs)
    return cached_tokenizer(
        lambda: Tokenizer.train(pairs.texts(some, "src"), pairs.texts(some, "tgt"), **keywords),
        key=hashlib.sha256(repr((some._fingerprint, sorted(keywords.items()))).encode()).hexdigest(),
        cache_dir=config.cache_dir,
        lowercase=lowercase,
    )


def reads_lowercase(data: Any) -> bool:
    """Whether a `data` node's tokenizer lower-cases text; those of earlier versions do not say."""
    return OmegaConf.is_config(data) and OmegaConf.select(data, "tokenizer.lowercase") is True


def make_scorers(config: DictConfig, *, lowercase: bool) -> dict[str, Any]:
    """The scorers under `metrics` of a command's configuration, caseless of translations in lower case.

    A setting that the command was given stands.
    """
    told: Any = deepcopy(config)
    # What the scorers' own default reads
    OmegaConf.update(told, "data.tokenizer.lowercase", lowercase, force_add=True)
    return instantiate(told.metrics)


def stored_data(config: DictConfig) -> DictConfig:
    """The `data` node of a stored configuration. Its cache is where it says if there is such a folder here, else in
    data/cache, so that a run from elsewhere makes no folder of its choice."""
    data: Any = OmegaConf.create(OmegaConf.to_container(config))
    reader = data.get("reader")
    if (
        OmegaConf.is_dict(reader)
        and "cache_dir" in reader
        and not Path(str(reader.cache_dir)).expanduser().is_dir()
    ):
        reader.cache_dir = "data/cache"
    return data


def read_splits(config: DictConfig, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    """Those of `splits` that a configuration's `data` node describes."""
    for key in map(str, config):
        if OmegaConf.is_missing(config, key):
            raise UserError(f"data.{key} is required: give data.{key}=VALUE")
    if config.get("reader") is None:
        raise UserError(
            "these data say nothing of where the text is: choose data=files, data=grammar or another"
        )
    return instantiate(config.reader, splits=list(splits))


def read_whole(config: DictConfig, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    """As `read_splits`, and a training text whole, though a training may have streamed it."""
    whole = deepcopy(config)
    if OmegaConf.select(whole, "reader.streaming") is not None:
        whole.reader.streaming = None
    return read_splits(whole, splits)
