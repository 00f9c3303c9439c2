"""Several sentences as files: a picture each, or one document in the form that its name asks for."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt.plotting.files import to_html, to_png, to_svg
from nmt.plotting.heatmaps import heatmap, page
from nmt.plotting.sentence import Sentence
from nmt.plotting.webpage import alignment_page

SUFFIXES = (".html", ".png", ".svg")


def write_heatmaps(sentences: Mapping[int, Sentence], directory: str | Path) -> None:
    """Write the heatmap of each sentence as `line_NUMBER.png` and `.svg` into a directory."""
    for number, each in sentences.items():
        figure = heatmap(each.weights, each.source, each.target, title=each.title, gold=each.gold)
        name = Path(directory) / f"line_{number:05d}"
        to_png(figure, name.with_suffix(".png"))
        to_svg(figure, name.with_suffix(".svg"))


def write_page(
    sentences: Sequence[Sentence],
    path: str | Path,
    *,
    title: str,
    languages: tuple[str, str] | None = None,
) -> None:
    """Write sentences as an interactive page (.html) or a picture (.png, .svg).

    `languages`, of source and target, tell a browser which fonts and voices fit. Raises ValueError for another ending,
    and where a picture would be of no sentence.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: a page ends in {', '.join(SUFFIXES)}")
    if suffix == ".html":
        source_lang, target_lang = languages or (None, None)
        to_html(
            alignment_page(sentences, title=title, source_lang=source_lang, target_lang=target_lang), path
        )
    else:
        (to_png if suffix == ".png" else to_svg)(page(sentences), path)
