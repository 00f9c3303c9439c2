"""Plots of attention and scores: functions from plain data to figures and pages, and functions that write them.

Figures are drawn without pyplot, which would keep them in memory. Matplotlib is imported at the first use.
"""

import importlib
from typing import Any

from nmt.plotting.sentence import Sentence, SentenceGroup

_MODULES = {
    "bleu_by_length": "curves",
    "learning_curves": "curves",
    "confusion_heatmap": "heatmaps",
    "document": "shaded_text",
    "write_heatmap": "output",
    "Page": "output",
    "to_array": "files",
    "to_gif": "files",
    "to_pdf": "files",
    "to_png": "files",
    "svg": "files",
    "to_svg": "files",
    "head_grid": "heatmaps",
    "heatmap": "heatmaps",
    "measure_grid": "heatmaps",
    "picture": "output",
    "alignment_page": "webpage",
}
__all__ = ["Sentence", "SentenceGroup", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
