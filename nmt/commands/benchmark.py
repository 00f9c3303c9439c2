"""Measure the speed and memory of training and decoding."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import benchmark as measure
from nmt.atomic import json_text
from nmt.benchmark import Decoding, Subject, build_step
from nmt.commands.composing import CONFIGS, compose
from nmt.config.commands import check_settings
from nmt.config.types import key_of, say
from nmt.data.augmentation import augment
from nmt.data.datamodule import TranslationDataModule, make_datamodule
from nmt.errors import UserError, command
from nmt.run.data import read_splits
from nmt.run.device import pick_device
from nmt.run.model import quantise_linear_maps
from nmt.run.paths import write_atomically
from nmt.run.provenance import provenance
from nmt.training.vocabulary import make_tokenizer

TRAIN = (sys.executable, "-m", "nmt.commands", "train")
EXIT_AFTER_FIRST_STEP = (
    "~experiment",  # the measured settings, without the recipe of train.py for data=files
    "trainer.enable_progress_bar=false",
    "+callbacks.leave._target_=nmt.benchmark.Leave",
)
# The configuration of every variant, with all overrides it is composed from
Variants = dict[str, tuple[DictConfig, list[str]]]


def benchmark(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Print and return the measurements; with `output`, write them there as JSON.

    overrides: the overrides of `cfg`; a variant is composed from them and the variant's overrides.
    """
    check_subjects(cfg)
    device = pick_device(cfg.device)
    origin = provenance(command("benchmark", overrides), device)  # the machine's load before the work
    variants = compose_variants(cfg, overrides)
    data = make_data(cfg)
    num_turns = cfg.repeats + 1
    batches = measure.first_batches(data.train_dataloader(), num_turns * cfg.num_batches, device)
    turns = measure.batches_per_turn(batches, num_turns, cfg.num_batches)
    counted = itertools.chain.from_iterable(turns[1:])
    facts = {
        "num_batches": len(turns[0]),
        "num_target_tokens": measure.num_target_tokens(counted, data.tokenizer.pad_id),
        "padding": data.sampler("train", shuffle=True).padding_shares(),
    }
    num_parts = len(variants) * (len(turns) + 2)
    with tqdm(total=num_parts, unit="part", disable=None, leave=False) as bar:
        results = take_turns(variants, turns, data, device, bar)
    result = {
        **origin,
        "settings": OmegaConf.to_container(cfg, resolve=True),
        "data": facts,
        "variants": results,
    }
    print(measure.measurement_tables(result))
    if cfg.output is not None:
        write_atomically(Path(cfg.output), json_text(result))
    return result


def take_turns(
    variants: Variants, turns: list[list[Any]], data: TranslationDataModule, device: torch.device, bar: Any
) -> dict[str, Any]:
    """Measure every variant on the batches of every turn, then its start-up. Returns the results by variant."""
    decodings = {name: decoding_of(cfg, device) for name, (cfg, _) in variants.items()}
    subjects = {}
    for name, (cfg, _) in variants.items():
        bar.set_description(f"{name}: memory")
        step = partial(build_step, cfg, data.tokenizer, device)
        subjects[name] = Subject(step, turns, decoding=decodings[name])
        bar.update()
    order = deque(subjects.items())
    for turn in range(len(turns)):
        for name, subject in order:
            bar.set_description(f"{name}: turn {turn} of {len(turns) - 1}")
            subject.take_turn(turn, data.train_dataloader())
            bar.update()
        order.rotate(-1)  # the first variant prepares the libraries for new shapes
    for name, (cfg, overrides) in variants.items():
        if cfg.startup:
            bar.set_description(f"{name}: start-up")
            subjects[name].figures["startup_seconds"] = [startup_seconds(cfg, overrides)]
        bar.update()
    return {name: subjects[name].result() | {"overrides": own} for name, (_, own) in variants.items()}


def decoding_of(cfg: DictConfig, device: torch.device) -> Decoding:
    """The decoding settings of a configuration. Raises UserError for `int8` on a device other than the CPU."""
    if cfg.int8 and device.type != "cpu":
        raise UserError(f"int8=true is for the CPU, and the device is {device.type}: give device=cpu")
    prepare = quantise_linear_maps if cfg.int8 else None
    return Decoding(cfg.num_decode_batches, cfg.beam_size, cfg.decode_length, prepare)


