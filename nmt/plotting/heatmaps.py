"""Heatmaps of attention weights of a sentence, as one grid or a grid per layer and head.

White is 0 and dark blue is 1; gold links are outlined. Lengths are in inches, from the top left corner. Sizes follow
from the measured words, so that no label is cut off or covers another. A word of more than `LONGEST_LABEL` characters
is shortened in the middle.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from nmt.alignment import Links
from nmt.plotting.fonts import extent, font_families, log_missing_glyphs
from nmt.plotting.sentence import abbreviate, drawable, weights_array

CELL = 0.42  # side of a cell in `heatmap`; smaller if the sentence is long
LARGEST_CELL_IN_GRID, SMALLEST_CELL_IN_GRID = 0.22, 0.12  # in `head_grid`; words are readable at the smallest
LONGEST_SIDE = 14.0  # of all cells together, unless a cell has the smallest size
MARGIN = 0.12  # around the figure
GAP = 0.15  # between small grids
LABEL_GAP = 0.05  # between a word and the cells
HEADING_GAP = 0.1  # below a heading
ROTATION = 60  # degrees, of the source words
MOST_COLUMNS_WITH_VALUES, SMALLEST_CELL_WITH_VALUES = 14, 0.24
DPI = 100


def heatmap(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    gold: Iterable[tuple[int, int]] | None = None,
) -> Figure:
    """Weights [T, S] as a grid: source along the top, target down the side.

    If there is room, cells have their weight in hundredths. `gold` links (source, target) are outlined. The figure
    grows with the sentence and with its longest words. Raises ValueError if the labels do not fit the weights.
    """
    values = weights_array(weights, source, target)
    cell = min(CELL, LONGEST_SIDE / max(1, *values.shape))
    return _grid([[("", values)]], source, target, title, gold, cell=cell)


def confusion_heatmap(labels: Sequence[str], counts: Any) -> Figure:
    """Confusion matrix with rows divided by their sums. counts [C, C + 1]: labels by outputs, the last no label."""
    table = np.asarray(counts, dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    title = f"rows: {int(table.sum())} references; columns: what was written"
    return heatmap(shares, [*labels, "(none)"], labels, title=title)


def measure_grid(values: Any, name: str) -> Figure:
    """A measure of heads [L, K], as entropy: white is the smallest value, dark blue the largest."""
    table = np.asarray(values, dtype=np.float64)
    num_layers, num_heads = table.shape
    figure = Figure(figsize=(1 + 0.6 * num_heads, 0.8 + 0.4 * num_layers), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.imshow(table, cmap="Blues", aspect="auto")
    dark = table > (table.min() + table.max()) / 2
    for layer, head in np.ndindex(num_layers, num_heads):
        colour = "white" if dark[layer, head] else "0.25"
        axes.text(
            head, layer, f"{table[layer, head]:.2f}", ha="center", va="center", fontsize=8, color=colour
        )
    axes.set(xlabel="head", ylabel="layer", xticks=range(num_heads), yticks=range(num_layers), title=name)
    return figure


def head_grid(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    gold: Iterable[tuple[int, int]] | None = None,
) -> Figure:
    """Weights [L, K, T, S] as L rows of K small grids, with words at the first row and column only.

    Layers and heads are counted from 0, as in settings. Raises ValueError if the weights have other dimensions or the
    labels do not fit.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 4 or 0 in values.shape[:2]:
        raise ValueError(f"weights are [layers, heads, T, S], one of each or more, got {values.shape}")
    weights_array(values[0, 0], source, target)
    rows = [
        [(f"layer {layer} head {head}", each) for head, each in enumerate(heads)]
        for layer, heads in enumerate(values)
    ]
    cell = LONGEST_SIDE / max(1, values.shape[1] * len(source))
    cell = min(LARGEST_CELL_IN_GRID, max(SMALLEST_CELL_IN_GRID, cell))
    return _grid(rows, source, target, title, gold, cell=cell)


