"""Line plots: BLEU by sentence length, and learning curves."""

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from nmt.plotting.fonts import font_families

WIDTH, HEIGHT, LEGEND_LINE = 6.4, 4.0, 0.22  # inches
LEGEND_WIDTH = 80  # characters
DPI = 150
MARKS, DASHES = "os^Dv", ("-", "--", "-.", ":")
Curve = tuple[Sequence[float], Sequence[float]]  # x and y


def bleu_by_length(
    buckets: Sequence[str],
    systems: Mapping[str, Sequence[Sequence[float]]],
    num_sentences: Sequence[int],
    units: str = "words",
) -> Figure:
    """BLEU of the runs of all systems by sentence length (as in Bahdanau et al. 2015, figure 2).

    buckets: labels of lengths in `units`, as "1-10", from short to long. systems: the scores of runs by bucket, NaN for
    a bucket without sentences, which leaves a gap.
    """
    positions = range(len(buckets))
    curves = {name: [(positions, scores) for scores in runs] for name, runs in systems.items()}
    figure, axes = _lines(curves, "BLEU")
    sizes = [f"{bucket}\n({number:,})" for bucket, number in zip(buckets, num_sentences, strict=True)]
    axes.set_xticks(positions, sizes)
    axes.set_xlabel(f"sentence length, {units} (number of sentences)")
    axes.set_ylim(bottom=0)
    return figure


def learning_curves(systems: Mapping[str, Sequence[Curve]], *, ylabel: str, xlabel: str = "step") -> Figure:
    """Curves (steps, values) of the runs of all systems. xlabel: label of the x axis, if it is not steps.

    Whole numbers on the x axis have whole numbers as marks.
    """
    figure, axes = _lines(systems, ylabel)
    if all(float(step).is_integer() for curves in systems.values() for steps, _ in curves for step in steps):
        axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(xlabel)
    return figure


def _lines(systems: Mapping[str, Sequence[Curve]], ylabel: str) -> tuple[Figure, Axes]:
    """Draw the curve of every system; for several runs, their mean, a band of ± a standard deviation, and thin lines.

    The position of a system determines its colour.
    """
    # The legend is below the axes: it covers no line, and has room for names of any length.
    figure = Figure(dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines: dict[str, Line2D] = {}
    for number, (name, curves) in enumerate(systems.items()):
        if len(curves) == 1:
            lines[name] = _plot(axes, number, *curves[0])
        elif curves:
            steps, mean, std = _mean(curves)
            line = _plot(axes, number, steps, mean.tolist())
            axes.fill_between(steps, mean - std, mean + std, color=line.get_color(), alpha=0.2, linewidth=0)
            for curve in curves:
                axes.plot(*curve, color=line.get_color(), linewidth=0.5, alpha=0.6)
            lines[f"{name}, mean ± standard deviation of {len(curves)} runs"] = line
    axes.set_ylabel(ylabel)
    _style_axes(axes)
    names = [fill(name, LEGEND_WIDTH) for name in lines]
    figure.set_size_inches(WIDTH, HEIGHT + LEGEND_LINE * len("\n".join(names).splitlines()))
    legend = figure.legend(
        list(lines.values()), names, loc="outside lower left", fontsize=9, frameon=False, handlelength=4
    )
    for text in legend.get_texts():
        text.set(parse_math=False, fontfamily=font_families())
    return figure, axes


def _mean(curves: Sequence[Curve]) -> tuple[list[float], NDArray[np.float64], NDArray[np.float64]]:
    """The steps that all curves reach, with mean and sample standard deviation. Curves are linear between steps."""
    start, end = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    reached = sorted({step for steps, _ in curves for step in steps if start <= step <= end})
    values = np.array([np.interp(reached, *curve) for curve in curves])
    return reached, values.mean(axis=0), values.std(axis=0, ddof=1)


def _plot(axes: Axes, number: int, xs: Sequence[float], ys: Sequence[float]) -> Line2D:
    """Draw a curve. `number` determines its colour, dashes and marks."""
    [line] = axes.plot(
        xs,
        ys,
        color=f"C{number % 10}",
        linestyle=DASHES[number % len(DASHES)],
        marker=MARKS[number % len(MARKS)],
        markersize=4,
    )
    return line


def _style_axes(axes: Axes) -> None:
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
