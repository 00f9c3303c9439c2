"""Copies of training pairs with another pair behind them, so that a model learns to read two sentences in a line."""

import logging
import re
from typing import Any

import numpy as np
from datasets import concatenate_datasets
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)


def augment(train: Any, data: DictConfig, seed: int) -> Any:
    """`train`, and the share `data.augment.two_sentences` of its pairs once more with another pair behind them.

    They are drawn once by the seed. Without a share, `train` may be a stream.
    """
    share = OmegaConf.select(data, "augment.two_sentences", default=0.0)
    if not share:
        return train
    draw, number = np.random.default_rng(seed), max(1, round(share * len(train)))
    pairs, others = (train.select(draw.permutation(len(train))[:number]) for _ in range(2))
    others = others.rename_columns({name: f"{name} 2" for name in train.column_names})
    both = concatenate_datasets([pairs.flatten_indices(), others.flatten_indices()], axis=1)
    joined = both.map(join_pairs, remove_columns=others.column_names, desc="two sentences")
    log.info("data.augment: %s copies beside %s pairs", f"{number:,}", f"{len(train):,}")
    return concatenate_datasets([train, joined])


def join_pairs(row: dict[str, Any]) -> dict[str, str]:
    """A pair with the pair of the columns `src 2`, … behind it; its links count on from the words of the first."""
    joined = {name: f"{row[name]} {row[f'{name} 2']}" for name in ("src", "tgt")}
    if "alignment" in row:
        starts = len(row["src"].split()), len(row["tgt"].split())
        shifted = re.sub(
            r"(\d+)([-p])(\d+)",
            lambda link: f"{int(link[1]) + starts[0]}{link[2]}{int(link[3]) + starts[1]}",
            row["alignment 2"],
        )
        joined["alignment"] = f"{row['alignment']} {shifted}".strip()
    return joined
