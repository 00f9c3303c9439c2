"""Build objects from configuration, but only classes and functions that are allowed at their place."""

import collections.abc
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, get_origin

import hydra
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nmt.config.commands import OF_DATA
from nmt.config.types import check_value, say
from nmt.errors import UserError

# Allowed targets at each place: the defining module, and a base class or, after =, a pattern of the name
_ENCODER = ("nmt.encoders nmt.encoders.base.Encoder",)
_ATTENTION = ("nmt.attention nmt.attention.base.Attention",)
PLACES: dict[str, tuple[str, ...]] = {
    "model": ("nmt.models nmt.models.base.Translator",),
    "encoder": _ENCODER,
    "words": _ENCODER,
    "sentences": _ENCODER,
    "decoder": ("nmt.decoders nmt.decoders.base.Decoder",),
    "wiring": ("nmt.decoders nmt.decoders.wirings.Wiring",),
    "attention": (*_ATTENTION, "nmt.attention =no_attention"),
    "content": _ATTENTION,
    "normalizer": (r"nmt.attention.masks =masked_\w+",),
    "cell": (r"nmt.layers.cells =\w+Layer",),
    "positions": (r"nmt.layers.positions =\w+Positions",),
    "reader": (r"nmt.data.corpus =read_\w+",),
    "optimizer": ("torch.optim torch.optim.Optimizer", "nmt.training.muon torch.optim.Optimizer"),
    "scheduler": (r"nmt.training.schedules =[a-z]\w+",),
    "averaging": ("nmt.training.callbacks =ExponentialMovingAverage",),
    "decoding": ("nmt.decoding =DecodingSettings",),
    "metrics": ("nmt.metrics sacrebleu.metrics.base.Metric",),
    "callbacks": tuple(
        f"{module} lightning.pytorch.callbacks.Callback"
        for module in ("nmt.training.callbacks", "lightning.pytorch.callbacks")
    ),
    "logger": tuple(
        f"{module} lightning.pytorch.loggers.Logger"
        for module in ("nmt.training.callbacks", "lightning.pytorch.loggers")
    ),
    "trainer": ("lightning =Trainer",),
}
_GROUPS = ("metrics", "callbacks", "logger")  # groups of several parts of this kind
_PARTIAL = ("optimizer", "scheduler")  # called later, with further arguments


def build(config: DictConfig, place: str, *, trusted: Sequence[str] = (), **more: Any) -> Any:
    """Build the target of `config` at a `place` (a key of `PLACES`), with `more` arguments.

    Constructors get plain lists and dicts. Raises UserError if the target is not allowed, if a setting has another type
    than declared, and if the constructor fails.
    """
    check_buildable(config, place, trusted)
    _check_partial(config, place in _PARTIAL)
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
        if isinstance(cause, ValidationError):  # settings that do not fit together
            text = cause.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(text if text.startswith(f"{key}.") else f"{key}: {text}") from error


