"""Pictures of attention. Figures are drawn without pyplot, which would keep every one of them alive."""

import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

log = logging.getLogger(__name__)

CELL = 0.42  # inches a word, shrinking where a sentence is long
LONGEST_SIDE = 14.0  # inches of cells
MARGIN = 0.12  # inches around the whole
ROTATION = 60  # degrees, of the source words
MOST_COLUMNS_WITH_VALUES = 14
DPI = 100
# Fonts to fall back on, in order, where DejaVu Sans (Latin, Greek, Cyrillic, Vietnamese) has no glyph.
FALLBACKS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"),
    *("Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS", "Noto Sans", "Unifont"),
)
_reported: set[str] = set()  # characters without a glyph, each said once a process and not once a picture


def heatmap(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    gold: Iterable[tuple[int, int]] | None = None,
) -> Figure:
    """Weights [T, S] as a grid: source along the top, target down the side, white is 0 and dark blue is 1.

    Each cell says its weight, in hundredths, where there is room. `gold` links (source, target) are outlined.
    The figure grows with the sentence and with its longest words. Raises ValueError where the labels do not fit
    the weights.
    """
    values = np.asarray(weights, dtype=float)
    if values.shape != (len(target), len(source)):
        raise ValueError(
            f"weights are {values.shape} but there are {len(target)} target and {len(source)} labels"
        )
    heading = " · ".join(part for part in (title, "outlined: gold links" if gold else None) if part)
    cell = min(CELL, LONGEST_SIDE / max(1, *values.shape))
    font_size = min(10.0, 44 * cell)  # at 1.2 points a line, 60 would touch
    style: dict[str, Any] = {"fontsize": font_size, "parse_math": False, "fontfamily": _font_families()}
    top_style: dict[str, Any] = {"rotation": ROTATION, "rotation_mode": "anchor", "ha": "left"}
    heading_style: dict[str, Any] = {**style, "fontsize": 8, "color": "0.35"}

    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    # Lengths in inches. The size follows from what the words measure, so that no label is cut off.
    with _missing_glyphs_logged():
        above = [_extent(figure, word, {**style, **top_style}) for word in source]
        beside = [_extent(figure, word, style)[0] for word in target]
        heading_width, heading_height = _extent(figure, heading, heading_style)
    left = MARGIN + 0.05 + max(beside, default=0)
    top = MARGIN + 0.05 + max((height for _, height in above), default=0)
    top += heading_height + 0.1 if heading else 0
    grid_width, grid_height = cell * max(1, len(source)), cell * max(1, len(target))
    right_edges = [left + cell * (s + 0.5) + width for s, (width, _) in enumerate(above)]
    width = MARGIN + max([left + grid_width, MARGIN + heading_width, *right_edges])
    height = top + grid_height + MARGIN
    figure.set_size_inches(width, height)
    axes = figure.add_axes((left / width, MARGIN / height, grid_width / width, grid_height / height))
    if values.size:
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(source)), source, **top_style, **style)
    axes.set_yticks(range(len(target)), target, **style)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelleft=True, pad=2)
    axes.set_xticks(np.arange(0.5, len(source)), minor=True)
    axes.set_yticks(np.arange(0.5, len(target)), minor=True)
    axes.set_xlim(-0.5, max(1, len(source)) - 0.5)
    axes.set_ylim(max(1, len(target)) - 0.5, -0.5)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("0.6")
    if len(source) <= MOST_COLUMNS_WITH_VALUES:
        _write_values(axes, values, 0.7 * font_size)
    for i, j in gold or ():
        outline = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="tab:orange", linewidth=1.6)
        axes.add_patch(outline)
        outline.set_clip_on(False)  # else half of the line is lost at the grid's edge
        outline.set_zorder(3)
    if heading:
        figure.text(MARGIN / width, 1 - MARGIN / height, heading, va="top", **heading_style)
    return figure


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG; the file is whole or as it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with _missing_glyphs_logged():
            figure.savefig(temporary, format="png")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    with _missing_glyphs_logged():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _write_values(axes: Any, values: NDArray[np.floating], font_size: float) -> None:
    for t, row in enumerate(values):
        for s, value in enumerate(row):
            if value >= 0.005:
                colour = "white" if value > 0.55 else "0.25"
                axes.text(
                    s, t, f"{100 * value:.0f}", ha="center", va="center", fontsize=font_size, color=colour
                )


def _extent(figure: Figure, text: str, style: dict[str, Any]) -> tuple[float, float]:
    """Inches that a text reaches to the right of its anchor and above it."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    drawn = figure.text(0, 0, text, **style)
    box = drawn.get_window_extent(canvas.get_renderer())
    drawn.remove()
    return box.x1 / figure.dpi, box.y1 / figure.dpi


def _font_families() -> list[str]:
    """DejaVu Sans, which comes with matplotlib, then what this machine has for other scripts."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACKS if name in installed)]


@contextmanager
def _missing_glyphs_logged() -> Iterator[None]:
    """Characters that no font has become one message, which says what to install; other warnings stay warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph .* missing")
        yield
    missing = set()
    for warning in caught:
        if match := re.match(r"Glyph (\d+) .*missing", str(warning.message)):
            missing.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if new := sorted(missing - _reported):
        log.warning(
            "no font here has %s: install a font that does, such as Noto Sans CJK", " ".join(new[:10])
        )
        _reported.update(new)
