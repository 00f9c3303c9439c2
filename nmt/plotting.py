"""Pictures of attention. Figures are drawn without pyplot, which would keep every one of them alive."""

import logging
import os
import warnings
from collections.abc import Iterable, Sequence
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
LONGEST_SIDE = 14.0  # inches
MOST_COLUMNS_WITH_VALUES = 14
DPI = 100
# Fonts to fall back on, in order, where DejaVu Sans (Latin, Greek, Cyrillic, Vietnamese) has no glyph.
FALLBACKS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Noto Sans", "Unifont")


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
    Raises ValueError where the labels do not fit the weights.
    """
    values = np.asarray(weights, dtype=float)
    if values.shape != (len(target), len(source)):
        raise ValueError(
            f"weights are {values.shape} but there are {len(target)} target and {len(source)} labels"
        )
    cell = min(CELL, LONGEST_SIDE / max(1, *values.shape))
    font_size = max(4.5, min(10.0, 24 * cell))
    margin = 0.075 * font_size / 10
    left = 0.25 + margin * max((len(word) for word in target), default=0) * 1.1
    top = 0.25 + margin * max((len(word) for word in source), default=0) * 0.95 + (0.3 if title else 0)
    width, height = left + cell * len(source) + 0.2, top + cell * len(target) + 0.2
    figure = Figure(figsize=(max(width, 2.5), max(height, 1.0)), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes(
        (
            left / figure.get_figwidth(),
            0.2 / height,
            cell * len(source) / figure.get_figwidth(),
            cell * len(target) / height,
        )
    )
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    style: dict[str, Any] = {"fontsize": font_size, "parse_math": False, "fontfamily": _font_families()}
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor", **style)
    axes.set_yticks(range(len(target)), target, **style)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelleft=True, pad=2)
    axes.set_xticks(np.arange(0.5, len(source)), minor=True)
    axes.set_yticks(np.arange(0.5, len(target)), minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    if len(source) <= MOST_COLUMNS_WITH_VALUES:
        _write_values(axes, values, 0.62 * font_size)
    for i, j in gold or ():
        axes.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="tab:orange", linewidth=1.6))
    if title:
        figure.text(0.01, 0.995, title, va="top", fontsize=8, color="0.35", parse_math=False)
    return figure


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG; the file is whole or as it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _quietly(lambda: figure.savefig(temporary, format="png"))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    _quietly(canvas.draw)
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _write_values(axes: Any, values: NDArray[np.floating], font_size: float) -> None:
    for t, row in enumerate(values):
        for s, value in enumerate(row):
            if value >= 0.005:
                colour = "white" if value > 0.55 else "0.25"
                axes.text(
                    s, t, f"{100 * value:.0f}", ha="center", va="center", fontsize=font_size, color=colour
                )


def _font_families() -> list[str]:
    """DejaVu Sans, which comes with matplotlib, then what this machine has for other scripts."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACKS if name in installed)]


def _quietly(draw: Any) -> None:
    """Draw; characters that no font has are one message, which says what to install."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph .* missing")
        draw()
    missing = {str(warning.message) for warning in caught if "missing from" in str(warning.message)}
    if missing:
        log.warning("%d characters have no glyph here: install a font such as Noto Sans CJK", len(missing))
