"""Format a comparison as Markdown tables with aligned columns, as a LaTeX table, and as CSV."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nmt.atomic import escape_markdown
from nmt.comparison.figures import COSTS, Comparison, Row, figures_of
from nmt.comparison.runs import ScoredRun
from nmt.errors import UserError, printable
from nmt.metrics import label

NAMES = {
    "aer": "AER",
    "num_parameters": "parameters",
    "seconds": "training s",
    "tokens_per_second": "tokens/s",
}
LATEX = {each: f"\\{each}" for each in "{}$&#_%"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}


def choose_columns(
    runs: Sequence[ScoredRun], metrics: Sequence[str], chosen: Sequence[str] | None
) -> list[str]:
    """The chosen columns, else all that a run has. Raises UserError for a column that no run has."""
    known = dict.fromkeys(metrics)
    for run in runs:
        known |= dict.fromkeys(key for key in figures_of(run) if key in NAMES or "/" in key)
    if unknown := [each for each in chosen or () if each not in known]:
        raise UserError(f"columns: no run has {unknown[0]}: choose from {', '.join(known)}")
    return list(known if chosen is None else chosen)


def headings(columns: Sequence[str], row: Row) -> dict[str, str]:
    """The printed headings of columns."""
    return {
        name: label(name, row[f"{name}_signature"])
        if f"{name}_signature" in row
        else NAMES.get(name, name.replace("/", " "))
        for name in columns
    }


def score_table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """A line per run as an aligned Markdown table: metrics with interval, and p-values against a given run."""
    header = ["run"]
    for name, heading in columns.items():
        header += [escape_markdown(heading)]
        header += [f"{escape_markdown(heading)} p (run)"] if f"{name}_ci" in rows[0] else []
    lines = [header]
    for row in rows:
        line = [escape_markdown(row["run"])]
        for name in columns:
            line.append(_number(name, row.get(name)))
            if f"{name}_ci" in row:
                line[-1] += f" ± {row[f'{name}_ci']:.2f}"
                line.append(_p_values(row, name))
        lines.append(line)
    return align_columns(lines)


def score_note(first: str) -> str:
    """The explanation of the columns of `score_table`."""
    return (
        f"± is half the 95 % bootstrap interval over sentences. p (run): how often chance alone makes such a"
        f" difference from the run {escape_markdown(first)}, by paired bootstrap / paired approximate randomisation"
        " over sentences; it is of these two runs and not of their settings, and not corrected for the number of runs."
        " TER and AER: lower is better."
    )


def system_table(averages: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Mean ± standard deviation over the runs of each system as an aligned Markdown table."""
    lines = [["mean ± standard deviation", "runs", *map(escape_markdown, columns.values())]]
    for entry in averages:
        cells = (_mean(name, entry.get(name), "±") for name in columns)
        lines.append([escape_markdown(entry["run"]), str(entry["num_runs"]), *cells])
    return align_columns(lines)


def difference_tables(comparison: Comparison, columns: Mapping[str, str]) -> str:
    """Differences between systems with corrected p-values, and a note.

    With a baseline, it is a table of the differences from the baseline; else a matrix of row minus column per metric.
    """
    systems, base, found = list(comparison.groups), comparison.baseline, comparison.differences
    metrics = {each["metric"] for each in found}
    headings = {name: escape_markdown(heading) for name, heading in columns.items() if name in metrics}
    cells: dict[tuple[str, str, str], str] = {}
    for each in found:
        name, ours, theirs, difference = (each[key] for key in ("metric", "system", "other", "difference"))
        p = f"{_p_value(each['p_holm'])}{'†' if each['of'] == 'runs' else ''}"
        interval = "" if base is None else f" ± {each['ci']:.2f}"
        cells[name, ours, theirs] = f"{difference:+.2f}{interval} ({p})"
        cells[name, theirs, ours] = f"{-difference:+.2f}{interval} ({p})"
    sections = []
    if base is not None:
        lines = [[f"difference from {escape_markdown(base)} (p)", *headings.values()]]
        others = (each for each in systems if each != base)
        lines += [[escape_markdown(ours), *(cells[name, ours, base] for name in headings)] for ours in others]
        sections.append(align_columns(lines))
    for name, heading in headings.items() if base is None else ():
        lines = [[f"{heading}: row − column (p)", *map(str, range(1, len(systems) + 1))]]
        for number, ours in enumerate(systems, start=1):
            matrix = (cells.get((name, ours, theirs), "") for theirs in systems)
            lines.append([f"{number} {escape_markdown(ours)}", *matrix])
        sections.append(align_columns(lines))
    number = len(found) // len(metrics)
    corrected = f", corrected for the {number} comparisons of each metric (Holm 1979)" if number > 1 else ""
    note = (
        "A system is the runs that differ in their seed alone. p: a t-test over seeds and sentences (Obuchowski and"
        f" Rockette 1995, Hillis 2014){corrected}."
    )
    if base is not None:
        note += " ± is half the 95 % interval."
    if any(each["of"] == "runs" for each in found):
        note += (
            " † With one run of a system nothing says how seeds vary: a paired bootstrap over sentences, of these runs"
            " and not of their settings."
        )
    return "\n\n".join([*sections, note])


