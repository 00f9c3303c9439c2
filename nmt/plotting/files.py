"""Figures and pages as files, each whole or as it was before, and figures as pixels."""

import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nmt.files import write_together
from nmt.plotting.fonts import missing_glyphs_logged


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG."""
    content = io.BytesIO()  # libraries that write files themselves do not say why the disk refused
    with missing_glyphs_logged():
        figure.savefig(content, format="png")
    write_together({Path(path): content.getvalue()})


def to_svg(figure: Figure, path: str | Path) -> None:
    """Write a figure as SVG, the same bytes for the same figure.

    Words become paths: they look alike everywhere, CJK and Vietnamese too, and keep the size that the layout
    measured, where text would be set in whatever fonts the reader has.
    """
    constant = matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "nmt"})
    content = io.BytesIO()
    with missing_glyphs_logged(), constant:
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_together({Path(path): content.getvalue()})


def to_html(page: str, path: str | Path) -> None:
    """Write a page as UTF-8."""
    write_together({Path(path): page})


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    with missing_glyphs_logged():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
