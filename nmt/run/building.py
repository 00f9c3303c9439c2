"""What a configuration names, built if it is allowed: a run directory from a stranger is data."""

import importlib
from copy import deepcopy
from typing import Any

import hydra
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from nmt import kernels
from nmt.attention import Attention
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models.base import Translator

ALLOWED_TARGETS = (
    "nmt.attention.",
    "nmt.data.corpus.read_",
    "nmt.decoders.",
    "nmt.encoders.",
    "nmt.layers.",
    "nmt.metrics.",
    "nmt.models.",
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
