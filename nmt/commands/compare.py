"""Compare scored runs: scores with significance, cost, means over seeds, and BLEU by sentence length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nmt import plotting
from nmt.comparison import figures, tables
from nmt.comparison.runs import ScoredRun, check_digests, read_run, read_text
from nmt.data.lines import read_lines
from nmt.files import json_text, write_together
from nmt.run.building import make_scorers, reads_lowercase
from nmt.run.checks import check_case
from nmt.run.files import find_runs


def compare(cfg: DictConfig) -> dict[str, Any]:
    """Print the comparison; with `output`, write it there as Markdown, CSV, JSON and plots. Returns the JSON."""
    runs = [read_run(directory, cfg.split) for directory in find_runs(cfg.runs)]
    check_digests(runs)
    if cfg.refs is None:
        sources, references = read_text(runs[0], cfg.split, cfg.trusted)
    else:
        sources, references = None, list(read_lines(Path(cfg.refs)))
    lowercase = any(reads_lowercase(run.config.get("data")) for run in runs)  # one is, so all are scored so
    metrics = make_scorers(cfg, lowercase=lowercase)
    check_case(metrics, lowercase=lowercase)
    systems = {file: list(read_lines(Path(file))) for file in cfg.systems}
    rows = figures.compare(
        runs,
        references,
        metrics,
        num_bootstrap=cfg.num_bootstrap,
        num_trials=cfg.num_trials,
        systems=systems,
    )
    result: dict[str, Any] = {"split": cfg.split, "num_sentences": len(references), "runs": rows}
    sections = [tables.score_table(rows, list(metrics)), tables.NOTE, tables.signature_list(rows)]
    averaged = [*metrics, "aer"]
    if averages := figures.average_over_seeds(runs, rows, averaged):
        result["seeds"] = averages
        sections.append(tables.seed_table(averages, averaged))
    if "bleu" in metrics and sources is not None:  # with refs=FILE nothing says how long the sources are
        texts = [*(run.hypotheses for run in runs), *systems.values()]
        lengths = figures.score_by_length(
            texts, sources, references, metrics["bleu"], bounds=cfg.length_bounds
        )
        result["bleu_by_length"] = lengths
        sections.append(tables.length_table("BLEU by source length", rows, lengths))
    report = "\n\n".join(sections)
    print(f"{cfg.split}, {len(references)} sentences\n\n{report}")
    if cfg.output is not None:
        write(Path(cfg.output), report, result, runs)
    return result


def write(output: Path, report: str, result: dict[str, Any], runs: Sequence[ScoredRun]) -> None:
    """Write comparison.md, .csv and .json, and the plots there are figures for, into the directory `output`."""
    rows = result["runs"]
    plots = {}
    if lengths := result.get("bleu_by_length"):
        scores = {row["run"]: values for row, values in zip(rows, lengths["scores"], strict=True)}
        plots["bleu_by_length"] = plotting.bleu_by_length(lengths["buckets"], scores)
    curves = {
        row["run"]: figures.learning_curve(run.directory, "val/bleu")
        for row, run in zip(rows[: len(runs)], runs, strict=True)
    }
    if drawn := {label: curve for label, curve in curves.items() if curve is not None}:
        plots["learning_curves"] = plotting.learning_curves(drawn, ylabel="val/bleu")
    sections = [f"# {result['split']}, {result['num_sentences']} sentences", report]
    sections += [f"![{name}]({name}.png)" for name in plots]
    for name, figure in plots.items():
        plotting.to_png(figure, output / f"{name}.png")
    write_together(
        {
            output / "comparison.csv": tables.to_csv(rows),
            output / "comparison.json": json_text(result),
            output / "comparison.md": "\n\n".join(sections) + "\n",
        }
    )


main = compare
