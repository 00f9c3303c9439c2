"""A translated line, with its words and the attention between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nmt import alignment, plotting

MOST_WEIGHTS = 30_000_000  # of a line that was translated in parts: 120 MB


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    text: detokenised. score: the value that the search ranks by (log p in nats over the length penalty, plus the
    coverage penalty). log_prob: the sum of log p in nats. source_words, target_words: whitespace words, or the
    requested units. weights: cross-attention between these [target words, source words]; None for a model without
    attention, and for a line of more than `MOST_WEIGHTS`, which has `part_links` instead. others: the rest of the
    n-best list. source_sizes: sizes of the source's groups (`alignment.Side`).
    """

    source: str
    text: str
    score: float = 0.0
    log_prob: float = 0.0
    source_words: list[str] = field(default_factory=list, repr=False)
    target_words: list[str] = field(default_factory=list, repr=False)
    weights: np.ndarray | None = field(default=None, repr=False)
    others: tuple["Translation", ...] = ()
    source_sizes: list[int] | None = field(default=None, repr=False)
    part_links: set[tuple[int, int]] = field(default_factory=set, repr=False)

    @property
    def links(self) -> set[tuple[int, int]]:
        """Pharaoh links (source word, target word): each target word to its most attended source word."""
        if self.weights is None:
            return self.part_links
        return alignment.links_from_weights(self.weights, sizes=self.source_sizes)

    @property
    def is_drawable(self) -> bool:
        """True if there are weights between words."""
        return self.weights is not None and self.weights.size > 0

    def sentence(self, title: str | None = None, note: str | None = None) -> plotting.Sentence:
        """The words and their weights, for pictures and pages; without weights, zeros that take no memory."""
        nothing = np.broadcast_to(0.0, (len(self.target_words), len(self.source_words)))
        weights = nothing if self.weights is None else self.weights
        return plotting.Sentence(weights, self.source_words, self.target_words, title=title, note=note)

    def _repr_svg_(self) -> str | None:
        """The heatmap that a notebook shows; None without weights."""
        return plotting.svg(plotting.picture(self.sentence())).decode() if self.is_drawable else None

    @classmethod
    def join(cls, source: str, parts: Sequence["Translation"], units: str = "words") -> "Translation":
        """The translation of a line, joined from its parts; weights between different parts are 0.

        A source word that was cut is whole again, with the sum of its parts' weights.
        """
        of_parts = [word for part in parts for word in part.source_words]
        source_words = of_parts if units == "pieces" else alignment.split_units(source, units)
        target_words = [word for part in parts for word in part.target_words]
        weights, sizes, links = None, None, set()
        if all(part.weights is not None for part in parts):
            lengths = np.array([len(word) for word in of_parts])
            ends = np.cumsum([len(word) for word in source_words])
            words = np.searchsorted(ends, lengths.cumsum() - lengths, side="right")  # by their first letters
            is_long = len(target_words) * len(source_words) > MOST_WEIGHTS
            weights = None if is_long else np.zeros((len(target_words), len(source_words)), dtype=np.float32)
            row = column = 0
            for part in parts:
                own = words[column : column + len(part.source_words)]
                links |= {(int(own[i]), j + row) for i, j in part.links}
                if weights is not None and part.weights is not None:
                    np.add.at(weights[row : row + len(part.target_words)].T, own, part.weights.T)
                row, column = row + len(part.target_words), column + len(own)
            of_groups = [size for part in parts for size in part.source_sizes or [1] * len(part.source_words)]
            groups = np.zeros(len(source_words), dtype=int)
            groups[words] = np.arange(len(of_groups)).repeat(of_groups)
            sizes = np.unique(groups, return_counts=True)[1].tolist()
        return cls(
            source,
            " ".join(part.text for part in parts if part.text),
            sum(part.score for part in parts),
            sum(part.log_prob for part in parts),
            source_words,
            target_words,
            weights,
            source_sizes=sizes,
            part_links=links,
        )
