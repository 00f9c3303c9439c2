"""One translated line, with its words and the attention between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nmt import alignment


@dataclass(frozen=True)
class Translation:
    """One translation of one line.

    text: detokenised. score: what the search ranks by (log p in nats over the length penalty, plus the coverage
    penalty). log_prob: the sum of log p in nats. source_words, target_words: whitespace words, or the other units that
    were asked for. weights: cross-attention between them [target words, source words], None for a model without
    attention. source_sizes: those of the source's groups (`alignment.Side`). others: the rest of the n-best list.
    """

    source: str
    text: str
    score: float = 0.0
    log_prob: float = 0.0
    source_words: list[str] = field(default_factory=list, repr=False)
    target_words: list[str] = field(default_factory=list, repr=False)
    weights: np.ndarray | None = field(default=None, repr=False)
    source_sizes: list[int] | None = field(default=None, repr=False)
    others: tuple["Translation", ...] = ()

    @property
    def links(self) -> set[tuple[int, int]]:
        """Pharaoh links (source word, target word): each target word to its most attended source word."""
        if self.weights is None:
            return set()
        return alignment.links_from_weights(self.weights, sizes=self.source_sizes)

    @classmethod
    def join(cls, source: str, parts: Sequence["Translation"], units: str = "words") -> "Translation":
        """The translation of a line out of those of its parts; weights between different parts are 0.

        A source word that was cut is one word again, and has the sum of its parts' weights.
        """
        of_parts = [word for part in parts for word in part.source_words]
        source_words = of_parts if units == "pieces" else alignment.split_units(source, units)
        weights, sizes = None, None
        if all(part.weights is not None for part in parts):
            lengths = np.array([len(word) for word in of_parts])
            ends = np.cumsum([len(word) for word in source_words])
            words = np.searchsorted(ends, lengths.cumsum() - lengths, side="right")  # by where each begins
            pieces = block_diag(*(part.weights for part in parts))  # [T, source words of the parts]
            weights = np.zeros((len(pieces), len(source_words)))
            np.add.at(weights.T, words, pieces.T)
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
            [word for part in parts for word in part.target_words],
            weights,
            sizes,
        )


def block_diag(*blocks: Any) -> np.ndarray:
    """Blocks [T_i, S_i] along the diagonal of a matrix that is 0 elsewhere."""
    shapes = np.array([block.shape for block in blocks])
    whole = np.zeros(shapes.sum(axis=0))
    for block, (row, column) in zip(blocks, shapes.cumsum(axis=0) - shapes, strict=True):
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
    return whole
