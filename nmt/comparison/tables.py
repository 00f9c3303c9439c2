"""A comparison as Markdown tables, whose columns line up in a terminal too, and as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.comparison.figures import Row
from nmt.metrics import LABELS

NOTE = (
    "± is half the 95 % bootstrap interval. p: how often chance alone makes such a difference from the first"
    " run, by paired bootstrap / paired approximate randomisation, not corrected for the number"
    " of runs. TER and AER: lower is better."
)


def score_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The rows as an aligned Markdown table, a line a run; a figure that no run has is left out."""
    figures = [
        ("aer", "AER", ".3f"),
        ("num_parameters", "parameters", ",.0f"),
        ("seconds", "training s", ",.0f"),
        ("tokens_per_second", "tokens/s", ",.0f"),
    ]
    statistics = dict.fromkeys(
        key for row in rows for key in row if key.startswith(("attention/", "importance/"))
    )
    figures += [(key, key.replace("/", " "), ".3f") for key in statistics]
    figures = [figure for figure in figures if any(figure[0] in row for row in rows)]
    header = ["run"]
    for name in names:
        header += [label_of(name), f"{label_of(name)} p"]
    lines = [header + [label for _, label, _ in figures]]
    for row in rows:
        line = [row["run"]]
        for name in names:
            line += [f"{row[name]:.2f} ± {row[f'{name}_ci']:.2f}", _p_values(row, name)]
        line += [f"{row[key]:{form}}" if key in row else "–" for key, _, form in figures]
        lines.append(line)
    return aligned(lines)


def label_of(name: str) -> str:
    """A metric's name as it is written in print."""
    return LABELS.get(name, name.upper())


def seed_table(averages: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Mean ± standard deviation over seeds as an aligned Markdown table; AER with three decimals."""
    shown = [name for name in names if any(name in entry for entry in averages)]
    lines = [["mean ± standard deviation", "runs", *(label_of(name) for name in shown)]]
    for entry in averages:
        digits = [".3f" if name == "aer" else ".2f" for name in shown]
        lines.append(
            [
                entry["run"],
                str(entry["num_runs"]),
                *(
                    f"{entry[name]['mean']:{form}} ± {entry[name]['std']:{form}}" if name in entry else "–"
                    for name, form in zip(shown, digits, strict=True)
                ),
            ]
        )
    return aligned(lines)


def length_table(heading: str, rows: Sequence[Row], lengths: Mapping[str, list]) -> str:
    """Scores by source length, as of `score_by_length`, as an aligned Markdown table, a line a run."""
    lines = [[heading, *(f"{bucket} words" for bucket in lengths["buckets"])]]
    lines.append(["sentences", *map(str, lengths["num_sentences"])])
    for row, scores in zip(rows, lengths["scores"], strict=True):
        lines.append([row["run"], *(f"{score:.2f}" for score in scores)])
    return aligned(lines)


def signature_list(rows: Sequence[Row]) -> str:
    """sacreBLEU's signature of each metric, which the rows share, as a Markdown list."""
    keys = [key for key in rows[0] if key.endswith("_signature")]
    return "\n".join(f"- {label_of(key.removesuffix('_signature'))}: `{rows[0][key]}`" for key in keys)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in a terminal: the first to the left, the others to the right."""
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(3, *map(len, column)) for column in zip(*escaped, strict=True)]
    rows = []
    for line in escaped:
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        rows.append(f"| {' | '.join(cells)} |")
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([rows[0], f"| {' | '.join(rule)} |", *rows[1:]])


def to_csv(rows: Sequence[Row]) -> str:
    """The rows with every figure unrounded, one column a key, empty where a run has none."""
    columns = dict.fromkeys(key for row in rows for key in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _p_values(row: Row, name: str) -> str:
    values = (row[f"{name}_p_bootstrap"], row[f"{name}_p_randomization"])
    return "–" if None in values else " / ".join(_p_value(value) for value in values)


def _p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
