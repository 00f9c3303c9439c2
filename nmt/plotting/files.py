"""Figures and pages as files and as pixels. A file that is written is whole, or as it was before."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from nmt.plotting.fonts import missing_glyphs_logged


def to_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG."""
    with _replacing(path) as temporary, missing_glyphs_logged():
        figure.savefig(temporary, format="png")


def to_svg(figure: Figure, path: str | Path) -> None:
    """Write a figure as SVG, the same bytes for the same figure.

    Words become paths: they look alike everywhere, CJK and Vietnamese too, and keep the size that the layout
    measured, where text would be set in whatever fonts the reader has.
    """
    constant = matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "nmt"})
    with _replacing(path) as temporary, missing_glyphs_logged(), constant:
        figure.savefig(temporary, format="svg", metadata={"Date": None})


def to_gif(figures: Sequence[Figure], path: str | Path, *, seconds_per_frame: float) -> None:
    """Write figures as the frames of an animation without end, in order.

    All frames have the size of the largest: smaller ones are white at the right and below, so that grids stay in
    place. A format that counts in hundredths of a second rounds the time. Raises ValueError where there are no
    figures or a frame would last less than 0.02 seconds, which browsers do not show.
    """
    if not figures or seconds_per_frame < 0.02:
        raise ValueError(
            "an animation needs figures and at least 0.02 seconds for each, "
            f"got {len(figures)} figures of {seconds_per_frame} seconds"
        )
    frames = [to_array(figure) for figure in figures]
    height, width = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    images = []
    for frame in frames:
        whole = np.full((height, width, 3), 255, dtype=np.uint8)
        whole[: frame.shape[0], : frame.shape[1]] = frame
        images.append(Image.fromarray(whole))
    with _replacing(path) as temporary:
        images[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=round(1000 * seconds_per_frame),
            loop=0,
        )


def to_html(page: str, path: str | Path) -> None:
    """Write a page as UTF-8."""
    with _replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels [height, width, 3]."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    with missing_glyphs_logged():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


@contextmanager
def _replacing(path: str | Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place at the end, or vanishes where writing fails."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
