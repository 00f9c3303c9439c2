"""The picture of a document with its attention: a bar per sentence, and shaded words."""

from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nmt.alignment.importance import SEPARATOR, sentence_weights, sentences_of
from nmt.plotting.fonts import extent, font_families, log_missing_glyphs
from nmt.plotting.sentence import abbreviate, drawable, weights_array

WIDTH, MARGIN, LINE = 9.0, 0.15, 0.24  # inches: width of the text, margin, distance of lines
BAR = 0.9  # width for the bar of a sentence and its weight
SPACE = 0.07  # between words
FONT_SIZE, LONGEST_HEADING = 9, 120
DPI = 100


def document(
    weights: Any, source: Sequence[str], target: Sequence[str], *, title: str | None = None
) -> Figure:
    """Draw the sentences of a source with the mean of weights [T, S] over the output.

    The bar in front of a sentence shows its weight. The shade of a word shows its weight relative to the largest.
    Raises ValueError if the labels do not fit the weights.
    """
    values = weights_array(weights, source, target).sum(axis=0) / max(1, len(target))  # [S]
    shares, largest = sentence_weights(values, source), max(values.max(initial=0.0), 1e-9)
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "parse_math": False, "fontfamily": font_families()}
    heading = " · ".join(drawable(each) for each in (title or "", " ".join(target)) if each)
    with log_missing_glyphs():
        texts = [abbreviate(drawable(word)) for word in source]
        sizes = [extent(figure, text, style)[0] for text in texts]
    first_lines, places = _lay_out(source, sizes)
    num_lines = 1 + (places[-1][0] if places else 0)
    width, height = WIDTH + 2 * MARGIN, num_lines * LINE + 2 * MARGIN
    figure.set_size_inches(width, height)

    def box(x: float, line: float, size: float, **look: Any) -> None:
        low = height - MARGIN - (line + 1) * LINE
        figure.add_artist(Rectangle((x / width, low / height), size / width, 0.8 * LINE / height, **look))

    def write(x: float, line: float, text: str, **more: Any) -> None:
        figure.text(x / width, 1 - (MARGIN + (line + 0.8) * LINE) / height, text, **style, **more)

    write(
        MARGIN,
        0,
        heading if len(heading) <= LONGEST_HEADING else f"{heading[:LONGEST_HEADING]}…",
        color="0.35",
    )
    for line, share in zip(first_lines, shares, strict=True):
        box(MARGIN, line, (BAR - 0.35) * float(min(share, 1)), facecolor="tab:blue", edgecolor="none")
        write(MARGIN + BAR - 0.3, line, f"{100 * share:.0f}", color="0.35")
    for word, text, size, shade, (line, x) in zip(
        source, texts, sizes, values / largest, places, strict=True
    ):
        if word != SEPARATOR:
            look = {"facecolor": "tab:blue", "alpha": 0.6 * shade, "edgecolor": "none"}
            box(MARGIN + x - SPACE / 2, line, size + SPACE, **look)
            write(MARGIN + x, line, text)
    return figure


def _lay_out(words: Sequence[str], sizes: Sequence[float]) -> tuple[list[int], list[tuple[int, float]]]:
    """The first line of each sentence, and line and x of each word. Line 0 is the heading's; words are in inches."""
    first_lines: list[int] = []
    places: list[tuple[int, float]] = []
    line, x = 0, 0.0
    for word, size, number in zip(words, sizes, sentences_of(words), strict=True):
        if number == len(first_lines):
            line, x = line + 1, BAR + SPACE
            first_lines.append(line)
        if word != SEPARATOR and x + size > WIDTH and x > BAR + SPACE:
            line, x = line + 1, BAR + SPACE
        places.append((line, x))
        x += size + SPACE if word != SEPARATOR else 0
    return first_lines, places
