"""Pictures of attention and of scores, and how they become files: plain data in, a figure or a page out.

Figures are drawn without pyplot, which would keep every one of them alive.
"""

from nmt.plotting.curves import bleu_by_length, learning_curves
from nmt.plotting.document import SUFFIXES, write_heatmaps, write_page
from nmt.plotting.files import to_array, to_gif, to_html, to_png, to_svg
from nmt.plotting.heatmaps import head_grid, heatmap, page, strip
from nmt.plotting.sentence import Sentence
from nmt.plotting.webpage import alignment_page

__all__ = [
    "SUFFIXES",
    "Sentence",
    "alignment_page",
    "bleu_by_length",
    "head_grid",
    "heatmap",
    "learning_curves",
    "page",
    "strip",
    "to_array",
    "to_gif",
    "to_html",
    "to_png",
    "to_svg",
    "write_heatmaps",
    "write_page",
]
