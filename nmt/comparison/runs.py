"""Read scored runs without their models: settings, hypotheses, references, and labels that tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.atomic import check_folder
from nmt.config.types import as_list, flat
from nmt.errors import UserError, command, printable
from nmt.lines import read_lines
from nmt.run.paths import TUNED, find_runs, load_config, runs_under, score_files
from nmt.run.scores import read_scores

# The place and the reports of a run. Runs that differ only in these are the same experiment.
NOT_SETTINGS = (
    "seed",
    "name",
    "run_dir",
    "log_dir",
    "logger",
    "metrics",
    "choices",
    "callbacks.alignments",  # pictures
    "trainer.enable_progress_bar",
    "trainer.log_every_n_steps",
)
# Keys of metrics.json for the weights that made the hypotheses, with their defaults
WEIGHTS = {"checkpoint": "best", "average": None, "int8": False}
# Groups with choices that define a run. Other groups, as experiment, only set these.
NAMING_GROUPS = (
    *("data", "model", "attention", "wiring", "normalizer", "content"),
    *("optimizer", "scheduler", "averaging"),
)


@dataclass(frozen=True)
class ScoredRun:
    """The scores and translations of one split, with the configuration of the run that made them.

    choices: the file that each config group was set to.
    """

    directory: Path
    config: DictConfig
    choices: dict[str, str]
    metrics: dict[str, Any]
    hypotheses: list[str]

    @property
    def settings(self) -> dict[str, str]:
        """The settings that define the run, flat, without the seed and the place: `{"model.hidden_size": "256"}`.

        The decoding is that of the hypotheses; it may differ from the decoding of the training. A length penalty that
        each run chose by itself is one setting.
        """
        run_dir = str(self.config.get("run_dir") or "")
        tree: Any = OmegaConf.to_container(self.config, resolve=True)
        stored = tree.get("decoding") or {}
        decoding = tree["decoding"] = dict(self.metrics.get("decoding", stored))
        if self.choices.get("decoding") == TUNED and decoding.get("length_alpha") == stored.get(
            "length_alpha"
        ):
            decoding["length_alpha"] = TUNED
        tree |= {key: self.metrics.get(key, usual) for key, usual in WEIGHTS.items()}
        if members := self.metrics.get("ensemble"):
            tree["ensemble"] = "+".join(Path(each).name for each in members)
        return {
            printable(key): printable(str(_plain(value)).removeprefix(run_dir))
            for key, value in flat(tree).items()
            if not f"{key}.".startswith(tuple(f"{left_out}." for left_out in NOT_SETTINGS))
            and not key.endswith("cache_dir")
            and ".metrics." not in key
        }

    @property
    def seed(self) -> str:
        return printable(str(self.config.get("seed")))


def _plain(value: Any) -> Any:
    """3.0, as typed or as a default, is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_run(directory: Path, split: str) -> ScoredRun:
    """Read the scores and hypotheses of a run directory. Raises UserError naming the missing file and the remedy."""
    advice = how_to_score(directory, f"split={split}")
    metrics_file, hypotheses_file = score_files(directory, split)
    if not runs_under(directory):
        raise UserError(f"{directory} holds no run")
    check_folder(directory)
    for file in (metrics_file, hypotheses_file):
        if not file.is_file():
            other = {"test": "val"}.get(split, "test")
            if all(each.is_file() for each in score_files(directory, other)):
                advice = f"it was scored on {other}: give split={other}"
            raise UserError(f"{directory} has no {file.name}; {advice}")
    try:
        scores = read_scores(metrics_file)
    except UserError as error:
        raise UserError(f"{error}; {advice}") from error
    hypotheses = list(read_lines(hypotheses_file))
    config = load_config(_trained_in(directory, scores))
    choices = {printable(group): printable(name) for group, name in (config.get("choices") or {}).items()}
    return ScoredRun(directory, config, choices, scores, hypotheses)


def read_runs(names: Any, split: str) -> tuple[list[ScoredRun], list[str]]:
    """Read the runs of `find_runs`. Also returns the faults of skipped folders: they are no scored runs, and were not
    named.

    Raises UserError for a folder that was named, if no run is left, and if two runs were scored on other sentences.
    """
    named = [Path(each) for each in as_list(names)]
    runs, faults = [], []
    for directory in find_runs(names):
        try:
            runs.append(read_run(directory, split))
        except UserError as error:
            if directory in named:
                raise
            faults.append(str(error))
    if not runs:
        raise UserError(f"no run is left to compare: {faults[0]}")
    first, *others = runs
    for run in others:
        if run.metrics.get("references") != first.metrics.get("references"):
            raise UserError(
                f"{run.directory} was scored on other sentences than {first.directory}: their scores do not compare"
            )
    return runs, faults


