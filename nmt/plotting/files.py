"""Writing of figures and animations to files, and conversion of figures to pixels."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageOps

from nmt.atomic import write_together
from nmt.plotting.fonts import log_missing_glyphs


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG."""
    write_together({Path(path): _content(figure, "png", {})})


def to_svg(figure: Figure, path: str | Path) -> None:
    """Write a figure as SVG, deterministically.

    Words become paths, which look the same everywhere and keep the size measured by the layout.
    """
    write_together({Path(path): svg(figure)})


def svg(figure: Figure) -> bytes:
    """The bytes that `to_svg` writes."""
    return _content(figure, "svg", {"svg.fonttype": "path", "svg.hashsalt": "nmt"}, {"Date": None})


def to_pdf(figure: Figure, path: str | Path) -> None:
    """Write a figure as PDF, deterministically, with TrueType fonts, which publishers require."""
    write_together({Path(path): _content(figure, "pdf", {"pdf.fonttype": 42}, {"CreationDate": None})})


def _content(figure: Figure, kind: str, settings: dict[str, Any], metadata: Any = None) -> bytes:
    content = io.BytesIO()  # not a file: `write_together` reports errors of the disk better than libraries do
    with log_missing_glyphs(), matplotlib.rc_context(settings):
        figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def to_gif(pictures: Sequence[Path], path: str | Path, *, seconds_per_frame: float) -> None:
    """Write PNG files as an endless animation. Smaller pictures are padded with white at the right and below."""
    frames = [Image.open(each, formats=["PNG"]).convert("RGB") for each in pictures]  # EPS would be run
    width, height = max(each.width for each in frames), max(each.height for each in frames)
    first, *rest = (
        ImageOps.expand(each, (0, 0, width - each.width, height - each.height), "white") for each in frames
    )
    content = io.BytesIO()
    first.save(
        content, "GIF", save_all=True, append_images=rest, duration=round(1000 * seconds_per_frame), loop=0
    )
    write_together({Path(path): content.getvalue()})


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    with log_missing_glyphs():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