def _grid(
    rows: Sequence[Sequence[tuple[str, NDArray[np.float64]]]],
    source: Sequence[str],
    target: Sequence[str],
    title: str | None,
    gold: Iterable[tuple[int, int]] | None,
    *,
    cell: float,
) -> Figure:
    """Draw grids (heading, weights) of the same words, with words above the first row and beside the first column."""
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    source, target = ([abbreviate(drawable(word)) for word in words] for words in (source, target))
    links = set(gold or ())
    whole = " · ".join(
        each for each in (drawable(title or ""), "outlined: gold links" if links else "") if each
    )
    with log_missing_glyphs():
        above = [extent(figure, word, _source_style(cell)) for word in source]
        beside = [extent(figure, word, _word_style(cell))[0] for word in target]
        whole_width, whole_height = extent(figure, whole, _heading_style())
        headings = [extent(figure, heading, _heading_style()) for row in rows for heading, _ in row]
    cells_width, cells_height = cell * max(1, len(source)), cell * max(1, len(target))
    heading_height = max(height for _, height in headings)
    panel_width = max(
        cells_width,
        *(width for width, _ in headings),
        *(cell * (s + 0.5) + width for s, (width, _) in enumerate(above)),
    )
    left = MARGIN + (LABEL_GAP + max(beside) if beside else 0.0)
    first_heading = MARGIN + (whole_height + HEADING_GAP if whole else 0.0)
    top = first_heading + (heading_height + HEADING_GAP if heading_height else 0.0)
    top += LABEL_GAP + max((height for _, height in above), default=0.0)
    lefts = [left + column * (panel_width + GAP) for column in range(len(rows[0]))]
    tops = [top + row * (cells_height + GAP + heading_height + LABEL_GAP) for row in range(len(rows))]
    width = max(MARGIN + whole_width, lefts[-1] + panel_width) + MARGIN
    height = tops[-1] + cells_height + MARGIN
    figure.set_size_inches(width, height)
    _write(figure, whole, MARGIN, MARGIN)
    for row, (y, panels) in enumerate(zip(tops, rows, strict=True)):
        for column, (x, (heading, values)) in enumerate(zip(lefts, panels, strict=True)):
            _write(figure, heading, x, y - heading_height - LABEL_GAP if row else first_heading)
            axes = figure.add_axes(
                (x / width, 1 - (y + cells_height) / height, cells_width / width, cells_height / height)
            )
            _draw(axes, values, () if row else source, () if column else target, links, cell)
    return figure


def _write(figure: Figure, heading: str, x: float, y: float) -> None:
    width, height = figure.get_size_inches()
    if heading:
        figure.text(x / width, 1 - y / height, heading, va="top", **_heading_style())


def _draw(
    axes: Axes,
    values: NDArray[np.float64],
    source: Sequence[str],
    target: Sequence[str],
    gold: Links,
    cell: float,
) -> None:
    num_rows, num_columns = values.shape
    if values.size:
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(source)), source, **_source_style(cell))
    axes.set_yticks(range(len(target)), target, **_word_style(cell))
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelleft=True, pad=2)
    axes.set_xticks(np.arange(0.5, num_columns), minor=True)
    axes.set_yticks(np.arange(0.5, num_rows), minor=True)
    axes.set_xlim(-0.5, max(1, num_columns) - 0.5)
    axes.set_ylim(max(1, num_rows) - 0.5, -0.5)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("0.6")
    if num_columns <= MOST_COLUMNS_WITH_VALUES and cell >= SMALLEST_CELL_WITH_VALUES:
        _write_values(axes, values, cell)
    for i, j in gold:
        outline = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="tab:orange")
        outline.set_linewidth(1.6 if cell >= SMALLEST_CELL_WITH_VALUES else 0.9)
        axes.add_patch(outline)
        outline.set_clip_on(False)  # else half of the line is cut off at the edge of the grid
        outline.set_zorder(3)


def _write_values(axes: Axes, values: NDArray[np.float64], cell: float) -> None:
    font_size = 0.7 * _word_style(cell)["fontsize"]
    for t, row in enumerate(values):
        for s, value in enumerate(row):
            if value >= 0.005:
                colour = "white" if value > 0.55 else "0.25"
                text = f"{100 * value:.0f}"
                axes.text(s, t, text, ha="center", va="center", fontsize=font_size, color=colour)


def _word_style(cell: float) -> dict[str, Any]:
    font_size = min(10.0, 44 * cell)  # a line takes 1.2 font sizes: lines would touch at 60 * cell
    return {"fontsize": font_size, "parse_math": False, "fontfamily": font_families()}


def _source_style(cell: float) -> dict[str, Any]:
    return {**_word_style(cell), "rotation": ROTATION, "rotation_mode": "anchor", "ha": "left"}


def _heading_style() -> dict[str, Any]:
    return {"fontsize": 8, "color": "0.35", "parse_math": False, "fontfamily": font_families()}