@contextmanager
def errors_of(key: str) -> Iterator[None]:
    """Name the setting `key` in a TypeError, ValueError or RuntimeError of the block, raised again as a UserError."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{key}: {error}") from error


def check_buildable(config: Any, place: str = "", trusted: Sequence[str] = ()) -> None:
    """Raise UserError if a part of `config`, at `place`, may not be built or does not fit its target.

    Nothing is built. Only the modules of `PLACES` and the `trusted` modules are imported.
    """
    if OmegaConf.is_list(config):
        for part in config:
            check_buildable(part, "", trusted)
    elif OmegaConf.is_dict(config):
        is_built = "_target_" in config
        if is_built:
            _check_target(config, place, trusted)
        for name in config:
            check_buildable(config[name], place if place in _GROUPS and not is_built else str(name), trusted)
        if place == "data" and config.get("reader") is not None:
            check_buildable(reader_node(config, trusted), "reader", trusted)
        if is_built:
            _check_arguments(config, hydra.utils.get_object(str(config._target_)))


def reader_node(data: DictConfig, trusted: Sequence[str] = ()) -> DictConfig:
    """The target `data.reader` of a `data` node, with those settings of the node that its signature takes.

    Raises UserError for a setting that neither the reader nor training takes.
    """
    node: Any = OmegaConf.create({"data": OmegaConf.to_container(data, resolve=True), "reader": {}})
    node.reader._target_ = "${data.reader}"  # a reference: messages name the key of the data
    _check_target(node.reader, "reader", trusted)
    takes = inspect.signature(hydra.utils.get_object(data.reader)).parameters
    for name in map(str, data):
        if name in takes and not OmegaConf.is_missing(data, name):
            node.reader[name] = f"${{data.{name}}}"
        elif name not in (*takes, *OF_DATA, "reader"):
            raise UserError(f"data.{name}: {data.reader} takes no such setting: leave it out")
    return node.reader


def may_build(target: str, place: str, trusted: Sequence[str] = ()) -> bool:
    """True if `target` is a class or function that `PLACES` allows at a place, or that a trusted module defines.

    `nmt.models.base.torch.load` is refused: this package does not define it.
    """
    module, _, name = target.rpartition(".")
    for each in (*PLACES.get(place, ()), *(f"{lab} =.*" for lab in trusted)):
        home, base = each.split()
        if not _is_in(module, home):
            continue
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        if not _is_in(getattr(found, "__module__", None) or "", home):
            continue
        if base.startswith("="):
            fits = inspect.isclass(found) or inspect.isfunction(found)
            if fits and re.fullmatch(base[1:], name):
                return True
        elif inspect.isclass(found) and issubclass(found, hydra.utils.get_class(base)):
            return True
    return False


def _is_in(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def _check_target(config: DictConfig, place: str, trusted: Sequence[str]) -> None:
    target = config._target_
    if not isinstance(target, str) or not may_build(target, place, trusted):
        homes = " and ".join(dict.fromkeys(each.split()[0] for each in PLACES.get(place, ())))
        raise UserError(
            f"{_key(config, '_target_')}={target}: a run may not build this here, "
            + (f"but only what {homes} offers" if homes else "where nothing is built")
            + "; docs/guides/a_new_attention.md has more on classes of your own"
        )
    for name in map(str, config):
        if name.startswith("_") and name not in ("_target_", "_partial_"):
            raise UserError(f"{config._get_full_key(name)}: a run may not set this: leave it out")


def _check_partial(config: DictConfig, wanted: bool) -> None:
    if config.get("_partial_", False) is not wanted:
        key = config._get_full_key("_partial_")
        raise UserError(f"{key} must be {say(wanted)} here, not {say(config.get('_partial_', False))}")


def _check_arguments(config: DictConfig, target: Any) -> None:
    parameters = inspect.signature(target, eval_str=True).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in map(str, config):
        value = config[name]
        if name in parameters:
            kind = parameters[name].annotation
            if kind is inspect.Parameter.empty:
                continue
            if OmegaConf.is_dict(value) and "_target_" in value:
                _check_partial(value, get_origin(kind) is collections.abc.Callable)
            else:
                plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                check_value(kind, plain, _key(config, name))
        elif not name.startswith("_") and not takes_any:
            raise UserError(f"{_key(config, name)}: {target.__name__} has no such setting: leave it out")


def _key(config: DictConfig, name: str) -> str:
    """The dotted key of a setting. For a reference to another setting, as `${data.path}`, it is the key of that
    setting.
    """
    reference = re.fullmatch(r"\$\{([\w.]+)\}", str(OmegaConf.to_container(config, resolve=False)[name]))  # type: ignore[index,call-overload]
    return reference[1] if reference else config._get_full_key(name)


def reads_lowercase(data: Any) -> bool:
    """True if the tokenizer of a `data` node lower-cases text."""
    return OmegaConf.is_config(data) and OmegaConf.select(data, "tokenizer.lowercase") is True


def build_parts(
    config: DictConfig,
    group: str,
    *,
    trusted: Sequence[str] = (),
    more: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build the parts of a group of several, as `metrics` or `callbacks`. A part that is null is left out.

    `more` has further arguments by part. Raises UserError for a part of another kind than the group's.
    """
    parts, kind = {}, hydra.utils.get_class(PLACES[group][0].split()[1])
    for name, part in config.items():
        if part is None:
            continue
        key = _key(config, str(name))
        if not (OmegaConf.is_dict(part) and "_target_" in part):
            raise UserError(
                f"{key}={say(part)}: give {key}._target_=CLASS with its settings, or leave {key} out"
            )
        parts[str(name)] = build(part, group, trusted=trusted, **more.get(str(name), {}))
        if not isinstance(parts[str(name)], kind):
            raise UserError(f"{key}._target_={part._target_} is no {kind.__name__}")
    return parts


def make_scorers(config: DictConfig, *, lowercase: bool) -> dict[str, Any]:
    """The scorers under `metrics` of a configuration. For text in lower case, they ignore case unless set otherwise."""
    metrics = metrics_of(config, {"tokenizer": {"lowercase": lowercase}})
    return build_parts(metrics, "metrics", trusted=config.trusted)


def metrics_of(config: DictConfig, data: Any) -> DictConfig:
    """The settings under `metrics` of a configuration, with their references to `data` resolved."""
    resolved: Any = OmegaConf.create({"data": data, "metrics": OmegaConf.to_container(config.metrics)})
    OmegaConf.resolve(resolved.metrics)
    return resolved.metrics
