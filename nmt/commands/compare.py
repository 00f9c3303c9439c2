"""Compare scored runs: scores with significance, cost, means over seeds, and BLEU by sentence length."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nmt import plotting
from nmt.analysis.faithfulness import faithfulness_plot, faithfulness_rows, read_faithfulness
from nmt.atomic import json_text, write_together
from nmt.comparison import figures, tables
from nmt.comparison.runs import ScoredRun, read_runs
from nmt.config.build import make_scorers, reads_lowercase
from nmt.config.types import as_list
from nmt.data.corpus import read_references
from nmt.errors import printable
from nmt.lines import read_lines
from nmt.metrics import best_of
from nmt.run.limits import check_case

log = logging.getLogger(__name__)


def compare(cfg: DictConfig) -> dict[str, Any]:
    """Print and return the comparison; with `output`, write it there as Markdown, CSV, LaTeX, JSON and plots."""
    runs, faults = read_runs(cfg.runs, cfg.split)
    for fault in faults:
        log.warning("skipped: %s", printable(fault))
    lowercase = any(reads_lowercase(run.config.get("data")) for run in runs)  # for the scores of all runs
    metrics = {printable(name): each for name, each in make_scorers(cfg, lowercase=lowercase).items()}
    check_case(metrics, lowercase=lowercase)
    chosen = tables.choose_columns(runs, list(metrics), cfg.columns)
    systems = {file: list(read_lines(Path(file))) for file in cfg.systems}
    if cfg.refs is None:
        sources, references = figures.read_scored_text(runs[0], cfg.split, cfg.trusted)
    else:
        sources, references = None, read_references(map(Path, as_list(cfg.refs)), len(runs[0].hypotheses))
    comparison = figures.compare_runs(
        runs,
        references,
        metrics,
        num_bootstrap=cfg.num_bootstrap,
        num_trials=cfg.num_trials,
        systems=systems,
        baseline=cfg.baseline,
    )
    rows = comparison.rows
    result: dict[str, Any] = {"split": cfg.split, "num_sentences": len(references[0]), "runs": rows}
    columns = tables.headings(chosen, rows[0])
    averages = figures.average_over_seeds(comparison.groups, rows, [*metrics, *columns])
    scored = {name: each for name, each in columns.items() if cfg.columns or name in (*metrics, "aer")}
    signatures = tables.signature_list(rows[0], columns)
    sections = [tables.score_table(rows, columns), tables.score_note(comparison.first), signatures]
    if seeds := [each for each in averages if each["num_runs"] > 1]:
        result["seeds"] = seeds
        sections.append(tables.system_table(averages, scored))
    if comparison.differences:
        result["differences"] = comparison.differences
    if comparison.differences and metrics.keys() & columns.keys():
        sections.append(tables.difference_tables(comparison, columns))
    if "bleu" in metrics and sources is not None:  # with refs=FILE the source lengths are unknown
        texts = [*(run.hypotheses for run in runs), *systems.values()]
        lengths = figures.score_by_length(
            texts, sources, references, metrics["bleu"], bounds=cfg.length_bounds
        )
        result["bleu_by_length"] = lengths
        sections.append(tables.length_table("BLEU by source length", rows, lengths))
    if explained := read_explanations(rows, runs, cfg.split):
        result["explanations"] = explained
        sections.append(tables.align_columns(faithfulness_rows(explained)))
    report = "\n\n".join(sections)
    print(f"{cfg.split}, {len(references[0])} sentences\n\n{report}")
    if cfg.output is not None:
        lower = ["aer", *(name for name, each in metrics.items() if best_of(each) == "min")]
        table = tables.to_latex(
            averages,
            scored,
            signatures,
            lower=lower,
            differences=comparison.differences,
            baseline=comparison.baseline,
        )
        plots = draw_plots(result, runs, comparison.groups)
        write_comparison(Path(cfg.output), report, table, result, plots, cfg.formats)
    return result


def read_explanations(rows: Sequence[Any], runs: Sequence[ScoredRun], split: str) -> dict[str, Any]:
    """How faithful the explanations of each run are, by its name in the tables; runs without any are left out."""
    found = {str(row["run"]): read_faithfulness(run, split) for row, run in zip(rows, runs, strict=False)}
    return {name: each for name, each in found.items() if each}


def draw_plots(
    result: Mapping[str, Any], runs: Sequence[ScoredRun], groups: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """The plots for which there are numbers, by name. A system has the same colour in all plots."""
    plots = {}
    if lengths := result.get("bleu_by_length"):
        scores = {system: [lengths["scores"][index] for index in group] for system, group in groups.items()}
        plots["bleu_by_length"] = plotting.bleu_by_length(
            lengths["buckets"], scores, lengths["num_sentences"], lengths["units"]
        )
    curves = dict(enumerate(figures.learning_curve(run.directory, "val/bleu") for run in runs))
    if any(curves.values()):
        drawn = {
            system: [curve for index in group if (curve := curves.get(index))]
            for system, group in groups.items()
        }
        plots["learning_curves"] = plotting.learning_curves(drawn, ylabel="val/bleu")
    if explained := result.get("explanations"):
        plots["explanations"] = faithfulness_plot(explained)
    return plots


def write_comparison(
    output: Path,
    report: str,
    table: str,
    result: Mapping[str, Any],
    plots: Mapping[str, Any],
    formats: Sequence[str],
) -> None:
    """Write comparison.md, .csv, .tex and .json, and the plots in each format, into the directory `output`."""
    savers = {"png": plotting.to_png, "svg": plotting.to_svg, "pdf": plotting.to_pdf}
    for name, figure in plots.items():
        for kind in formats:
            savers[kind](figure, output / f"{name}.{kind}")
    sections = [f"# {result['split']}, {result['num_sentences']} sentences", report]
    sections += [f"![{name}]({name}.{formats[0]})" for name in plots]
    write_together(
        {
            output / "comparison.csv": tables.to_csv(result["runs"]),
            output / "comparison.tex": table,
            output / "comparison.json": json_text(result),
            output / "comparison.md": "\n\n".join(sections) + "\n",
        }
    )


main = compare
