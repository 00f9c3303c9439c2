"""`benchmark.py growth=…`: the cost of training by sentence length, width, vocabulary or corpus size."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import benchmark as measure
from nmt import plotting
from nmt.atomic import json_text
from nmt.benchmark import TrainingStep
from nmt.benchmark.growth import SPECIAL_IDS
from nmt.commands import starts
from nmt.commands.training_step import build_step
from nmt.config.types import key_of
from nmt.data.batching import Batch
from nmt.errors import command
from nmt.run.device import pick_device
from nmt.run.paths import write_atomically
from nmt.run.provenance import provenance

LENGTH = 20  # pieces per side, unless lengths are the axis
KEYS = {"widths": "model.size", "vocabularies": "data.tokenizer.vocab_size"}


def growth(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Print and return the cost at all values of the axes in `cfg.growth`.

    With `output` FILE.json, write it there and draw it in FILE.png.
    """
    device = pick_device(cfg.device)
    origin = provenance(command("benchmark", overrides), device)  # the machine's load before the work
    settings = [each for each in overrides if key_of(each).partition(".")[0] != "data"]
    values = {axis: sorted(set(cfg.axes[axis])) for axis in cfg.growth}
    parts = sum(len(each) * (1 if axis == "corpora" else cfg.repeats + 2) for axis, each in values.items())
    axes: dict[str, list[dict[str, Any]]] = {}
    with tqdm(total=parts, unit="part", disable=None, leave=False) as bar:
        for axis, each in values.items():
            bar.set_description(axis)
            if axis == "corpora":
                axes[axis] = [cost_of_corpus(cfg, settings, num_pairs, bar) for num_pairs in each]
            else:
                axes[axis] = step_costs(cfg, axis, each, device, bar)
    result = {**origin, "settings": OmegaConf.to_container(cfg, resolve=True), "growth": axes}
    print(measure.growth_tables(result))
    if cfg.output is not None:
        write_atomically(Path(cfg.output), json_text(result))
        picture = plotting.growth_panels(measure.growth_curves(axes))
        plotting.to_png(picture, Path(cfg.output).with_suffix(".png"))
    return result


def step_costs(
    cfg: DictConfig, axis: str, values: Sequence[int], device: torch.device, bar: Any
) -> list[dict[str, Any]]:
    """Target pieces per second and memory of training steps at all values, which take turns."""
    subjects = []
    for value in values:
        subjects.append(made_up_training(cfg, axis, value, device))
        bar.update()
    rates: list[list[float]] = [[] for _ in values]
    for _ in range(cfg.repeats + 1):
        for (step, batches, _), own in zip(subjects, rates, strict=True):
            num_pieces = measure.num_target_tokens(batches, SPECIAL_IDS["pad_id"])
            own.append(num_pieces / measure.train_seconds(step, batches))
            bar.update()
    return [
        {"value": value, "memory_bytes": memory, "per_second": measure.summary(own[1:])}
        for value, (_, _, memory), own in zip(values, subjects, rates, strict=True)
    ]


def made_up_training(
    cfg: DictConfig, axis: str, value: int, device: torch.device
) -> tuple[TrainingStep, list[Batch], int | None]:
    """A training step with `value` on an axis, synthetic batches of `data.max_tokens`, and the memory in bytes."""
    cfg = deepcopy(cfg)
    if axis in KEYS:
        OmegaConf.update(cfg, KEYS[axis], value)
    size, joint = cfg.data.tokenizer.vocab_size, cfg.data.tokenizer.joint
    vocabulary: Any = SimpleNamespace(
        src_vocab_size=size, tgt_vocab_size=size, joint=joint, separator_id=None, **SPECIAL_IDS
    )
    batches = measure.made_up_batches(
        cfg.num_batches,
        length=value if axis == "lengths" else LENGTH,
        max_tokens=cfg.data.max_tokens,
        vocab_size=size,
        seed=cfg.seed,
        device=device,
    )
    build = partial(build_step, cfg, vocabulary, device)
    memory = measure.peak_memory_of(lambda: measure.train_seconds(build(), batches[:1] * 2), device)
    return build(), batches, memory


def cost_of_corpus(cfg: DictConfig, settings: Sequence[str], num_pairs: int, bar: Any) -> dict[str, Any]:
    """Pairs prepared per second, and memory and seconds of the start of streamed training."""
    cost = starts.corpus_cost(cfg, settings, num_pairs)
    bar.update()
    return {
        "value": num_pairs,
        "memory_bytes": cost["streamed"]["peak"],
        "per_second": measure.summary([cost["prepared_pairs_per_second"]]),
        "start_seconds": cost["streamed"]["seconds"],
    }
