"""Read the text that a configuration's `data` node describes."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.config.build import build, reader_node
from nmt.config.types import SPLITS
from nmt.errors import UserError

CACHE = "data/cache"


def stored_data(config: DictConfig) -> DictConfig:
    """The `data` node of a stored configuration, with the default cache: a run does not choose the cache."""
    data: Any = OmegaConf.create(OmegaConf.to_container(config))
    if not OmegaConf.is_dict(data) or not isinstance(data.get("reader"), str):
        raise UserError("the run does not say where its text is: choose data=files, data=grammar or another")
    data.cache_dir = CACHE
    return data


def read_splits(
    config: DictConfig, splits: Sequence[str] = SPLITS, *, trusted: Sequence[str] = (), stored: bool = False
) -> dict[str, Any]:
    """Read `splits` of the text that a configuration's `data` node describes.

    If the node is `stored`, text of the Hub is read only from the cache: a run does not choose downloads.
    """
    for key in map(str, config):
        if OmegaConf.is_missing(config, key):
            raise UserError(f"data.{key} is required: give data.{key}=VALUE")
    if config.get("reader") is None:
        raise UserError(
            "these data say nothing of where the text is: choose data=files, data=grammar or another"
        )
    more = {"only_cached": stored} if config.reader.endswith(".read_hub") else {}
    return build(reader_node(config, trusted), "reader", trusted=trusted, splits=list(splits), **more)


def read_whole(
    config: DictConfig, splits: Sequence[str] = SPLITS, *, trusted: Sequence[str] = (), stored: bool = False
) -> dict[str, Any]:
    """As `read_splits`, but a training text is read whole even if training streamed it."""
    whole = deepcopy(config)
    if whole.get("streaming") is not None:
        whole.streaming = None
    return read_splits(whole, splits, trusted=trusted, stored=stored)


def references_of(dataset: Any) -> list[list[str]]:
    """The references of a split: its targets, then further sets of references."""
    sets = [list(dataset["tgt"])]
    if "references" in dataset.column_names:
        sets += map(list, zip(*dataset["references"], strict=True))
    return sets
