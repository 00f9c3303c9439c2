"""Race scripts/train.py and a plain PyTorch loop from raw text to a BLEU on the validation set.

python scripts/workbench/speedrun.py data=multi30k [KEY=VALUE …] [--output FILE.json]

KEY=VALUE: settings of `data`, which both read. Nothing is cached. The curves are drawn in FILE.png.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from tqdm import tqdm

from corpora import origin
from nmt.atomic import json_text
from nmt.commands.benchmark import TRAIN, safe_environment
from nmt.commands.composing import compose
from nmt.commands.entry import errors_in_one_line
from nmt.config.types import key_of
from nmt.errors import UserError
from nmt.plotting import learning_curves, to_png
from nmt.run.data import read_splits
from nmt.run.paths import write_atomically

HERE = Path(__file__).parent
PRINT_VALIDATIONS = (
    "trainer.enable_progress_bar=false",
    "+callbacks.print._target_=validations.PrintValidations",
    "trusted=[validations]",
)


class Validation(NamedTuple):
    """Seconds since the start of the process, optimizer steps, BLEU of the greedy translations."""

    seconds: float
    step: int
    bleu: float


def speedrun(
    experiment: str, of_data: Sequence[str], *, num_rounds: int
) -> dict[str, list[list[Validation]]]:
    """Race `num_rounds` times, with seeds 1, 2, …: the curves of both programs.

    Raises UserError for a setting that is not of `data`.
    """
    for key in map(key_of, of_data):
        if key.partition(".")[0] != "data":
            raise UserError(f"{key}= has no effect on the plain loop: write it into the experiment")
    settings = [f"experiment={experiment}", *of_data]
    splits = read_splits(compose("train", settings).data, ("train", "val"))
    texts = {name: list(zip(split["src"], split["tgt"], strict=True)) for name, split in splits.items()}
    curves: dict[str, list[list[Validation]]] = {"here": [], "plain loop": []}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "texts.json").write_text(json.dumps(texts), "utf-8")
        for seed in tqdm(range(1, num_rounds + 1), unit="round", disable=None, leave=False):
            folders = [f"log_dir={directory}/logs", f"data.cache_dir={directory}/cache_{seed}"]
            here = [*TRAIN, *settings, f"seed={seed}", *folders, *PRINT_VALIDATIONS]
            loop = [sys.executable, str(HERE / "plain_loop.py"), f"{directory}/texts.json", str(seed)]
            for name, command in (("here", here), ("plain loop", loop)):
                curves[name].append(run_to_validations(command, f"{name}, seed {seed}"))
    return curves


def run_to_validations(command: Sequence[str], name: str) -> list[Validation]:
    """Run a process that prints validations as lines of JSON; return them, and report them on standard error.

    Raises UserError if it fails or prints none.
    """
    paths = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    environment = safe_environment() | {"PYTHONPATH": paths}
    started, found = time.perf_counter(), []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8", env=environment
        ) as process,
    ):
        for line in process.stdout or ():
            if line.startswith('{"step"'):
                found.append(Validation(time.perf_counter() - started, **json.loads(line)))
                said = f"{name}: {found[-1].bleu:.2f} BLEU after {found[-1].seconds:.0f} s"
                tqdm.write(said, file=sys.stderr)
        if process.wait():
            errors.seek(0)
            lines = (errors.read().strip() or str(process.returncode)).splitlines()
            raise UserError(f"speedrun: {lines[-1]}")
    if not found:
        raise UserError(
            "speedrun: the run ended before its first validation: give an experiment that validates"
        )
    return found


def seconds_to(target: float, run: Sequence[Validation]) -> float | None:
    """Seconds until the first validation with at least `target` BLEU; None if there is none."""
    return next((each.seconds for each in run if each.bleu >= target), None)


def race_line(name: str, runs: Sequence[Sequence[Validation]], target: float) -> str:
    """Seconds to the target and best BLEU of every round."""
    seconds = [seconds_to(target, run) for run in runs]
    reached = [each for each in seconds if each is not None]
    rounds = ", ".join("–" if each is None else f"{each:.0f}" for each in seconds)
    best = ", ".join(f"{max(each.bleu for each in run):.2f}" for run in runs)
    median = f"{statistics.median(reached):.0f} s" if reached else "not reached"
    return f"{name:10}  {target:g} BLEU after {median} (rounds: {rounds}); best BLEU {best}"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--experiment", default="multi30k_speedrun", help="of train.py")
    parser.add_argument("--target", type=float, default=36.0, help="the BLEU to reach")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a .json file")
    given = parser.parse_intermixed_args()
    with errors_in_one_line("train"):
        result: dict[str, Any] = origin() | {"target": given.target}
        curves = speedrun(given.experiment, given.settings, num_rounds=given.rounds)
        result["seconds"] = {
            name: [seconds_to(given.target, run) for run in runs] for name, runs in curves.items()
        }
        for name, runs in curves.items():
            print(race_line(name, runs, given.target))
        if given.output is not None:
            write_atomically(given.output, json_text(result | {"curves": curves}))
            to_png(draw_race(curves, given.target), given.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
