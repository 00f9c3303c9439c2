"""Measure how the cost of training grows with sentence length, width, vocabulary and corpus size.

python scripts/workbench/growth.py [KEY=VALUE …] --lengths --widths 128 256 [--output FILE.json]

An axis without values has the usual ones. KEY=VALUE: settings of benchmark.py, `model=transformer` among them; those
that are no axis stay as configured, and sentences have 20 pieces. The variants of an axis take turns (`repeats=3`) on
`num_batches` synthetic batches. The curves are drawn in FILE.png.
"""

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from corpora import corpus_cost, mebibytes, origin
from nmt import benchmark as measure
from nmt import plotting
from nmt.atomic import json_text
from nmt.benchmark import TrainingStep, build_step
from nmt.commands.composing import compose
from nmt.commands.entry import errors_in_one_line
from nmt.comparison.tables import align_columns
from nmt.config.commands import check_settings
from nmt.data.batching import Batch, collate
from nmt.run.device import pick_device
from nmt.run.paths import write_atomically

LENGTH = 20  # pieces per side, unless lengths are the axis
SPECIAL_IDS = {"pad_id": 0, "bos_id": 2, "eos_id": 3}
AXES = {
    "lengths": [10, 20, 50, 100, 200, 400],
    "widths": [128, 256, 512, 1024],
    "vocabularies": [2000, 4000, 8000, 16000, 32000],
    "corpora": [10_000, 100_000, 1_000_000, 5_000_000],
}
KEYS = {"widths": "model.size", "vocabularies": "data.tokenizer.vocab_size"}
LABELS = {
    "lengths": "pieces of either side",
    "widths": "model.size",
    "vocabularies": "pieces in the vocabulary",
    "corpora": "pairs",
}
COSTS = ("target pieces/s", "memory, MiB")
COSTS_OF_CORPORA = ("pairs prepared/s", "streamed start: memory, MiB", "streamed start, s")