def _trained_in(directory: Path, scores: Mapping[str, Any]) -> Path:
    """The run directory of scores, which may stand elsewhere (`output`); the first run of an ensemble."""
    if (directory / "config.yaml").is_file():
        return directory
    made_by = scores.get("ensemble") or [scores.get("run")]
    if isinstance(made_by[0], str) and (directory / made_by[0] / "config.yaml").is_file():
        return directory / made_by[0]  # an absolute path stays as it is
    lost = (
        "its metrics.json does not say which run it scores"
        if made_by[0] is None
        else f"{made_by[0]} is no run"
    )
    raise UserError(f"{directory} has no config.yaml, and {lost}; {how_to_score(directory)}")


def how_to_score(directory: Path, *settings: str) -> str:
    """Advice to score a run directory, or to score again if the scores stand apart from their run."""
    apart = not (directory / "config.yaml").is_file()
    where = ["run=RUN_DIR", f"output={directory}"] if apart else [f"run={directory}"]
    return f"score it with: {command('evaluate', [*where, *settings])}"


def group_runs(labels: Sequence[str], seeds: Sequence[str]) -> dict[str, list[int]]:
    """Systems: indices of the runs with the same label of `label_systems`. Of a repeated seed the last run counts."""
    systems: dict[str, dict[str, int]] = {label: {} for label in labels}
    for index, (label, seed) in enumerate(zip(labels, seeds, strict=True)):
        systems[label][seed] = index
    return {label: list(by_seed.values()) for label, by_seed in systems.items()}


def label_runs(runs: Sequence[ScoredRun]) -> list[str]:
    """A label per run: the fewest settings that tell the runs apart, the seed last, else the directories.

    Prefers a config group's choice (`attention=bahdanau`) to a setting (`lr=0.002`).
    """
    experiments = label_experiments(runs)
    repeated = {label for label in experiments if experiments.count(label) > 1}
    labels = [
        f"{label} seed={run.seed}".strip() if label in repeated else label
        for label, run in zip(experiments, runs, strict=True)
    ]
    names = [printable(run.directory.name) for run in runs]
    paths = [printable(str(run.directory)) for run in runs]
    return next(found for found in (labels, names, paths) if len(set(found)) == len(runs) and all(found))


def label_systems(runs: Sequence[ScoredRun]) -> list[str]:
    """A label per run, the same for runs that differ only in their seed: `label_experiments`, else a directory."""
    settings = [tuple(sorted(run.settings.items())) for run in runs]
    first = [settings.index(each) for each in settings]
    experiments = label_experiments(runs)
    labels = [experiments[index] or "all" for index in first]
    if len(set(labels)) < len(set(first)):
        return [printable(str(runs[index].directory)) for index in first]
    return labels


def label_experiments(runs: Sequence[ScoredRun]) -> list[str]:
    """`label_runs` without the seed; "" if the runs differ in nothing else."""
    settings = [run.settings for run in runs]
    # If all choices are known, a run does not use a group that it lacks.
    known = all(run.choices for run in runs)
    groups = [group for group in NAMING_GROUPS if known and any(group in run.choices for run in runs)]
    described = [
        {
            **{group: run.choices[group] for group in groups if group in run.choices},
            **{key: value for key, value in each.items() if key.endswith("_target_")},
            **each,
        }
        for run, each in zip(runs, settings, strict=True)
    ]
    keys = _telling_keys(described, list(dict.fromkeys(key for each in described for key in each)))
    return [_describe(each, keys) for each in described]


def _telling_keys(described: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """Keys that tell the runs apart. The next key is the key that splits the runs most, the earlier of equals."""

    def num_kinds(chosen: Sequence[str]) -> int:
        return len({tuple(settings.get(key) for key in chosen) for settings in described})

    telling: list[str] = []
    while True:
        best = max(keys, key=lambda key: num_kinds([*telling, key]), default=None)
        if best is None or num_kinds([*telling, best]) == num_kinds(telling):
            return telling
        telling.append(best)


def _describe(settings: Mapping[str, str], keys: Sequence[str]) -> str:
    parts = []
    for key in keys:
        names = key.removesuffix("._target_").split(".")
        short = names[-1] if sum(other.split(".")[-1] == names[-1] for other in keys) < 2 else ".".join(names)
        if key in NAMING_GROUPS and key not in settings and "model" in settings:
            continue  # a group that this model does not use: the Transformer has a fixed attention
        value = settings.get(key, "–")
        parts.append(f"{short}={value.rpartition('.')[2] if key.endswith('_target_') else value}")
    return " ".join(parts) or (f"model={settings['model']}" if keys else "")
