"""Line plots: BLEU by sentence length and learning curves of several runs, and the growth of costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nmt.plotting.fonts import font_families

WIDTH, HEIGHT, LEGEND_LINE = 6.4, 4.0, 0.22  # inches
PANEL_WIDTH, PANEL_HEIGHT = 4.4, 3.4
DPI = 150
MARKS, DASHES = "os^Dv", ("-", "--", "-.", ":")


def bleu_by_length(buckets: Sequence[str], runs: Mapping[str, Sequence[float]]) -> Figure:
    """BLEU of each run for each bucket of sentence lengths, in words (in the manner of Bahdanau et al. 2015, figure 2).

    `buckets` are labels such as "1-10", from short to long; NaN is a bucket without sentences and leaves a gap.
    """
    positions = range(len(buckets))
    figure, axes = _lines({name: (positions, values) for name, values in runs.items()}, "BLEU")
    axes.set_xticks(positions, buckets)
    axes.set_xlabel("sentence length, words")
    axes.set_ylim(bottom=0)
    return figure


def learning_curves(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ylabel: str, xlabel: str = "step"
) -> Figure:
    """(steps, values) of each run, or what xlabel says in place of steps."""
    figure, axes = _lines(runs, ylabel)
    axes.set_xlabel(xlabel)
    return figure


def growth(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> Figure:
    """Costs in panels, two in a row: the curves (value, cost) of each by their names. All axes are logarithmic.

    A straight line is a power law; where its slope changes, something else begins to cost.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(columns * PANEL_WIDTH, rows * PANEL_HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (label, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place, xscale="log", yscale="log", xlabel=label)
        for number, (name, points) in enumerate(curves.items()):
            _plot(axes, number, [x for x, _ in points], [y for _, y in points], label=name)
        values = sorted({x for points in curves.values() for x, _ in points})
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.set_xticks([], minor=True)
        _plain(axes)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, frameon=False, handlelength=3)
    return figure


def _lines(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], ylabel: str) -> tuple[Figure, Axes]:
    # The legend stands below, where it covers no line, and names of any length have room.
    figure = Figure(figsize=(WIDTH, HEIGHT + LEGEND_LINE * len(runs)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines = [_plot(axes, number, xs, ys) for number, (xs, ys) in enumerate(runs.values())]
    axes.set_ylabel(ylabel)
    _plain(axes)
    legend = figure.legend(
        lines, list(runs), loc="outside lower left", fontsize=9, frameon=False, handlelength=4
    )
    for text in legend.get_texts():
        text.set(parse_math=False, fontfamily=font_families())
    return figure, axes


def _plot(axes: Axes, number: int, xs: Sequence[float], ys: Sequence[float], **more: Any) -> Line2D:
    """The curve of this number, which its colour, dashes and marks follow from."""
    [line] = axes.plot(
        xs,
        ys,
        color=f"C{number % 10}",
        linestyle=DASHES[number % len(DASHES)],
        marker=MARKS[number % len(MARKS)],
        markersize=4,
        **more,
    )
    return line


def _plain(axes: Axes) -> None:
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
