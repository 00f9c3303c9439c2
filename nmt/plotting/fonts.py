"""Fonts for many scripts, the size of drawn text, and a warning about missing glyphs."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

log = logging.getLogger(__name__)

SCRIPTS = (
    *("Arabic", "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi"),
    *("Hebrew", "Kannada", "Khmer", "Lao", "Malayalam", "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai"),
)
# Fonts to try, in order, if DejaVu Sans (Latin, Greek, Cyrillic, Vietnamese) has no glyph.
FALLBACKS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"),
    *("Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS", "Noto Sans"),
    *(f"Noto Sans {script}" for script in SCRIPTS),
    "Unifont",
)
_reported: set[str] = set()  # characters without a glyph, reported once per process, not once per picture


def font_families() -> list[str]:
    """DejaVu Sans, which comes with matplotlib, then the installed fonts for other scripts."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACKS if name in installed)]


def extent(figure: Figure, text: str, style: dict[str, Any]) -> tuple[float, float]:
    """Inches by which a text extends to the right of its anchor and above it."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    drawn = figure.text(0, 0, text, **style)
    box = drawn.get_window_extent(canvas.get_renderer())
    drawn.remove()
    return box.x1 / figure.dpi, box.y1 / figure.dpi


@contextmanager
def log_missing_glyphs() -> Iterator[None]:
    """Log one message for all characters without a glyph, with fonts to install; other warnings stay warnings."""
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
            "no font here has %s: install one that does, Noto Sans of its script (on Debian, fonts-noto-core and "
            "fonts-noto-cjk), then remove %s, where matplotlib keeps its list of fonts",
            " ".join([*new[:10], *(["…"] if len(new) > 10 else [])]),
            Path(matplotlib.get_cachedir()) / "fontlist*.json",
        )
        _reported.update(new)
