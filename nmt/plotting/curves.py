"""Line plots of several runs: BLEU by sentence length, and learning curves."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nmt.plotting.fonts import font_families

WIDTH, HEIGHT, LEGEND_LINE = 6.4, 4.0, 0.22  # inches
DPI = 150
MARKS, DASHES = "os^Dv", ("-", "--", "-.", ":")


def bleu_by_length(buckets: Sequence[str], runs: Mapping[str, Sequence[float]]) -> Figure:
    """BLEU of each run for each bucket of sentence lengths, in words (in the manner of Bahdanau et al. 2015, figure 2).

    `buckets` are labels such as "1-10", from short to long; NaN is a bucket without sentences and leaves a gap.
    Raises ValueError where there are no runs, or a run's values are not as many as the buckets.
    """
    positions = range(len(buckets))
    for name, values in runs.items():
        if len(values) != len(buckets):
            raise ValueError(f"{name} has {len(values)} values but there are {len(buckets)} buckets")
    figure, axes = _lines({name: (positions, values) for name, values in runs.items()}, "BLEU")
    axes.set_xticks(positions, buckets)
    axes.set_xlabel("sentence length, words")
    axes.set_ylim(bottom=0)
    return figure


def learning_curves(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ylabel: str) -> Figure:
    """(steps, values) of each run. Raises ValueError where there are no runs, or not as many values as steps."""
    for name, (steps, values) in runs.items():
        if len(values) != len(steps):
            raise ValueError(f"{name} has {len(values)} values but {len(steps)} steps")
    figure, axes = _lines(runs, ylabel)
    axes.set_xlabel("step")
    return figure


def _lines(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], ylabel: str) -> tuple[Figure, Axes]:
    if not runs:
        raise ValueError("a plot needs a run or more, got 0")
    # The legend stands below, where it covers no line, and names of any length have room.
    figure = Figure(figsize=(WIDTH, HEIGHT + LEGEND_LINE * len(runs)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines = [
        axes.plot(
            xs,
            ys,
            color=f"C{number % 10}",
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKS[number % len(MARKS)],
            markersize=4,
        )[0]
        for number, (xs, ys) in enumerate(runs.values())
    ]
    axes.set_ylabel(ylabel)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    legend = figure.legend(
        lines, list(runs), loc="outside lower left", fontsize=9, frameon=False, handlelength=4
    )
    for text in legend.get_texts():
        text.set(parse_math=False, fontfamily=font_families())
    return figure, axes
