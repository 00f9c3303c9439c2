"""Training from another run's weights: frozen parts, and that run's text among the new."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import concatenate_datasets
from omegaconf import DictConfig

from nmt.errors import UserError
from nmt.layers.embedding import Embedding
from nmt.models.base import Translator
from nmt.run.data import read_whole, stored_data
from nmt.run.paths import load_config

log = logging.getLogger("train")


def freeze(translator: Translator, names: Sequence[str]) -> str:
    """Exclude modules from training: `encoder`, `decoder.embedding`, all `embeddings`. Shared weights are frozen too.

    Returns their names and counts. Raises UserError for a name of no module, and if nothing is left to train.
    """
    modules = dict(translator.named_modules(remove_duplicate=False))
    parts = {name: [name] for name, each in modules.items() if name and any(True for _ in each.parameters())}
    parts["embeddings"] = [name for name, each in modules.items() if isinstance(each, Embedding)]
    if unknown := [name for name in names if name not in parts]:
        known = ", ".join(sorted(name for name in parts if name.count(".") < 2))
        raise UserError(f"freeze=[{unknown[0]}]: the model has no such part; it has {known} and their parts")
    chosen = tuple(f"{part}." for name in names for part in parts[name])
    for part in chosen:
        modules[part[:-1]].requires_grad_(False)
    total = translator.num_parameters
    left = sum(each.numel() for each in translator.parameters() if each.requires_grad)
    if not left:
        raise UserError(f"freeze=[{','.join(names)}] leaves nothing to train: leave out a part")
    weights = translator.named_parameters(remove_duplicate=False)
    shared = [name for name, each in weights if not (each.requires_grad or name.startswith(chosen))]
    also = f"; {', '.join(shared)} too, which they share" if shared else ""
    return f"{', '.join(names)}, {total - left:,} of {total:,} parameters{also}"


def mix_in_old_text(cfg: DictConfig, train: Any) -> Any:
    """The new training pairs, and pairs of the text of the run `cfg.start_from`, so that these are `cfg.old_share`.

    They are drawn once, by the seed: without repetition, unless that text has too few.
    """
    try:
        data = stored_data(load_config(Path(cfg.start_from)).data)
    except UserError as error:
        raise UserError(
            f"{error}; old_share reads its text: give start_from=RUN_DIR, where it is now"
        ) from error
    data.cache_dir = cfg.data.cache_dir
    old = read_whole(data, ["train"], trusted=cfg.trusted, stored=True)["train"]
    number = max(1, round(len(train) * cfg.old_share / (1 - cfg.old_share)))
    rows = np.resize(np.random.default_rng(cfg.seed).permutation(len(old)), number)
    log.info(
        "old_share=%g: %s pairs of the text of %s (%s to %s) beside %s new ones",
        *(cfg.old_share, f"{number:,}", cfg.start_from, data.src_lang, data.tgt_lang, f"{len(train):,}"),
    )
    columns = [each for each in train.column_names if each in old.column_names]
    return concatenate_datasets([train.select_columns(columns), old.select(rows).select_columns(columns)])
