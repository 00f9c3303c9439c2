"""The picture of a document with its attention: a bar per sentence, and shaded words."""

from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nmt.alignment.importance import SEPARATOR, sentence_weights, sentences_of
from nmt.plotting.fonts import extent, font_families, log_missing_glyphs
from nmt.plotting.sentence import abbreviate, drawable, fitting

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
    values = fitting(weights, source, target).sum(axis=0) / max(1, len(target))  # [S]
    shares, largest = sentence_weights(values, source), max(values.max(initial=0.0), 1e-9)
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "parse_math": False, "fontfamily": font_families()}
    heading = " · ".join(drawable(each) for each in (title or "", " ".join(target)) if each)
    bars: list[tuple[int, float]] = []  # line, weight
    placed: list[tuple[float, int, float, str, float]] = []  # x, line, width, word, shade
    lines = 1
    with log_missing_glyphs():
        x, before = 0.0, -1
        for word, number, weight in zip(source, sentences_of(source), values, strict=True):
            if number != before:
                lines, x, before = lines + 1, BAR + SPACE, number
                bars.append((lines - 1, shares[number]))
            if word == SEPARATOR:
                continue
            text = abbreviate(drawable(word))
            size = extent(figure, text, style)[0]
            if x + size > WIDTH and x > BAR + SPACE:
                lines, x = lines + 1, BAR + SPACE
            placed.append((x, lines - 1, size, text, weight / largest))
            x += size + SPACE
    width, height = WIDTH + 2 * MARGIN, lines * LINE + 2 * MARGIN
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
    for line, share in bars:
        box(MARGIN, line, (BAR - 0.35) * float(min(share, 1)), facecolor="tab:blue", edgecolor="none")
        write(MARGIN + BAR - 0.3, line, f"{100 * share:.0f}", color="0.35")
    for x, line, size, text, shade in placed:
        box(
            MARGIN + x - SPACE / 2,
            line,
            size + SPACE,
            facecolor="tab:blue",
            alpha=0.6 * shade,
            edgecolor="none",
        )
        write(MARGIN + x, line, text)
    return figure
