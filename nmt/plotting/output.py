"""Writing of several sentences as pictures or as an interactive page."""

import logging
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from nmt.alignment.importance import SEPARATOR
from nmt.atomic import write_together
from nmt.plotting.files import to_png, to_svg
from nmt.plotting.heatmaps import heatmap
from nmt.plotting.sentence import MOST_OF_PAGE, Sentence, SentenceGroup, crop
from nmt.plotting.shaded_text import document
from nmt.plotting.webpage import alignment_page

log = logging.getLogger(__name__)


def picture(sentence: Sentence) -> Figure:
    """The heatmap of a sentence; for a document, its shaded sentences and words."""
    if SEPARATOR in sentence.source:
        return document(sentence.weights, sentence.source, sentence.target, title=sentence.title)
    weights, source, target, title, gold, _ = crop(sentence)
    return heatmap(weights, source, target, title=title, gold=gold)


def write_heatmap(number: int, sentence: Sentence, directory: str | Path, suffix: str = "") -> None:
    """Write the picture of a sentence as `line_NUMBER[SUFFIX].png` and `.svg` into a directory."""
    figure, name = picture(sentence), Path(directory) / f"line_{number:05d}{suffix}"
    to_png(figure, name.with_suffix(".png"))
    to_svg(figure, name.with_suffix(".svg"))


class Page:
    """The sentences of an interactive page: the first, with about `MOST_OF_PAGE` weights at most.

    A browser lays out a cell per weight. `left_out` counts the sentences after that limit.
    """

    def __init__(self) -> None:
        self.sentences: list[Sentence | SentenceGroup] = []
        self.left_out = self._num_weights = 0

    def add(self, sentence: Sentence | SentenceGroup) -> bool:
        """Add a sentence, or count it as left out and return False."""
        if isinstance(sentence, SentenceGroup):
            sentence = sentence._replace(sentences=[crop(each) for each in sentence.sentences])
            members: Sequence[Sentence] = sentence.sentences
        else:
            sentence = crop(sentence)
            members = [sentence]
        # A label costs as much layout as a few weights.
        self._num_weights += sum((len(each.source) + 4) * (len(each.target) + 4) for each in members)
        if self.left_out or self._num_weights > MOST_OF_PAGE:
            self.left_out += 1
            return False
        self.sentences.append(sentence)
        return True

    def write(self, path: str | Path, *, title: str, languages: tuple[str, str] | None) -> None:
        """Write the page, with the number of left-out sentences at its end. languages: of source and target."""
        note = None
        if self.left_out:
            note = f"{self.left_out} more sentences are left out: a page has room for about {MOST_OF_PAGE:,} weights"
            log.warning("%s: %s; give fewer lines at a time", path, note)
        source_lang, target_lang = languages or (None, None)
        page = alignment_page(
            self.sentences, title=title, source_lang=source_lang, target_lang=target_lang, note=note
        )
        write_together({Path(path): page})
