"""`benchmark.py speedrun=…`: a race of `train.py` and a plain PyTorch loop from raw text to a validation BLEU."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from matplotlib.figure import Figure
from omegaconf import DictConfig
from tqdm import tqdm

from nmt.atomic import json_text
from nmt.benchmark import plain, safe_environment
from nmt.commands.starts import TRAIN
from nmt.config.types import key_of
from nmt.errors import UserError, command
from nmt.plotting import learning_curves, to_png
from nmt.run.data import read_splits
from nmt.run.device import pick_device
from nmt.run.paths import write_atomically
from nmt.run.provenance import provenance

TOLD = (
    "trainer.enable_progress_bar=false",
    "+callbacks.tell._target_=nmt.benchmark.TellValidations",
    "trusted=[nmt.benchmark]",
)


class Validation(NamedTuple):
    """Seconds since the start of the process, optimizer steps, BLEU of the greedy translations."""

    seconds: float
    step: int
    bleu: float


def speedrun(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Race `cfg.repeats` times, with seeds 1, 2, …; print and return the seconds to `cfg.target` BLEU.

    `cfg.speedrun` is an experiment of train.py, which also gets the `data` settings. Nothing is cached. With `output`,
    write the result there and draw the curves beside it as .png. Raises UserError for an override without effect.
    """
    of_data = [each for each in overrides if key_of(each).partition(".")[0] == "data"]
    for key in map(key_of, overrides):
        if key not in ("speedrun", "target", "repeats", "output", *map(key_of, of_data)):
            raise UserError(
                f"{key}= has no effect with speedrun=: leave it out, or write it into the experiment"
            )
    settings = [f"experiment={cfg.speedrun}", *of_data]
    splits = read_splits(hydra.compose("train", overrides=settings).data, ("train", "val"))
    texts = {name: list(zip(split["src"], split["tgt"], strict=True)) for name, split in splits.items()}
    curves: dict[str, list[list[Validation]]] = {"here": [], "plain loop": []}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "texts.json").write_text(json.dumps(texts), "utf-8")
        for seed in tqdm(range(1, cfg.repeats + 1), unit="round", disable=None, leave=False):
            folders = [f"log_dir={directory}/logs", f"data.cache_dir={directory}/cache_{seed}"]
            here = [*TRAIN, *settings, f"seed={seed}", *folders, *TOLD]
            loop = [sys.executable, str(plain.__file__), f"{directory}/texts.json", str(seed)]
            for name, arguments in (("here", here), ("plain loop", loop)):
                curves[name].append(validations(arguments, f"{name}, seed {seed}"))
    result = {
        **provenance(command("benchmark", overrides), pick_device("auto")),
        "target": cfg.target,
        "seconds": {name: [seconds_to(cfg.target, each) for each in runs] for name, runs in curves.items()},
        "curves": curves,
    }
    print(race_lines(result))
    if cfg.output is not None:
        write_atomically(Path(cfg.output), json_text(result))
        to_png(draw_race(curves, cfg.target), Path(cfg.output).with_suffix(".png"))
    return result


def draw_race(curves: Mapping[str, Sequence[Sequence[Validation]]], target: float) -> Figure:
    """BLEU over the seconds since the start: a curve per run, and a horizontal line at the target."""
    lines = {
        f"{name}, seed {seed}": [([each.seconds for each in run], [each.bleu for each in run])]
        for name, runs in curves.items()
        for seed, run in enumerate(runs, start=1)
    }
    figure = learning_curves(
        lines, xlabel="seconds from the start of the command", ylabel="BLEU on the validation set"
    )
    figure.axes[0].axhline(target, color="0.5", linewidth=0.8)
    return figure


def validations(command: Sequence[str], name: str) -> list[Validation]:
    """Run a process that prints validations as lines of JSON; return them, and report them on standard error.

    Raises UserError if it fails or prints none.
    """
    started, found = time.perf_counter(), []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8", env=safe_environment()
        ) as process,
    ):
        for line in process.stdout or ():
            if line.startswith('{"step"'):
                found.append(Validation(time.perf_counter() - started, **json.loads(line)))
                said = f"{name}: {found[-1].bleu:.2f} BLEU after {found[-1].seconds:.0f} s"
                tqdm.write(said, file=sys.stderr)
        if process.wait():
            errors.seek(0)
            raise UserError(
                f"speedrun: {(errors.read().strip() or str(process.returncode)).splitlines()[-1]}"
            )
    if not found:
        raise UserError(
            "speedrun: the run ended before its first validation: give an experiment that validates"
        )
    return found


def seconds_to(target: float, run: Sequence[Validation]) -> float | None:
    """Seconds until the first validation with at least `target` BLEU; None if there is none."""
    return next((each.seconds for each in run if each.bleu >= target), None)


def race_lines(result: dict[str, Any]) -> str:
    """A line per program: seconds to the target and best BLEU of every round."""
    lines = []
    for name, seconds in result["seconds"].items():
        reached = [each for each in seconds if each is not None]
        rounds = ", ".join("–" if each is None else f"{each:.0f}" for each in seconds)
        best = ", ".join(f"{max(each.bleu for each in run):.2f}" for run in result["curves"][name])
        median = f"{statistics.median(reached):.0f} s" if reached else "not reached"
        lines.append(
            f"{name:10}  {result['target']:g} BLEU after {median} (rounds: {rounds}); best BLEU {best}"
        )
    return "\n".join(lines)
