"""Records of results, `docs/results/*.json`: what `compare.py output=DIR` or a tool of `scripts/workbench` wrote.

A record has the command, commit and machine of each run.
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.comparison.tables import align_columns

RECORDS = Path(__file__).parent / "results"
LEFT_OUT = (  # these say nothing of the model
    "log_dir=",
    "resume=",
    "run_dir=",
    "trainer.enable_progress_bar=",
    "callbacks.alignments=null",
)


def load(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text("utf-8"))


def command_of(run: dict[str, Any]) -> str:
    """The settings that a run was started with, without where it was kept."""
    started, *resumed = (shlex.split(each)[2:] for each in run["command"].split("; "))
    words = [word for word in sum(resumed, started) if not word.startswith(LEFT_OUT)]
    words = [word for word in words if word != "data.path=multi30k"]
    return f"`{' '.join(words)}`" if words else "the defaults"


def within(score: float, spread: float) -> str:
    return f"{score:.1f} ± {spread:.1f}"


def score_of(run: dict[str, Any], name: str = "bleu") -> str:
    """The score of a run, or the mean and deviation of runs that differ in their seed alone."""
    score = run[name]
    return (
        within(score["mean"], score["std"]) if isinstance(score, dict) else within(score, run[f"{name}_ci"])
    )


def decimals(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}"


def origin(runs: Sequence[dict[str, Any]]) -> str:
    """The line under a table: commits and machines of its runs."""
    commits = ", ".join(dict.fromkeys(f"`{run['commit']}`" for run in runs))
    machines = ", ".join(
        dict.fromkeys(
            f"{run['machine']['cpu']}, {run['machine']['num_threads']} thread(s), torch {run['machine']['torch']}"
            for run in runs
        )
    )
    return f"Commit {commits}; {machines}."


def table_with_origin(lines: Sequence[Sequence[str]], runs: Sequence[dict[str, Any]]) -> str:
    return f"{align_columns(lines)}\n\n{origin(runs)}"


def table_with_note(lines: Sequence[Sequence[str]], record: dict[str, Any]) -> str:
    return f"{align_columns(lines)}\n\n{record['note']} Commit `{record['commit']}`."
