"""Numbers that compare runs: scores with their significance, means over seeds, scores by length, learning curves."""

import bisect
import logging
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nmt import alignment, metrics
from nmt.comparison.runs import ScoredRun, group_runs, label_runs, label_systems
from nmt.comparison.significance import compare_systems, paired_tests
from nmt.config.types import flat
from nmt.errors import UserError, command, printable, reason_of
from nmt.run.data import read_whole, references_of, stored_data

log = logging.getLogger(__name__)

Row = dict[str, Any]  # the figures of a run by their names in the CSV file
COSTS = ("num_parameters", "steps", "seconds", "tokens_per_second")
PROVENANCE = ("command", "commit", "machine")


class Comparison(NamedTuple):
    """The figures of a comparison.

    rows: run, system, directory; for a metric NAME: NAME, NAME_ci, NAME_signature, NAME_p_bootstrap and
    NAME_p_randomization, with p-values against the run `first`; and for a run, `figures_of`. groups: rows by system.
    differences: as from `compare_systems`, with the metric; between each system and `baseline`, or between every two
    systems.
    """

    rows: list[Row]
    groups: dict[str, list[int]]
    first: str
    baseline: str | None
    differences: list[dict[str, Any]]


def read_scored_text(
    run: ScoredRun, split: str, trusted: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Read the sources and references that a run was scored on. Raises UserError if its data no longer hold them."""
    try:
        dataset = read_whole(stored_data(run.config.data), [split], trusted=trusted, stored=True)[split]
    except (UserError, OSError) as error:
        raise UserError(f"{run.directory}: {error}; or give the references with refs=FILE") from error
    sources, references = list(dataset["src"]), references_of(dataset)
    if metrics.digest(sources, references) != run.metrics.get("references"):
        raise UserError(
            f"{run.directory} was scored on other sentences than its data now hold: score it again"
            f" ({command('evaluate', [f'run={run.directory}'])}), or give refs=FILE"
        )
    return sources, references


def compare_runs(
    runs: Sequence[ScoredRun],
    references: Sequence[Sequence[str]],
    chosen: Mapping[str, Any],
    *,
    num_bootstrap: int,
    num_trials: int,
    systems: Mapping[str, Sequence[str]] = MappingProxyType({}),
    baseline: str | None = None,
) -> Comparison:
    """Figures of each run, of each system (the runs that differ only in their seed), and of their differences.

    `systems` are translations of other programs by the name of their file: rows without the figures of a run, and
    systems of a single run. `baseline` names a run or a system; the others are then compared only with it. Raises
    UserError if the numbers of hypotheses and references differ.
    """
    texts = [(str(run.directory), run.hypotheses) for run in runs] + list(systems.items())
    for name, hypotheses in texts:
        if len(hypotheses) != len(references[0]):
            raise UserError(
                f"{name} has {len(hypotheses)} hypotheses but there are {len(references[0])} references"
            )
    labels = [*label_runs(runs), *map(printable, systems)]
    of_systems = [*label_systems(runs), *labels[len(runs) :]]
    groups = group_runs(of_systems, [*(run.seed for run in runs), *systems])
    first, base = find_baseline(baseline, labels, of_systems, [name for name, _ in texts])
    if len(groups) == 2:
        base = base or of_systems[0]
    results = paired_tests(
        chosen,
        [hypotheses for _, hypotheses in texts],
        references,
        num_bootstrap=num_bootstrap,
        num_trials=num_trials,
        first=first,
    )
    rows: list[Row] = [
        {"run": label, "system": system, "directory": printable(name), **_scores_of(scores)}
        for label, system, (name, _), scores in zip(labels, of_systems, texts, results, strict=True)
    ]
    for row, run in zip(rows, runs, strict=False):
        row |= figures_of(run)
    differences = []
    for metric in chosen:
        scores = np.array([result[metric]["score"] for result in results])
        resampled = np.stack([result[metric]["resampled"] for result in results])
        found = compare_systems(scores, resampled, groups, base)
        differences += [{"metric": metric, **each} for each in found]
    return Comparison(rows, groups, labels[first], base, differences)


def _scores_of(scores: Mapping[str, Mapping[str, Any]]) -> Row:
    row: Row = {}
    for name, result in scores.items():
        row[name] = result["score"]
        for key in ("ci", "p_bootstrap", "p_randomization", "signature"):
            row[f"{name}_{key}"] = result[key]
    return row


def figures_of(run: ScoredRun) -> Row:
    """The seed and, if recorded, the numbers aer, `COSTS`, attention/NAME and importance/NAME, and `PROVENANCE`."""
    written = flat(run.metrics)
    figures = {"aer": written.get("aer.score")} | {key: written.get(f"training.{key}") for key in COSTS}
    groups = ("attention.", "importance.")
    figures |= {key.replace(".", "/", 1): written[key] for key in written if key.startswith(groups)}
    numbers = {
        printable(key): value
        for key, value in figures.items()
        if isinstance(value, int | float) and abs(value) < 2**63
    }
    training = run.metrics.get("training")
    origin = {key: training[key] for key in PROVENANCE if isinstance(training, dict) and key in training}
    return {"seed": run.seed, **numbers, **origin}


def find_baseline(
    given: str | None, labels: Sequence[str], systems: Sequence[str], places: Sequence[str]
) -> tuple[int, str | None]:
    """The row and the system that `baseline` names. Without a baseline, the first row and no system.

    It names a run's directory, the label of a run or a system, or a value in a system's label (`bahdanau` of
    `attention=bahdanau`). Raises UserError if it names no system, or several.
    """
    if given is None:
        return 0, None
    for row, place in enumerate(places):
        if Path(place).resolve() == Path(given).resolve() or given == labels[row]:
            return row, systems[row]
    words = {system: [system, *(word.partition("=")[2] for word in system.split(" "))] for system in systems}
    found = [system for system in words if given in words[system]]
    if len(found) != 1:
        known = ", ".join(dict.fromkeys([*systems, *labels]))
        raise UserError(
            f"baseline={given} names {len(found) or 'none'} of the systems and runs: give one of {known}"
        )
    return systems.index(found[0]), found[0]


def average_over_seeds(
    groups: Mapping[str, Sequence[int]], rows: Sequence[Row], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Mean and sample standard deviation (None of a single run) of `names` over the runs of each system.

    Returns `{"run", "num_runs", NAME: {"mean", "std"}}` per system.
    """
    averages = []
    for system, group in groups.items():
        entry: dict[str, Any] = {"run": system, "num_runs": len(group)}
        for name in names:
            values = [rows[index][name] for index in group if name in rows[index]]
            if len(values) == len(group):
                std = statistics.stdev(values) if len(values) > 1 else None
                entry[name] = {"mean": statistics.mean(values), "std": std}
        averages.append(entry)
    return averages


def score_by_length(
    texts: Sequence[Sequence[str]],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: Any,
    *,
    bounds: Sequence[int],
) -> dict[str, Any]:
    """Corpus scores by source length: `{"units", "buckets", "num_sentences", "scores"}`.

    The units are words, or characters if most sources have no spaces. `bounds` are the upper bounds of all buckets but
    the last: [10, 20] gives 0-10, 11-20 and 21+. A bucket without sentences is left out. scores is [runs, buckets].
    """
    rows_by_bucket: dict[int, list[int]] = {}
    for row, line in enumerate(sources):
        rows_by_bucket.setdefault(bisect.bisect_left(bounds, len(alignment.split_units(line))), []).append(
            row
        )
    buckets = sorted(rows_by_bucket)
    starts = [0, *(bound + 1 for bound in bounds)]

    def score(text: Sequence[str], rows: Sequence[int]) -> float:
        hypotheses, *chosen = ([each[row] for row in rows] for each in (text, *references))
        return metrics.score_with({"it": metric}, hypotheses, chosen, num_bootstrap=0)["it"]["score"]

    num_mixed = sum(alignment.choose_units(line, "auto") == "mixed" for line in sources)
    return {
        "units": "characters" if 2 * num_mixed > len(sources) else "words",
        "buckets": [f"{starts[b]}-{bounds[b]}" if b < len(bounds) else f"{starts[b]}+" for b in buckets],
        "num_sentences": [len(rows_by_bucket[b]) for b in buckets],
        "scores": [[score(text, rows_by_bucket[b]) for b in buckets] for text in texts],
    }


def learning_curve(directory: Path, tag: str) -> tuple[list[int], list[float]] | None:
    """Steps and values of a scalar in the run's event files; None without any, and, with a warning, if one is bad."""
    if not any(directory.glob("events.out.tfevents.*")):
        return None
    # Imported here: it takes a second, and only event files need it.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    try:
        events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    except Exception as error:  # TensorBoard's differ by the fault: a DecodeError, a MemoryError, …
        log.warning(
            "%s has event files that are broken (%s): its learning curve is left out",
            directory,
            reason_of(error),
        )
        return None
    if tag not in events.Tags()["scalars"]:
        return None
    scalars = events.Scalars(tag)
    return [scalar.step for scalar in scalars], [scalar.value for scalar in scalars]
