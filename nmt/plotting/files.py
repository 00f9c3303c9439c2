"""Figures and pages as files and as pixels. A file that is written is whole, or as it was before."""

import io
from collections.abc import Iterable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from nmt.errors import WriteError
from nmt.files import replacing
from nmt.plotting.fonts import missing_glyphs_logged


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG."""
    content = io.BytesIO()
    with missing_glyphs_logged():
        figure.savefig(content, format="png")
    _write(path, content)


def to_svg(figure: Figure, path: str | Path) -> None:
    """Write a figure as SVG, the same bytes for the same figure.

    Words become paths: they look alike everywhere, CJK and Vietnamese too, and keep the size that the layout
    measured, where text would be set in whatever fonts the reader has.
    """
    constant = matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "nmt"})
    content = io.BytesIO()
    with missing_glyphs_logged(), constant:
        figure.savefig(content, format="svg", metadata={"Date": None})
    _write(path, content)


def to_gif(figures: Iterable[Figure], path: str | Path, *, seconds_per_frame: float) -> None:
    """Write figures as the frames of an animation without end, in order. All are held as pixels, one as a figure.

    All frames have the size of the largest: smaller ones are white at the right and below, so that grids stay in
    place. A format that counts in hundredths of a second rounds the time. Raises ValueError where there are no
    figures or a frame would last less than 0.02 seconds, which browsers do not show.
    """
    frames = [Image.fromarray(to_array(figure)) for figure in figures]
    if not frames or seconds_per_frame < 0.02:
        raise ValueError(
            "an animation needs figures and at least 0.02 seconds for each, "
            f"got {len(frames)} figures of {seconds_per_frame} seconds"
        )
    size = max(frame.width for frame in frames), max(frame.height for frame in frames)
    images = [frame if frame.size == size else _enlarged(frame, size) for frame in frames]
    content = io.BytesIO()
    images[0].save(
        content,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=round(1000 * seconds_per_frame),
        loop=0,
    )
    _write(path, content)


def to_html(page: str, path: str | Path) -> None:
    """Write a page as UTF-8."""
    _write(path, io.BytesIO(page.encode()))


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    with missing_glyphs_logged():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _enlarged(frame: Image.Image, size: tuple[int, int]) -> Image.Image:
    whole = Image.new("RGB", size, "white")
    whole.paste(frame)
    return whole


def _write(path: str | Path, content: io.BytesIO) -> None:
    """Write a file whole. Raises WriteError; `path` is then as it was.

    A picture is drawn in memory first: libraries that write it themselves do not say why the disk refused.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new:
            new.write_bytes(content.getbuffer())
    except OSError as error:
        raise WriteError(path, error) from error