def length_table(heading: str, rows: Sequence[Row], lengths: Mapping[str, Any]) -> str:
    """Scores by source length, from `score_by_length`, as an aligned Markdown table, a line per run."""
    lines = [[heading, *(f"{bucket} {lengths['units']}" for bucket in lengths["buckets"])]]
    lines.append(["sentences", *map(str, lengths["num_sentences"])])
    for row, scores in zip(rows, lengths["scores"], strict=True):
        lines.append([escape_markdown(row["run"]), *(f"{score:.2f}" for score in scores)])
    return align_columns(lines)


def signature_list(row: Row, columns: Mapping[str, str]) -> str:
    """sacreBLEU's signature of each metric, shared by all rows, as a Markdown list."""
    signatures = {heading: row.get(f"{name}_signature") for name, heading in columns.items()}
    return "\n".join(f"- {escape_markdown(name)}: `{each}`" for name, each in signatures.items() if each)


def align_columns(lines: Sequence[Sequence[str]]) -> str:
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
    """The rows as CSV with unrounded figures, a column per key; empty if a run has no figure."""
    columns = dict.fromkeys(_cell(key) for row in rows for key in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({_cell(key): _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet does not compute: text that begins as a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def to_latex(
    averages: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    signatures: str,
    *,
    lower: Collection[str],
    differences: Sequence[Mapping[str, Any]] = (),
    baseline: str | None = None,
) -> str:
    """`system_table` as a LaTeX table with the rules of booktabs.

    The best mean of each score is bold, and so are those that a test does not tell apart from it (p >= 0.05). With a
    baseline, only the best is bold, and a star marks a difference from the baseline (p < 0.05). lower: the scores of
    which the lowest is best.
    """
    p_values = {(each["metric"], each["system"], each["other"]): each["p_holm"] for each in differences}
    p_values |= {(name, other, ours): p for (name, ours, other), p in p_values.items()}
    bold, starred = set[tuple[str, str]](), set[tuple[str, str]]()
    for name in columns:
        if name in COSTS or "/" in name:
            continue
        means = {each["run"]: float(_number(name, each[name]["mean"])) for each in averages if name in each}
        if not means:
            continue
        most = (min if name in lower else max)(means.values())
        best = [run for run, mean in means.items() if mean == most]
        for run in means:
            against = [p_values.get((name, run, each), 0.0) for each in best if baseline is None]
            if run in best or max(against, default=0.0) >= 0.05:
                bold.add((name, run))
            if p_values.get((name, run, str(baseline)), 1.0) < 0.05:
                starred.add((name, run))
    marks = "bold: the best, and those that no test tells apart from it (p >= 0.05)"
    if baseline is not None:
        marks = f"bold: the best; *: differs from {baseline} (p < 0.05)"
    lines = [
        *(f"% {line}" for line in ["\\usepackage{booktabs}", *signatures.splitlines(), marks]),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        " & ".join(["", *map(latex, columns.values())]) + r" \\",
        "\\midrule",
    ]
    for entry in averages:
        cells = []
        for name in columns:
            mean, *std = _mean(name, entry.get(name), r"$\pm$").split(" ")
            mean = rf"\textbf{{{mean}}}" if (name, entry["run"]) in bold else mean
            cells.append(" ".join([mean + "$^{*}$" * ((name, entry["run"]) in starred), *std]))
        lines.append(" & ".join([latex(entry["run"]), *cells]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """The text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(each, each) for each in text)


def _number(name: str, value: float | None) -> str:
    digits = ",.0f" if name in COSTS else ".3f" if name == "aer" or "/" in name else ".2f"
    return "–" if value is None else f"{value:{digits}}"


def _mean(name: str, value: Mapping[str, Any] | None, sign: str) -> str:
    if value is None:
        return "–"
    mean = _number(name, value["mean"])
    return mean if not value["std"] else f"{mean} {sign} {_number(name, value['std'])}"


def _p_values(row: Row, name: str) -> str:
    values = (row[f"{name}_p_bootstrap"], row[f"{name}_p_randomization"])
    return "–" if None in values else " / ".join(_p_value(value) for value in values)


def _p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
