"""Objects built from configuration: a run directory from a stranger may build only what `may_build` allows."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import hydra
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nmt import kernels
from nmt.attention import Attention
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.settings import check_value, say

# Rooms of this package whose classes and functions may be built, wherever in them they are defined
ROOMS = ("nmt.attention", "nmt.decoders", "nmt.encoders", "nmt.layers", "nmt.metrics", "nmt.models")
# Modules whose own names may be built
MODULES = (
    *(
        "nmt.data.corpus",
        "nmt.decoding",
        "nmt.training.callbacks",
        "nmt.training.muon",
        "nmt.training.schedules",
    ),
    *("torch.optim", "lightning.pytorch.callbacks", "lightning.pytorch.loggers"),
)


def build(config: DictConfig, *, trusted: Sequence[str] = (), **more: Any) -> Any:
    """Build what `config` names, with `more` arguments; constructors get plain lists and dicts.

    Raises UserError where it may not be built, where a setting is not what is declared, and where the constructor
    fails.
    """
    check(config, trusted)
    for name in more:
        if name in config:
            raise UserError(
                f"{_key(config, name)}={say(config[name])} has no effect in this program: leave it out"
            )
    try:
        return hydra.utils.instantiate(config, _convert_="all", **more)
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        key = str(error).rpartition("full_key: ")[2]
        cause = error.__cause__ or error
        text = str(cause)
        if isinstance(cause, ValidationError):  # settings that do not go together
            text = cause.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(text if text.startswith(f"{key}.") else f"{key}: {text}") from error


@contextmanager
def errors_of(key: str) -> Iterator[None]:
    """Name the setting that an error is about: for what is built in part first, and as a whole later."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}") from error


def check(config: Any, trusted: Sequence[str] = ()) -> None:
    """Raise UserError where `config`, or a part of it, may not be built or does not fit what its target declares."""
    if OmegaConf.is_list(config):
        for part in config:
            check(part, trusted)
    elif OmegaConf.is_dict(config):
        target = config.get("_target_")
        if target is not None and not may_build(str(target), trusted):
            module = str(target).rpartition(".")[0]
            raise UserError(
                f"{_key(config, '_target_')}={target}: a run may not build this; "
                f"if you trust the module {module}, add trusted=[{module}]"
            )
        for name in config:
            check(config[name], trusted)
        if target is not None:
            _check_arguments(config, hydra.utils.get_object(str(target)))


def may_build(target: str, trusted: Sequence[str] = ()) -> bool:
    """Whether `target` is a class or function that is defined where a run may build from.

    `nmt.models.gru.torch.load` is reached through this package but not defined there.
    """
    module, _, name = target.rpartition(".")
    if target == "lightning.Trainer":
        return True
    if _is_in(module, (*ROOMS, *trusted)):
        places: Sequence[str] = (*ROOMS, *trusted)
    elif module in MODULES:
        places = (module,)
    else:
        return False
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return (inspect.isclass(found) or inspect.isfunction(found)) and _is_in(found.__module__, places)


def _is_in(module: str, places: Sequence[str]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in places)


def _check_arguments(config: DictConfig, target: Any) -> None:
    parameters = inspect.signature(target, eval_str=True).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in map(str, config):
        value = config[name]
        if name in parameters:
            kind = parameters[name].annotation
            if kind is not inspect.Parameter.empty and not (OmegaConf.is_dict(value) and "_target_" in value):
                plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                check_value(kind, plain, _key(config, name))
        elif not name.startswith("_") and not takes_any:
            raise UserError(f"{_key(config, name)}: {target.__name__} has no such setting: leave it out")


def _key(config: DictConfig, name: str) -> str:
    """The dotted key of a setting; of a reference to another setting, as `${data.path}`, that one's."""
    reference = re.fullmatch(r"\$\{([\w.]+)\}", str(OmegaConf.to_container(config, resolve=False)[name]))  # type: ignore[index,call-overload]
    return reference[1] if reference else config._get_full_key(name)


def build_translator(config: DictConfig, tokenizer: Tokenizer, *, trusted: Sequence[str] = ()) -> Translator:
    """The model of a configuration's `model` node, with what follows from the vocabulary passed in."""
    translator = build(
        config,
        trusted=trusted,
        src_vocab_size=tokenizer.src_vocab_size,
        tgt_vocab_size=tokenizer.tgt_vocab_size,
        joint_vocabulary=tokenizer.joint,
        separator_id=tokenizer.separator_id,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    if not isinstance(translator, Translator):
        raise UserError(f"model._target_={config._target_} is no translator")
    return translator


def quantise(translator: Translator) -> None:
    """Let the linear maps of a translator multiply in bytes (`nmt.kernels.int8`), for good; the attention
    mechanisms of `nmt.attention` stay as they are. Raises UserError where it is not on a CPU."""
    kernels.quantise(translator, leave=Attention)


def reads_lowercase(data: Any) -> bool:
    """Whether a `data` node's tokenizer lower-cases text."""
    return OmegaConf.is_config(data) and OmegaConf.select(data, "tokenizer.lowercase") is True


def build_parts(
    config: DictConfig,
    kind: type = object,
    *,
    trusted: Sequence[str] = (),
    more: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build each part of a group that has several, as `metrics` and `callbacks`; one that is null is left out.

    `more` has further arguments by part. Raises UserError for a part that is no `kind`.
    """
    parts = {}
    for name, part in config.items():
        if part is None:
            continue
        key = _key(config, str(name))
        if not (OmegaConf.is_dict(part) and "_target_" in part):
            raise UserError(
                f"{key}={say(part)}: give {key}._target_=CLASS with its settings, or leave {key} out"
            )
        parts[str(name)] = build(part, trusted=trusted, **more.get(str(name), {}))
        if not isinstance(parts[str(name)], kind):
            raise UserError(f"{key}._target_={part._target_} is no {kind.__name__}")
    return parts


def make_scorers(config: DictConfig, *, lowercase: bool) -> dict[str, Any]:
    """The scorers under `metrics` of a configuration; caseless for text in lower case unless it says otherwise."""
    metrics = metrics_of(config, {"tokenizer": {"lowercase": lowercase}})
    return build_parts(metrics, trusted=config.trusted)


def metrics_of(config: DictConfig, data: Any) -> DictConfig:
    """The settings under `metrics` of a configuration; what they take from `data` is read from there."""
    resolved: Any = OmegaConf.create({"data": data, "metrics": OmegaConf.to_container(config.metrics)})
    OmegaConf.resolve(resolved.metrics)
    return resolved.metrics
