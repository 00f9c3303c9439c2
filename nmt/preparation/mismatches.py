"""Find pairs whose sides do not belong together, and pairs with a side that breaks off.

A classifier learns from damage made on purpose: targets of other lines, and sides cut off. The text itself is the class
of sound pairs. Since it may hold damage too, its pairs are weighted by how sound they look, and the share of each
kind of damage is estimated (EM), so that little is found in sound text and most in damaged text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from nmt.alignment.numbered_words import line_sums
from nmt.preparation.codes import Codes, Floats
from nmt.preparation.word_pairs import WordPairs

KINDS = ("sound", "mismatched", "truncated", "truncated")  # source cut, target cut
_ROUNDS = 5
_TRIMMED = 1.5  # times the share of damage is left out after the first round
_CUT = 0.35, 0.7  # shares of a line that are kept when it is cut
_PORTIONS = 0.8, 0.9  # of the damage made on purpose, by which its share in the text is estimated
_DOUBTED = 0.02  # a share of this size counts half, a smaller one less, so that sound text is kept
_SMALLEST = 1e-4  # share of a kind of damage

Sample = tuple[Sequence[str], Sequence[str], WordPairs]


@dataclass(frozen=True)
class Mismatches:
    """A classifier of pairs by `measure`: weights [features, kinds], and the share of each kind in the text."""

    ratio: float  # of the sides' lengths
    mean: Floats
    scale: Floats
    weights: Floats
    shares: Floats

    @classmethod
    def learn(cls, samples: Sequence[Sample], ratio: float, seed: int) -> "Mismatches":
        """Learn from samples of pairs, each with word pairs that were learned from other text. ratio: the usual one."""
        draw = np.random.default_rng(seed)
        measured: list[list[Floats]] = [[], [], [], []]
        for src, tgt, words in samples:
            order = draw.permutation(len(src))
            others = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
            kinds = (
                (src, tgt),
                (src, [tgt[others[place]] for place in range(len(src))]),
                ([_cut(line, draw.uniform(*_CUT)) for line in src], tgt),
                (src, [_cut(line, draw.uniform(*_CUT)) for line in tgt]),
            )
            for found, (first, second) in zip(measured, kinds, strict=True):
                found.append(measure(Codes(first), Codes(second), words, ratio))
        features = [np.concatenate(each) for each in measured]
        mean, scale = features[0].mean(axis=0), features[0].std(axis=0) + 1e-6
        data = np.concatenate([_expand((each - mean) / scale) for each in features])
        number, num_kinds = len(features[0]), len(features)
        labels = np.repeat(np.arange(num_kinds), number)
        weights, is_sound = np.zeros((data.shape[1], num_kinds)), np.ones(number)
        for turn in range(_ROUNDS):
            weights = _fit(data, labels, np.tile(is_sound / is_sound.sum(), num_kinds), weights)
            scores = log_softmax(data @ weights, axis=1)
            shares = _estimate_shares(scores, number, is_sound)
            if turn:
                is_sound = np.exp(_posterior(scores[:number], shares)[:, 0])
            else:  # until here the text with its damage was taken for sound: leave out all that looks damaged
                odds = logsumexp(scores[:number, 1:], axis=1, b=shares[1:]) - scores[:number, 0]
                is_sound = (odds <= np.quantile(odds, max(0.5, 1 - _TRIMMED * shares[1:].sum()))).astype(
                    float
                )
        shares[1:] *= shares[1:] / (shares[1:] + _DOUBTED)
        return cls(ratio, mean, scale, weights, shares)

    def log_odds(self, src: Codes, tgt: Codes, words: WordPairs) -> Floats:
        """Log-odds of each kind of damage against a sound pair [pairs, kinds]; those of `sound` are 0."""
        values = _expand((measure(src, tgt, words, self.ratio) - self.mean) / self.scale) @ self.weights
        scores = values + np.log(self.shares)
        return scores - scores[:, :1]


def measure(src: Codes, tgt: Codes, pairs: WordPairs, ratio: float) -> Floats:
    """Lengths, explained words and the last characters of pairs [pairs, features]."""
    known = pairs.known(src.words, tgt.words)
    gains = pairs.explain(*known)
    columns = [length_ratios(src, tgt) - ratio, np.log(src.sizes), np.log(tgt.sizes)]
    columns.append(columns[0] * np.sqrt(np.minimum(src.sizes, tgt.sizes)))
    for words, gain, side in zip(known, gains, (src, tgt), strict=True):
        lengths = words.lengths
        late = words.places * 2 >= np.repeat(lengths, lengths)
        num_late = np.maximum(line_sums(late, lengths), 1)
        num_early = np.maximum(line_sums(~late, lengths), 1)
        columns += [
            line_sums(gain, lengths) / np.maximum(lengths, 1),
            line_sums(gain * late, lengths) / num_late - line_sums(gain * ~late, lengths) / num_early,
            line_sums(gain, lengths) / 10,
            np.log1p(lengths),
            side.ends_sentence * 1.0,
        ]
    return np.stack(columns, axis=1).astype(np.float64)


def length_ratios(src: Codes, tgt: Codes) -> Floats:
    """Log of the ratio of the characters of both sides, near 0 for two short sides."""
    return np.log((tgt.sizes + 6) / (src.sizes + 6))


def _cut(line: str, share: float) -> str:
    """The beginning of a line, cut between words if there are any."""
    words = line.split()
    if len(words) > 3:
        return " ".join(words[: max(1, round(share * len(words)))])
    return line[: max(1, round(share * len(line)))]


def _expand(data: Floats) -> Floats:
    """A column of ones, the features, and the products of every two of them. Outliers count as 4 deviations."""
    data = np.clip(data, -4, 4)
    rows, columns = np.triu_indices(data.shape[1])
    return np.concatenate([np.ones((len(data), 1)), data, data[:, rows] * data[:, columns] / 4], axis=1)


def _fit(data: Floats, labels: np.ndarray, weight: Floats, start: Floats) -> Floats:
    """Weights of a softmax regression [features, kinds] with weighted rows and a small penalty."""
    targets = np.eye(4)[labels]

    def loss(flat: Floats) -> tuple[float, Floats]:
        matrix = flat.reshape(start.shape)
        scores = log_softmax(data @ matrix, axis=1)
        value = -(weight[:, None] * targets * scores).sum() + 1e-4 * (matrix**2).sum()
        slope = data.T @ (weight[:, None] * (np.exp(scores) - targets)) + 2e-4 * matrix
        return value, slope.ravel()

    return minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 40}).x.reshape(
        start.shape
    )


def _posterior(scores: Floats, shares: Floats) -> Floats:
    joint = scores + np.log(shares)
    return joint - logsumexp(joint, axis=1, keepdims=True)


def _estimate_shares(scores: Floats, number: int, is_sound: Floats) -> Floats:
    """The share of each kind in the text, the first `number` rows.

    Above a bound on the odds, the text has at least its share of the damage that was made on purpose.
    """
    shares = np.zeros(scores.shape[1])
    for kind in range(1, len(shares)):
        odds = scores[:, kind] - scores[:, 0]
        made = odds[kind * number : (kind + 1) * number][is_sound > 0.5]
        shares[kind] = min((odds[:number] > np.quantile(made, 1 - part)).mean() / part for part in _PORTIONS)
    shares[1:] = np.clip(shares[1:], _SMALLEST, 0.3)
    shares[0] = 1 - shares.sum()
    return shares
