"""A comparison as Markdown tables, whose columns line up in a terminal too, as a LaTeX table, and as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.comparison.figures import COSTS, Comparison, Row
from nmt.errors import UserError
from nmt.files import markdown
from nmt.metrics import LABELS

NAMES = {
    "aer": "AER",
    "num_parameters": "parameters",
    "seconds": "training s",
    "tokens_per_second": "tokens/s",
}
LOWER_IS_BETTER = ("ter", "aer")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{each: f"\\{each}" for each in "{}$&#_%"},
}


def choose_columns(rows: Sequence[Row], metrics: Sequence[str], chosen: Sequence[str] | None) -> list[str]:
    """The columns of `score_table`: those chosen, else all that a run has. Raises UserError for one that none has."""
    more = dict.fromkeys(key for row in rows for key in row if key.startswith(("attention/", "importance/")))
    known = [*metrics, *(key for key in NAMES if any(key in row for row in rows)), *more]
    if unknown := [each for each in chosen or () if each not in known]:
        raise UserError(f"columns: no run has {unknown[0]}: choose from {', '.join(known)}")
    return known if chosen is None else list(chosen)


def score_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A line for each run as an aligned Markdown table: metrics with interval and p-values against one run."""
    header = ["run"]
    for name in columns:
        label = markdown(label_of(name))
        header += [label, f"{label} p (run)"] if f"{name}_ci" in rows[0] else [label]
    lines = [header]
    for row in rows:
        line = [markdown(row["run"])]
        for name in columns:
            line.append(_number(name, row.get(name)))
            if f"{name}_ci" in row:
                line[-1] += f" ± {row[f'{name}_ci']:.2f}"
                line.append(_p_values(row, name))
        lines.append(line)
    return aligned(lines)


def label_of(name: str) -> str:
    """A column's name as it is written in print."""
    return NAMES.get(name) or LABELS.get(name) or (name.replace("/", " ") if "/" in name else name.upper())


def score_note(first: str) -> str:
    """What the columns of `score_table` mean."""
    return (
        f"± is half the 95 % bootstrap interval over sentences. p (run): how often chance alone makes such a"
        f" difference from the run {markdown(first)}, by paired bootstrap / paired approximate randomisation over"
        " sentences; it is of these two runs and not of their settings, and not corrected for the number of runs."
        " TER and AER: lower is better."
    )


