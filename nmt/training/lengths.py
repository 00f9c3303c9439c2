"""The length limit of the search, set from the training text, and a warning of references above it."""

from typing import Any

from omegaconf import DictConfig

from nmt.data import encoding
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import DecodingSettings
from nmt.decoding.settings import LEAST_RATIO
from nmt.models.base import Translator
from nmt.run.limits import count_above_limit, warn_of_limit


def set_length_ratio(cfg: DictConfig, datamodule: TranslationDataModule) -> None:
    """Set `decoding.max_length_ratio` if it is null: the ratio of the training text, from 2 to `data.max_ratio`."""
    if cfg.decoding.max_length_ratio is None:
        ratio = encoding.length_ratio(*datamodule.training_lengths(), extra=cfg.decoding.max_length_extra)
        cfg.decoding.max_length_ratio = max(LEAST_RATIO, min(ratio, cfg.data.max_ratio))


def warn_of_long_references(
    decoding: DecodingSettings,
    translator: Translator,
    datamodule: TranslationDataModule,
    splits: dict[str, Any],
) -> None:
    """Warn of references that have more pieces than a translation may have, with their number in every split.

    Up to 0.1 % of the training pairs do not count: the limit measured on the training text leaves them out.
    """
    lengths = {"train": datamodule.training_lengths(), "val": datamodule.rows("val")[1:]}
    if "test" in splits:
        lengths["test"] = encoding.lengths(encoding.encode(splits["test"], datamodule.tokenizer))
    counts = {split: count_above_limit(decoding, translator, *each) for split, each in lengths.items()}
    if counts["train"] <= len(lengths["train"][0]) // 1000:
        counts["train"] = 0
    found = [
        f"{number:,} of {len(lengths[split][0]):,} in {split}" for split, number in counts.items() if number
    ]
    warn_of_limit(decoding, found)
