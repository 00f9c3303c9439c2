"""Tell the languages of a corpus by the frequencies of three characters in a row, learned from its own sides.

Since most lines of a side are in the language of the side, a few rounds of learning from the lines that look right
leave the others out.
"""

from dataclasses import dataclass

import numpy as np

from nmt.alignment.numbered_words import Words, line_sums
from nmt.preparation.codes import NUM_TRIGRAMS, Floats

_ROUNDS = 4
_ROUNDS_OF_MIXTURE = 12
_LARGEST_OVERLAP = 0.75  # of the trigrams of two languages; subjects of one language overlap more
_LEAST_LINES = 20
LEAST_LENGTH = 20  # trigrams that a line needs to show another language


@dataclass(frozen=True)
class LanguageOdds:
    """Log-odds of each trigram.

    sides: of the source's language against the target's. foreign: for source and target, of another language against
    that of the side; None if the side has no other language.
    """

    sides: Floats
    foreign: tuple[Floats | None, Floats | None]

    @classmethod
    def learn(cls, source: Words, target: Words) -> "LanguageOdds":
        """Learn from the trigrams of both sides of pairs."""
        weights = np.ones(len(source.lengths)), np.ones(len(target.lengths))
        for _ in range(_ROUNDS):
            odds = np.log(_frequencies(source, weights[0]) / _frequencies(target, weights[1]))
            weights = (log_odds(source, odds) > 0).astype(float), (log_odds(target, odds) < 0).astype(float)
        return cls(
            odds, (_other_language(source, target, weights[0]), _other_language(target, source, weights[1]))
        )


def log_odds(side: Words, table: Floats) -> Floats:
    """The log-odds of each line, in nats."""
    return np.asarray(line_sums(table[side.codes], side.lengths))


def _frequencies(side: Words, weights: Floats) -> Floats:
    """The share of each trigram in weighted lines."""
    counts = np.bincount(side.codes, np.repeat(weights, side.lengths), NUM_TRIGRAMS) + 0.01
    return counts / counts.sum()


def _overlap(first: Floats, second: Floats) -> float:
    """The Bhattacharyya coefficient of two distributions: 1 if they are equal, 0 if they share nothing."""
    return float(np.sqrt(first * second).sum())


def _other_language(side: Words, beside: Words, weights: Floats) -> Floats | None:
    """Log-odds of a second language among the weighted lines, found as a mixture of two; None if there is but one."""
    weights = weights * (side.lengths >= LEAST_LENGTH)
    if weights.sum() < _LEAST_LINES:
        return None
    fit = log_odds(side, np.log(_frequencies(side, weights))) / np.maximum(side.lengths, 1)
    low, some, high = np.quantile(fit[weights > 0], (0.05, 0.25, 0.75))
    for seems_other in (fit <= some, fit <= low, fit >= high):
        is_other = weights * seems_other
        for _ in range(_ROUNDS_OF_MIXTURE):
            main, other = _frequencies(side, weights - is_other), _frequencies(side, is_other)
            share = np.clip(is_other.sum() / weights.sum(), 1e-9, 0.5)
            odds = np.log(other / main)
            is_other = weights * (log_odds(side, odds) + np.log(share / (1 - share)) > 0)
        if is_other.sum() > weights.sum() / 2:  # the language of most lines is that of the side
            is_other, odds = weights - is_other, -odds
        # Another subject shows in the other side too, and so does little text, which overlaps little with much
        usual = _overlap(_frequencies(beside, is_other), _frequencies(beside, weights - is_other))
        if is_other.sum() >= _LEAST_LINES and _overlap(main, other) < _LARGEST_OVERLAP * usual:
            return np.asarray(odds)
    return None