def check_subjects(cfg: DictConfig) -> None:
    """Raise UserError for settings that exclude each other."""
    if cfg.attentions is not None and cfg.variants is not None:
        raise UserError("give attentions or variants, not both")
    if cfg.data.get("streaming") is not None:
        raise UserError("data.streaming: what is measured takes turns on batches of text that is read whole")


def compose_variants(cfg: DictConfig, overrides: Sequence[str]) -> Variants:
    """The variants to compare, by name. Raises UserError if their data differ, or there are none."""
    if cfg.attentions is not None:
        if len(set(cfg.attentions)) < len(cfg.attentions):
            raise UserError(f"attentions={say(cfg.attentions)} names one twice: name each once")
        variants = {str(name): [f"attention={name}"] for name in cfg.attentions}
    elif cfg.variants is not None:
        variants = {str(name): list(map(str, own)) for name, own in cfg.variants.items()}
    else:
        return {cfg.name: (cfg, list(overrides))}
    if not variants:
        raise UserError("there is nothing to compare: name an attention or a variant")
    composed = {}
    for name, own in variants.items():
        replaced = {key_of(each) for each in own} | {"attentions", "variants", "name"}
        all_of_them = [each for each in overrides if key_of(each) not in replaced] + own
        each = hydra.compose("benchmark", overrides=all_of_them)
        check_settings(each, "benchmark")
        each.name = name
        check_subjects(each)
        if each.data != cfg.data:
            raise UserError(f"variant {name} changes data: all that are compared share their batches")
        composed[name] = (each, all_of_them)
    return composed


def make_data(cfg: DictConfig) -> TranslationDataModule:
    """The batches of the configured text, with its vocabulary."""
    splits = read_splits(cfg.data, ("train", "val"), trusted=cfg.trusted)
    splits["train"] = augment(splits["train"], cfg.data, cfg.seed)
    tokenizer = make_tokenizer(cfg.data, splits["train"])
    return make_datamodule(cfg.data, splits, tokenizer, seed=cfg.seed, guided=False)


def print_ratios(files: Sequence[str]) -> None:
    """Print the ratios of two files written by `output=`. Raises UserError for other files."""
    results = []
    for file in files:
        try:
            results.append(json.loads(Path(file).read_text("utf-8")))
        except ValueError as error:
            raise UserError(f"{file} is not JSON: {error}") from error
    try:
        print(measure.ratio_table(*results))
    except ValueError as error:
        raise UserError(str(error)) from error
    except (AttributeError, LookupError, TypeError) as error:
        both = " or ".join(map(str, files))
        raise UserError(
            f"{both} was not written by benchmark.py ({type(error).__name__}: {error})"
        ) from error


def startup_seconds(cfg: DictConfig, overrides: Sequence[str]) -> float:
    """Seconds from the start of a process of scripts/train.py to the end of its first step."""
    arguments = for_train(cfg, overrides)
    with tempfile.TemporaryDirectory() as directory:
        arguments.append(f"log_dir={directory}/logs")
        if "path" not in cfg.data or cfg.data.path is not None:  # else the Hub's copy would be fetched again
            arguments = [each for each in arguments if key_of(each) != "data.cache_dir"]
            arguments.append(f"data.cache_dir={directory}/cache")
        started = time.perf_counter()
        ended = subprocess.run(
            [*TRAIN, *arguments], capture_output=True, encoding="utf-8", env=safe_environment()
        )
        seconds = time.perf_counter() - started
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        raise UserError(f"scripts/train.py failed: {lines[-1] if lines else ended.returncode}")
    return seconds


def safe_environment() -> dict[str, str]:
    """The environment of this process, for Python processes that import nothing from the working directory."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def for_train(cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Arguments for scripts/train.py: the overrides that it knows, and settings that end it after its first step."""
    known = compose("train", [])
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


def main(cfg: DictConfig) -> None:
    if cfg.compare is not None:
        print_ratios(cfg.compare)
    else:
        benchmark(cfg, list(HydraConfig.get().overrides.task))
