"""Measure how fast models train and decode, what memory they take, and where the time goes."""

import itertools
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import benchmark as measure
from nmt.benchmark import Decoding, Subject, TrainingStep
from nmt.commands.composing import CONFIGS
from nmt.commands.settings import settle
from nmt.data.datamodule import TranslationDataModule, make_datamodule
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.building import build, build_translator, quantise
from nmt.run.data import read_splits
from nmt.run.files import write_atomically
from nmt.run.provenance import provenance
from nmt.settings import key_of
from nmt.training.module import TranslationModule
from nmt.training.schedules import constant
from nmt.training.vocabulary import make_tokenizer

TRAIN = (sys.executable, "-m", "nmt.commands", "train")
EXIT_AFTER_FIRST_STEP = (
    "trainer.enable_progress_bar=false",
    "+callbacks.leave._target_=nmt.benchmark.Leave",
)
CORPUS_KEYS = ("data.max_length", "data.max_ratio", "data.max_tokens")  # and data.tokenizer.*


def command(overrides: Sequence[str]) -> str:
    return " ".join(["python scripts/benchmark.py", *overrides])


def benchmark(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Print and return what was measured; with `output`, write it there as JSON.

    `overrides` are those that `cfg` was composed with: each variant is composed from them and its own.
    """
    check(cfg)
    device = pick_device(cfg.device)
    origin = provenance(command(overrides), device)  # with the machine's load before this adds to it
    composed = compose_variants(cfg, overrides)
    decodings = {name: decoding_of(each, device) for name, (each, _) in composed.items()}
    bar: Any = tqdm(total=3 + len(composed) * (cfg.repeats + 3), unit="part", disable=None, leave=False)
    with bar, tempfile.TemporaryDirectory() as directory:
        data, preparation = prepare(cfg, Path(directory) / "cache", bar)
        num_turns = cfg.repeats + 1
        batches = measure.first(data.train_dataloader(), num_turns * cfg.num_batches, device)
        if not batches:
            raise UserError("the data give no batch")
        turns = measure.in_turns(batches, num_turns, cfg.num_batches)
        subjects = {}
        for name, (each, _) in composed.items():
            bar.set_description(f"{name}: memory")
            build = partial(build_step, each, data.tokenizer, device)
            subjects[name] = Subject(build, turns, decoding=decodings[name])
            bar.update()
        order = deque(subjects.items())
        for turn in range(num_turns):
            for name, subject in order:
                bar.set_description(f"{name}: turn {turn} of {cfg.repeats}")
                subject.take_turn(turn, data.train_dataloader())
                bar.update()
            order.rotate(-1)  # who comes later finds shapes of products made ready: each is first in its turn
        for name, (each, own) in composed.items():
            bar.set_description(f"{name}: where time goes, start-up")
            subjects[name].find_operators(cfg.num_operators)
            if cfg.startup:
                seconds = startup_seconds(each, own)
                subjects[name].figures["startup_seconds"] = [seconds]
            bar.update()
    result = {
        **origin,
        "settings": OmegaConf.to_container(cfg, resolve=True),
        "data": preparation
        | {
            "num_batches": len(turns[0]),
            "num_target_tokens": measure.num_target_tokens(
                itertools.chain.from_iterable(turns[1:]), data.tokenizer.pad_id
            ),
            "padding": measure.padding_shares(data.sampler("train", shuffle=True)),
        },
        "variants": {
            name: subjects[name].result() | {"overrides": own} for name, (_, own) in composed.items()
        },
    }
    print(measure.report(result))
    if cfg.output is not None:
        write_atomically(Path(cfg.output), json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def decoding_of(cfg: DictConfig, device: torch.device) -> Decoding:
    """How a configuration translates. Raises UserError for `int8` that could not take effect."""
    if cfg.int8 and device.type != "cpu":
        raise UserError(f"int8=true is for the CPU, and the device is {device.type}: give device=cpu")
    prepare = quantise if cfg.int8 else None
    return Decoding(cfg.num_decode_batches, cfg.beam_size, cfg.decode_length, prepare)


def build_step(cfg: DictConfig, tokenizer: Tokenizer, device: torch.device) -> TrainingStep:
    """The training step of a configuration: the model with its first weights, and its optimizer."""
    torch.manual_seed(cfg.seed)
    module = TranslationModule(
        build_translator(cfg.model, tokenizer, trusted=cfg.trusted),
        optimizer=build(cfg.optimizer, trusted=cfg.trusted),
        scheduler=partial(constant, warmup_steps=0),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=0.0,
        r_drop=cfg.r_drop,
    ).to(device)
    return TrainingStep(
        module,
        module.optimizer_factory(module.parameters()),
        clip_norm=cfg.gradient_clip_val,
        precision=cfg.precision,
        kernels=cfg.kernels,
    )


# --- what is measured -----------------------------------------------------------------------------------


def check(cfg: DictConfig) -> None:
    """Raise UserError for settings that exclude each other."""
    if cfg.attentions is not None and cfg.variants is not None:
        raise UserError("give attentions or variants, not both")
    if cfg.data.get("streaming") is not None:
        raise UserError("data.streaming: what is measured takes turns on batches of text that is read whole")


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: this machine has no GPU that torch can use")
    return torch.device(name)


def compose_variants(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, tuple[DictConfig, list[str]]]:
    """The configuration of each variant, with all of its overrides. Raises UserError where the data differ."""
    if cfg.attentions is not None:
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
        settle(each, "benchmark", all_of_them)
        each.name = name
        check(each)
        if plain(each.data) != plain(cfg.data):
            raise UserError(f"variant {name} changes data: all that are compared share their batches")
        composed[name] = (each, all_of_them)
    return composed


def plain(config: Any) -> Any:
    return OmegaConf.to_container(config, resolve=True)


def prepare(whole: DictConfig, cache_dir: Path, bar: Any) -> tuple[TranslationDataModule, dict[str, float]]:
    """Read the text, make the vocabulary, split into pieces: the data module, and how fast each went.

    Nothing of it is cached, but for what the Hub sent, which stays where it is.
    """
    cfg = whole.data
    datasets.disable_caching()
    datasets.disable_progress_bars()
    if cached_anew(cfg):
        cfg = OmegaConf.merge(cfg, {"reader": {"cache_dir": str(cache_dir)}})
    clock = [time.perf_counter()]

    def done(next_part: str) -> None:
        clock.append(time.perf_counter())
        bar.update()
        bar.set_description(next_part)

    bar.set_description("reading")
    splits = read_splits(cfg, ("train", "val"), trusted=whole.trusted)
    done("vocabulary")
    tokenizer = make_tokenizer(cfg, splits["train"])
    done("pieces")
    data = make_datamodule(cfg, splits, tokenizer, seed=whole.seed, guided=False)
    done("batches")
    reading, vocabulary, pieces = (b - a for a, b in itertools.pairwise(clock))
    num_pairs = sum(len(split) for split in splits.values())
    return data, {
        "num_pairs": num_pairs,
        "vocabulary_seconds": vocabulary,
        "read_pairs_per_second": num_pairs / reading,
        "split_pairs_per_second": num_pairs / pieces,
        "prepare_pairs_per_second": num_pairs / (reading + pieces),
    }


def startup_seconds(cfg: DictConfig, overrides: Sequence[str]) -> float:
    """Seconds of scripts/train.py, as a process of its own, from its start to the end of its first step.

    Raises UserError with its last line where it fails.
    """
    arguments = for_train(cfg, overrides)
    with tempfile.TemporaryDirectory() as directory:
        arguments.append(f"log_dir={directory}/logs")
        if cached_anew(cfg.data):
            arguments.append(f"data.cache_dir={directory}/cache")
        return measure.watch([*TRAIN, *arguments], "scripts/train.py").seconds


def for_train(cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """What scripts/train.py is told: those of the overrides that it knows, and to end after its first step."""
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


def corpora(cfg: DictConfig, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """Print and return what corpora of these sizes cost: preparation, memory, start-up, dealing an epoch's batches.

    Raises UserError for an override that could not take effect.
    """
    settings = [each for each in overrides if key_of(each).partition(".")[0] != "data"]
    used = {"corpora", "output", "device", "precision", *map(key_of, for_train(cfg, settings))}
    for key in map(key_of, overrides):
        if key not in used and not key.startswith((*CORPUS_KEYS, "data.tokenizer.")):
            raise UserError(f"{key}= has no effect with corpora=: leave it out")
    check(cfg)
    datasets.disable_progress_bars()
    sizes: Any = tqdm(cfg.corpora, unit="corpus", disable=None, leave=False)
    results = [corpus_cost(cfg, settings, number) for number in sizes]
    print(measure.corpora_table(results))
    if cfg.output is not None:
        result = {**provenance(command(overrides), pick_device(cfg.device)), "corpora": results}
        write_atomically(Path(cfg.output), json.dumps(result, indent=2) + "\n")
    return results


def corpus_cost(cfg: DictConfig, settings: Sequence[str], num_pairs: int) -> dict[str, Any]:
    """Training on `num_pairs` lines of two of the grammar's sentences: three starts, and an epoch's batches."""
    with tempfile.TemporaryDirectory() as directory:
        text_bytes = measure.write_corpus(Path(directory) / "text", num_pairs)
        data = [
            "data=files",
            f"data.path={directory}/text",
            f"data.cache_dir={directory}/cache",
            "data.src_lang=en",
            "data.tgt_lang=vi",
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


def cached_anew(cfg: DictConfig) -> bool:
    """Whether text can be read again without asking the Hub for it."""
    return "path" not in cfg or cfg.path is not None


def compare(files: Sequence[str]) -> None:
    """Print the ratios of two files that were written by `output=`."""
    results = []
    for file in files:
        try:
            results.append(json.loads(Path(file).read_text("utf-8")))
        except ValueError as error:
            raise UserError(f"{file} is not JSON: {error}") from error
        if not isinstance(results[-1], dict) or not {"machine", "variants"} <= set(results[-1]):
            raise UserError(f"{file} was not written by benchmark.py")
    try:
        print(measure.compare(*results))
    except ValueError as error:
        raise UserError(str(error)) from error
    except (AttributeError, LookupError, TypeError) as error:
        both = " or ".join(map(str, files))
        raise UserError(
            f"{both} was not written by benchmark.py ({type(error).__name__}: {error})"
        ) from error


def main(cfg: DictConfig) -> None:
    overrides = list(HydraConfig.get().overrides.task)
    if cfg.compare is not None:
        compare(cfg.compare)
    elif cfg.corpora is not None:
        corpora(cfg, overrides)
    else:
        benchmark(cfg, overrides)
