"""Numbers that compare runs: scores with their significance, means over seeds, scores by length, learning curves."""

import bisect
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nmt import metrics
from nmt.comparison.runs import ScoredRun, groups_but_for_seed, label_experiments, label_runs
from nmt.comparison.significance import paired_tests
from nmt.errors import UserError

Row = dict[str, Any]  # one run's figures by their names in the CSV file
COSTS = ("num_parameters", "steps", "seconds", "tokens_per_second")
PROVENANCE = ("command", "commit", "machine")


def compare(
    runs: Sequence[ScoredRun],
    references: Sequence[str],
    chosen: Mapping[str, Any],
    *,
    num_bootstrap: int,
    num_trials: int,
    systems: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Row]:
    """A row of figures for each run: every metric of `chosen` with interval and p-values against the first run.

    `systems` are other programs' translations by the name of their file: rows without the figures of a run.

    Keys: run, directory, seed; NAME, NAME_ci, NAME_signature, NAME_p_bootstrap, NAME_p_randomization for a
    metric; aer, num_parameters, steps, seconds, tokens_per_second, attention/NAME, importance/NAME, command, commit and
    machine where they were written.
    Raises UserError where hypotheses and references do not match in number.
    """
    texts = [(str(run.directory), run.hypotheses) for run in runs] + list(systems.items())
    for name, hypotheses in texts:
        if len(hypotheses) != len(references):
            raise UserError(
                f"{name} has {len(hypotheses)} hypotheses but there are {len(references)} references"
            )
    labels = label_runs(runs)
    results = paired_tests(
        chosen,
        [hypotheses for _, hypotheses in texts],
        references,
        num_bootstrap=num_bootstrap,
        num_trials=num_trials,
    )
    rows = [
        {"run": label, **_figures_of(run, scores)}
        for run, label, scores in zip(runs, labels, results[: len(runs)], strict=True)
    ]
    others = zip(systems, results[len(runs) :], strict=True)
    return rows + [{"run": name, "directory": name, **_scores_of(scores)} for name, scores in others]


def _scores_of(scores: Mapping[str, Mapping[str, Any]]) -> Row:
    row: Row = {}
    for name, result in scores.items():
        row[name] = result["score"]
        for key in ("ci", "p_bootstrap", "p_randomization", "signature"):
            row[f"{name}_{key}"] = result[key]
    return row


def _figures_of(run: ScoredRun, scores: Mapping[str, Mapping[str, Any]]) -> Row:
    row: Row = {"directory": str(run.directory), "seed": run.seed, **_scores_of(scores)}
    if "aer" in run.metrics:
        row["aer"] = run.metrics["aer"]["score"]
    training, attention = run.metrics.get("training", {}), run.metrics.get("attention", {})
    figures = {key: training.get(key) for key in (*COSTS, *PROVENANCE)}
    figures |= {f"attention/{key}": value for key, value in attention.items()}
    figures |= {f"importance/{key}": value for key, value in run.metrics.get("importance", {}).items()}
    return row | {key: value for key, value in figures.items() if value is not None}


def average_over_seeds(
    runs: Sequence[ScoredRun], rows: Sequence[Row], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Mean and sample standard deviation of each of `names` over the runs that differ in their seed alone.

    One entry `{"run", "num_runs", NAME: {"mean", "std"}}` for each group of two seeds or more; of a repeated seed the
    last run counts.
    """
    labels = label_experiments(runs)
    averages = []
    for alike in groups_but_for_seed(runs):
        group = list({runs[index].seed: index for index in alike}.values())
        if len(group) < 2:
            continue
        entry: dict[str, Any] = {"run": labels[group[0]] or "all", "num_runs": len(group)}
        for name in names:
            values = [rows[index][name] for index in group if name in rows[index]]
            if len(values) == len(group):
                entry[name] = {"mean": statistics.mean(values), "std": statistics.stdev(values)}
        averages.append(entry)
    return averages


def score_by_length(
    texts: Sequence[Sequence[str]],
    sources: Sequence[str],
    references: Sequence[str],
    metric: Any,
    *,
    bounds: Sequence[int],
) -> dict[str, list]:
    """Corpus scores of the sentences of each source length: `{"buckets", "num_sentences", "scores"}`.

    `bounds` are the most words in each bucket but the last, which has no end: [10, 20] gives 0-10, 11-20 and
    21+. A bucket without sentences is left out. scores is [runs, buckets].
    """
    rows_by_bucket: dict[int, list[int]] = {}
    for row, line in enumerate(sources):
        rows_by_bucket.setdefault(bisect.bisect_left(bounds, len(line.split())), []).append(row)
    buckets = sorted(rows_by_bucket)
    starts = [0, *(bound + 1 for bound in bounds)]

    def score(text: Sequence[str], rows: Sequence[int]) -> float:
        hypotheses, chosen = [text[row] for row in rows], [references[row] for row in rows]
        return metrics.score_with({"it": metric}, hypotheses, chosen, num_bootstrap=0)["it"]["score"]

    return {
        "buckets": [f"{starts[b]}-{bounds[b]}" if b < len(bounds) else f"{starts[b]}+" for b in buckets],
        "num_sentences": [len(rows_by_bucket[b]) for b in buckets],
        "scores": [[score(text, rows_by_bucket[b]) for b in buckets] for text in texts],
    }


def learning_curve(directory: Path, tag: str) -> tuple[list[int], list[float]] | None:
    """Steps and values of a scalar in the run's event files; None where there is none."""
    if not any(directory.glob("events.out.tfevents.*")):
        return None
    # Imported here: it takes a second, which a comparison without event files need not wait for.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    if tag not in events.Tags()["scalars"]:
        return None
    scalars = events.Scalars(tag)
    return [scalar.step for scalar in scalars], [scalar.value for scalar in scalars]