def growth(axes: Mapping[str, Sequence[int]], overrides: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The costs at all values of each axis, with settings of benchmark.py."""
    cfg = compose("benchmark", list(overrides))
    check_settings(cfg, "benchmark")
    settings = [each for each in overrides if not each.partition(".")[0].startswith("data")]
    costs = {}
    for axis, values in axes.items():
        values = sorted(set(values))
        if axis == "corpora":
            costs[axis] = [cost_of_corpus(cfg, settings, num_pairs) for num_pairs in values]
        else:
            costs[axis] = step_costs(cfg, axis, values)
    return costs


def step_costs(cfg: DictConfig, axis: str, values: Sequence[int]) -> list[dict[str, Any]]:
    """Target pieces per second and memory of training steps at all values, which take turns."""
    device = pick_device(cfg.device)
    subjects = [made_up_training(cfg, axis, value, device) for value in tqdm(values, desc=axis, disable=None)]
    rates: list[list[float]] = [[] for _ in values]
    for _ in tqdm(range(cfg.repeats + 1), desc=f"{axis}, turns", disable=None):
        for (step, batches, _), own in zip(subjects, rates, strict=True):
            num_pieces = measure.num_target_tokens(batches, SPECIAL_IDS["pad_id"])
            own.append(num_pieces / measure.train_seconds(step, batches))
    return [
        {"value": value, "memory_bytes": memory, "per_second": measure.summary(own[1:])}
        for value, (_, _, memory), own in zip(values, subjects, rates, strict=True)
    ]


def made_up_training(
    cfg: DictConfig, axis: str, value: int, device: torch.device
) -> tuple[TrainingStep, list[Batch], int]:
    """A training step with `value` on an axis, synthetic batches of `data.max_tokens`, and the memory in bytes."""
    cfg = deepcopy(cfg)
    if axis in KEYS:
        OmegaConf.update(cfg, KEYS[axis], value)
    size, joint = cfg.data.tokenizer.vocab_size, cfg.data.tokenizer.joint
    vocabulary: Any = SimpleNamespace(
        src_vocab_size=size, tgt_vocab_size=size, joint=joint, separator_id=None, **SPECIAL_IDS
    )
    batches = made_up_batches(
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


def made_up_batches(
    num_batches: int, *, length: int, max_tokens: int, vocab_size: int, seed: int, device: torch.device
) -> list[Batch]:
    """Batches of `max_tokens // length` pairs, at least one, without padding.

    Both sides of a pair have `length` random pieces, end of sentence included.
    """
    shape = (num_batches, max(1, max_tokens // length), 2, length)
    first = max(SPECIAL_IDS.values()) + 1
    ids = torch.randint(first, vocab_size, shape, generator=torch.Generator().manual_seed(seed))
    ids[..., -1] = SPECIAL_IDS["eos_id"]
    pairs = (
        [{"index": n, "src_ids": src, "tgt_ids": tgt} for n, (src, tgt) in enumerate(each)]
        for each in ids.tolist()
    )
    batches = (collate(each, pad_id=SPECIAL_IDS["pad_id"], bos_id=SPECIAL_IDS["bos_id"]) for each in pairs)
    return measure.first_batches(batches, num_batches, device)


def cost_of_corpus(cfg: DictConfig, settings: Sequence[str], num_pairs: int) -> dict[str, Any]:
    """Pairs prepared per second, and memory and seconds of the start of streamed training."""
    cost = corpus_cost(cfg, settings, num_pairs)
    return {
        "value": num_pairs,
        "memory_bytes": cost["streamed"]["peak"],
        "per_second": measure.summary([cost["prepared_pairs_per_second"]]),
        "start_seconds": cost["streamed"]["seconds"],
    }


def exponents(points: Sequence[tuple[float, float]]) -> list[float]:
    """The exponents p of y ~ x^p between neighbouring points (x, y): the slopes on log-log axes."""
    return [math.log(y2 / y1) / math.log(x2 / x1) for (x1, y1), (x2, y2) in itertools.pairwise(points)]


def growth_rows(axis: str, points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The header and rows of the table of an axis: costs, and the exponent of the seconds from the previous value."""
    slopes = exponents([(each["value"], 1 / each["per_second"]["median"]) for each in points])
    costs = COSTS_OF_CORPORA if axis == "corpora" else COSTS
    rows = [[LABELS[axis], *costs, "exponent of seconds"]]
    for each, slope in zip(points, ["", *(f"{slope:+.2f}" for slope in slopes)], strict=True):
        start = [f"{each['start_seconds']:.1f}"] if axis == "corpora" else []
        rate = measure.spread(each["per_second"], ",.0f")
        rows.append([f"{each['value']:,}", rate, mebibytes(each["memory_bytes"]), *start, slope])
    return rows


def growth_panels(axes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """The costs of each axis in a panel of its own, two in a row. Both axes are logarithmic.

    A straight line is a power law. Its slope changes at the value from which another cost dominates.
    """
    columns, rows = min(2, len(axes)), -(-len(axes) // 2)
    figure = Figure(figsize=(columns * 4.4, rows * 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (axis, points) in enumerate(axes.items(), start=1):
        panel = figure.add_subplot(rows, columns, place, xscale="log", yscale="log", xlabel=LABELS[axis])
        values = [each["value"] for each in points]
        costs = [
            [each["per_second"]["median"] for each in points],
            [(each["memory_bytes"] or math.nan) / 2**20 for each in points],
            [each.get("start_seconds", math.nan) for each in points],
        ]
        names = COSTS_OF_CORPORA if axis == "corpora" else COSTS
        for name, cost, mark in zip(names, costs, "os^", strict=False):
            panel.plot(values, cost, marker=mark, markersize=4, label=name)
        panel.set_xticks(values, [f"{value:,}" for value in values])
        panel.set_xticks([], minor=True)
        panel.grid(color="0.9")
        panel.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    for axis, values in AXES.items():
        usual = " ".join(map(str, values))
        parser.add_argument(f"--{axis}", type=int, nargs="*", metavar="VALUE", help=f"by default {usual}")
    parser.add_argument("--output", type=Path, help="a .json file")
    given = parser.parse_intermixed_args()
    chosen = {axis: getattr(given, axis) for axis in AXES}
    axes = {axis: values or AXES[axis] for axis, values in chosen.items() if values is not None}
    if not axes:
        parser.error(f"give an axis: --{', --'.join(AXES)}")
    with errors_in_one_line("benchmark"):
        before = origin()
        costs = growth(axes, given.settings)
        for axis, points in costs.items():
            print(align_columns(growth_rows(axis, points)), end="\n\n")
        if given.output is not None:
            write_atomically(given.output, json_text(before | {"growth": costs}))
            plotting.to_png(growth_panels(costs), given.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
