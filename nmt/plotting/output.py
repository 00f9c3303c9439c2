"""Several sentences as files: a picture each, or one interactive page."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from nmt.alignment.documents import SEPARATOR
from nmt.plotting.documents import document
from nmt.plotting.files import to_html, to_png, to_svg
from nmt.plotting.heatmaps import heatmap
from nmt.plotting.sentence import Group, Sentence
from nmt.plotting.webpage import alignment_page


def picture(sentence: Sentence) -> Figure:
    """The heatmap of a sentence; of a document its sentences and words, shaded."""
    weights, source, target, title, gold, _ = sentence
    if SEPARATOR in source:
        return document(weights, source, target, title=title)
    return heatmap(weights, source, target, title=title, gold=gold)


def write_heatmaps(sentences: Mapping[int, Sentence], directory: str | Path) -> None:
    """Write the picture of each sentence as `line_NUMBER.png` and `.svg` into a directory."""
    for number, each in sentences.items():
        figure = picture(each)
        name = Path(directory) / f"line_{number:05d}"
        to_png(figure, name.with_suffix(".png"))
        to_svg(figure, name.with_suffix(".svg"))


def write_page(
    sentences: Mapping[int, Sentence] | Mapping[int, Sentence | Group],
    path: str | Path,
    *,
    title: str,
    languages: tuple[str, str] | None,
) -> None:
    """Write sentences as an interactive page; `languages` are those of source and target."""
    source_lang, target_lang = languages or (None, None)
    page = alignment_page(
        list(sentences.values()), title=title, source_lang=source_lang, target_lang=target_lang
    )
    to_html(page, path)