def system_table(averages: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Mean ± standard deviation over the runs of each system as an aligned Markdown table."""
    lines = [["mean ± standard deviation", "runs", *(markdown(label_of(name)) for name in columns)]]
    for entry in averages:
        cells = (_mean(name, entry.get(name), "±") for name in columns)
        lines.append([markdown(entry["run"]), str(entry["num_runs"]), *cells])
    return aligned(lines)


def difference_tables(comparison: Comparison, columns: Sequence[str]) -> str:
    """Differences between systems with corrected p-values, and a note: a table of differences from the baseline, or for
    each metric a matrix of row minus column."""
    systems, base, found = list(comparison.groups), comparison.baseline, comparison.differences
    cells: dict[tuple[str, str, str], str] = {}
    for each in found:
        p = f"± {each['ci']:.2f} (p {_p_value(each['p_holm'])}{'†' if each['of'] == 'runs' else ''})"
        cells[each["metric"], each["system"], each["other"]] = f"{each['difference']:+.2f} {p}"
        cells[each["metric"], each["other"], each["system"]] = f"{-each['difference']:+.2f} {p}"
    labels = {
        name: markdown(label_of(name)) for name in columns if name in {each["metric"] for each in found}
    }
    if base is not None:
        lines = [[f"difference from {markdown(base)}", *labels.values()]]
        others = (each for each in systems if each != base)
        lines += [[markdown(ours), *(cells[name, ours, base] for name in labels)] for ours in others]
        sections = [aligned(lines)]
    else:
        sections = []
        for name, label in labels.items():
            lines = [[f"{label}: row − column", *map(str, range(1, len(systems) + 1))]]
            for number, ours in enumerate(systems, start=1):
                matrix = (cells.get((name, ours, theirs), "") for theirs in systems)
                lines.append([f"{number} {markdown(ours)}", *matrix])
            sections.append(aligned(lines))
    number = len(found) // len({each["metric"] for each in found})
    corrected = f", corrected for the {number} comparisons of each metric (Holm 1979)" if number > 1 else ""
    note = (
        "± is half the 95 % interval of a difference between systems. A system is the runs that differ in their seed"
        f" alone. p: a t-test over seeds and sentences (Obuchowski and Rockette 1995, Hillis 2014){corrected}."
    )
    if any(each["of"] == "runs" for each in found):
        note += (
            " † With one run of a system nothing says how seeds vary: a paired bootstrap over sentences, of these runs"
            " and not of their settings."
        )
    return "\n\n".join([*sections, note])


def length_table(heading: str, rows: Sequence[Row], lengths: Mapping[str, Any]) -> str:
    """Scores by source length, as of `score_by_length`, as an aligned Markdown table, a line a run."""
    lines = [[heading, *(f"{bucket} {lengths['units']}" for bucket in lengths["buckets"])]]
    lines.append(["sentences", *map(str, lengths["num_sentences"])])
    for row, scores in zip(rows, lengths["scores"], strict=True):
        lines.append([markdown(row["run"]), *(f"{score:.2f}" for score in scores)])
    return aligned(lines)


def signature_list(rows: Sequence[Row]) -> str:
    """sacreBLEU's signature of each metric, which the rows share, as a Markdown list."""
    keys = [key for key in rows[0] if key.endswith("_signature")]
    return "\n".join(
        f"- {markdown(label_of(key.removesuffix('_signature')))}: `{rows[0][key]}`" for key in keys
    )


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
    columns = dict.fromkeys(_cell(key) for row in rows for key in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({_cell(key): _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet does not compute: text that begins as a formula gets an apostrophe."""
    return (
        f"'{value}" if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) else value
    )


def to_latex(averages: Sequence[Mapping[str, Any]], columns: Sequence[str], signatures: str) -> str:
    """`system_table` as a LaTeX table with the rules of booktabs; the best mean of each score is bold."""
    scores = [name for name in columns if name not in COSTS and "/" not in name]
    best = {}
    for name in scores:
        means = [_number(name, entry[name]["mean"]) for entry in averages if name in entry]
        best[name] = (min if name in LOWER_IS_BETTER else max)(means, key=float, default=None)
    lines = [
        *(f"% {line}" for line in ["\\usepackage{booktabs}", *signatures.splitlines()]),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        " & ".join(["", *(latex(label_of(name)) for name in columns)]) + r" \\",
        "\\midrule",
    ]
    for entry in averages:
        cells = []
        for name in columns:
            mean, *std = _mean(name, entry.get(name), r"$\pm$").split(" ")
            bold = mean == best.get(name)
            cells.append(" ".join([rf"\textbf{{{mean}}}" if bold else mean, *std]))
        lines.append(" & ".join([latex(entry["run"]), *cells]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(LATEX.get(each, each) for each in text)


def _number(name: str, value: float | None) -> str:
    digits = ",.0f" if name in COSTS else ".3f" if name == "aer" or "/" in name else ".2f"
    return "–" if value is None else f"{value:{digits}}"


def _mean(name: str, value: Mapping[str, Any] | None, sign: str) -> str:
    if value is None:
        return "–"
    mean = _number(name, value["mean"])
    return mean if value["std"] is None else f"{mean} {sign} {_number(name, value['std'])}"


def _p_values(row: Row, name: str) -> str:
    values = (row[f"{name}_p_bootstrap"], row[f"{name}_p_randomization"])
    return "–" if None in values else " / ".join(_p_value(value) for value in values)


def _p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
