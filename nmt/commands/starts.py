"""Measurement of the start-up of `train.py` in a new process: of a configuration, and by the size of a corpus."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import hydra
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import benchmark as measure
from nmt.atomic import json_text
from nmt.commands.composing import CONFIGS
from nmt.config.types import key_of
from nmt.data.datamodule import make_datamodule
from nmt.errors import UserError, command
from nmt.run.data import read_splits
from nmt.run.device import pick_device
from nmt.run.paths import write_atomically
from nmt.run.provenance import provenance
from nmt.training.vocabulary import make_tokenizer

TRAIN = (sys.executable, "-m", "nmt.commands", "train")
EXIT_AFTER_FIRST_STEP = (
    "trainer.enable_progress_bar=false",
    "+callbacks.leave._target_=nmt.benchmark.Leave",
)
CORPUS_KEYS = ("data.max_length", "data.max_ratio", "data.max_tokens")  # and data.tokenizer.*


def startup_seconds(cfg: DictConfig, overrides: Sequence[str]) -> float:
    """Seconds from the start of a process of scripts/train.py to the end of its first step."""
    arguments = for_train(cfg, overrides)
    with tempfile.TemporaryDirectory() as directory:
        arguments.append(f"log_dir={directory}/logs")
        if cached_anew(cfg.data):
            arguments.append(f"data.cache_dir={directory}/cache")
        return measure.watch([*TRAIN, *arguments], "scripts/train.py").seconds


def for_train(cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Arguments for scripts/train.py: the overrides that it knows, and settings that end it after its first step."""
    known = hydra.compose("train")
    arguments = [
        each
        for each in overrides
        if key_of(each).partition(".")[0] in known or (CONFIGS / key_of(each).partition("@")[0]).is_dir()
    ]
    trusted = ",".join([*cfg.trusted, "nmt.benchmark"])
    arguments += [*EXIT_AFTER_FIRST_STEP, f"trusted=[{trusted}]", f"trainer.precision={cfg.precision}"]
    if cfg.device != "auto":
        arguments.append(f"trainer.accelerator={cfg.device}")
    return arguments


def cached_anew(cfg: DictConfig) -> bool:
    """True if a new cache needs no download from the Hub."""
    return "path" not in cfg or cfg.path is not None


def corpora(cfg: DictConfig, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """Print and return the costs of corpora of the sizes `cfg.corpora`: preparation, memory, start-up, batches.

    Raises UserError for an override that has no effect.
    """
    settings = [each for each in overrides if key_of(each).partition(".")[0] != "data"]
    used = {"corpora", "output", "device", "precision", *map(key_of, for_train(cfg, settings))}
    for key in map(key_of, overrides):
        if key not in used and not key.startswith((*CORPUS_KEYS, "data.tokenizer.")):
            raise UserError(f"{key}= has no effect with corpora=: leave it out")
    sizes: Any = tqdm(cfg.corpora, unit="corpus", disable=None, leave=False)
    results = [corpus_cost(cfg, settings, number) for number in sizes]
    print(measure.corpora_table(results))
    if cfg.output is not None:
        result = {
            **provenance(command("benchmark", overrides), pick_device(cfg.device)),
            "corpora": results,
        }
        write_atomically(Path(cfg.output), json_text(result))
    return results


def corpus_cost(cfg: DictConfig, settings: Sequence[str], num_pairs: int) -> dict[str, Any]:
    """Costs of a corpus of `num_pairs` lines: three starts (first, cached, streamed), and an epoch's batches."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        text_bytes = measure.write_corpus(Path(directory) / "text", num_pairs)
        data = [
            *("data=files", f"data.path={directory}/text", "data.src_lang=en", "data.tgt_lang=vi"),
            f"data.cache_dir={directory}/cache",
            *(f"{key}={OmegaConf.select(cfg, key)}" for key in CORPUS_KEYS),
            *(
                f"data.tokenizer.{key}={value}"
                for key, value in cfg.data.tokenizer.items()
                if value is not None
            ),
        ]
        start = [*TRAIN, *for_train(cfg, settings), *data, f"log_dir={directory}/logs"]
        first, cached, streamed = (
            measure.watch([*start, *more], "scripts/train.py") for more in ([], [], ["data.streaming=1000"])
        )
        composed = hydra.compose("benchmark", overrides=data).data
        splits = read_splits(composed, ("train", "val"))
        tokenizer = make_tokenizer(composed, splits["train"])
        batches = make_datamodule(composed, splits, tokenizer, seed=cfg.seed, guided=False)
        return {
            "num_pairs": num_pairs,
            "text_bytes": text_bytes,
            "first": first._asdict(),
            "cached": cached._asdict(),
            "streamed": streamed._asdict(),
            "prepared_pairs_per_second": num_pairs / max(first.seconds - cached.seconds, 1e-9),
        } | measure.sampler_cost(batches.sampler("train", shuffle=True), batches.train)
