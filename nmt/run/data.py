"""Reading the text that a configuration's `data` node describes."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.errors import UserError
from nmt.run.building import build
from nmt.settings import SPLITS


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


def read_splits(
    config: DictConfig, splits: Sequence[str] = SPLITS, *, trusted: Sequence[str] = ()
) -> dict[str, Any]:
    """Those of `splits` that a configuration's `data` node describes."""
    for key in map(str, config):
        if OmegaConf.is_missing(config, key):
            raise UserError(f"data.{key} is required: give data.{key}=VALUE")
    if config.get("reader") is None:
        raise UserError(
            "these data say nothing of where the text is: choose data=files, data=grammar or another"
        )
    return build(config.reader, trusted=trusted, splits=list(splits))


def read_whole(
    config: DictConfig, splits: Sequence[str] = SPLITS, *, trusted: Sequence[str] = ()
) -> dict[str, Any]:
    """As `read_splits`, and a training text whole, though a training may have streamed it."""
    whole = deepcopy(config)
    if OmegaConf.select(whole, "reader.streaming") is not None:
        whole.reader.streaming = None
    return read_splits(whole, splits, trusted=trusted)


def references_of(dataset: Any) -> list[list[str]]:
    """The references of a split: its targets, then each further set of references."""
    sets = [list(dataset["tgt"])]
    if "references" in dataset.column_names:
        sets += map(list, zip(*dataset["references"], strict=True))
    return sets
