"""Significance tests of the differences between translations of the same sentences."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric

from nmt import metrics
from nmt.errors import UserError


def paired_tests(
    chosen: Mapping[str, Metric],
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    num_bootstrap: int,
    num_trials: int,
) -> list[dict[str, dict[str, Any]]]:
    """Each system's scores, as of `score_with`, with two p-values of its difference from the first system.

        p_bootstrap = (1 + #{|d_b - mean d_b| >= |d|}) / (1 + B)    p_randomization = (1 + #{|d_r| >= |d|}) / (1 + R)

    The paired bootstrap has B = `num_bootstrap` resamples (Koehn 2004), paired approximate randomisation has R =
    `num_trials` swaps (Riezler and Maxwell 2005). Both are two-sided, with sacreBLEU's draws, None for the first system
    and uncorrected for how many systems there are.

    They are not sacreBLEU's own p. Its bootstrap takes absolute differences before it centres them, which is near half
    of a two-sided p and never above 0.5; its randomisation leaves out trials that differ just as much as observed, and
    so would call a difference sure where few sentences differ.
    """
    if num_bootstrap < 2 or num_trials < 1:
        raise UserError(f"paired tests need resamples: got {num_bootstrap} resamples and {num_trials} trials")
    results = [
        metrics.score_with(chosen, hypotheses, references, num_bootstrap=num_bootstrap)
        for hypotheses in systems
    ]
    number = len(references)
    resamples = _generator().choice(number, size=(num_bootstrap, number), replace=True)
    swaps = _generator().integers(2, size=(num_trials, number), dtype=bool)
    for name, metric in chosen.items():
        counts = [
            np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]))
            for hypotheses in systems
        ]
        resampled = [_resampled_scores(metric, each, resamples) for each in counts]
        results[0][name] |= {"p_bootstrap": None, "p_randomization": None}
        for result, own, scores in zip(results[1:], counts[1:], resampled[1:], strict=True):
            observed = abs(result[name]["score"] - results[0][name]["score"])
            differences = scores - resampled[0]
            swapped = _swapped_differences(metric, counts[0], own, swaps)
            result[name] |= {
                # Centred, for two sides (Efron and Tibshirani 1993, 16.4)
                "p_bootstrap": _share(np.abs(differences - differences.mean()), observed),
                "p_randomization": _share(np.abs(swapped), observed),
            }
    return results


def _resampled_scores(metric: Metric, counts: np.ndarray, resamples: np.ndarray) -> np.ndarray:
    """Scores [B] of a system whose sentences count as `counts` [N, C], on the sentences of `resamples` [B, N]."""
    return np.array([_score(metric, np.bincount(each, minlength=len(counts)) @ counts) for each in resamples])


def _swapped_differences(
    metric: Metric, first: np.ndarray, second: np.ndarray, swaps: np.ndarray
) -> np.ndarray:
    """Differences [R] between two systems, whose sentences count as [N, C], that exchange those where `swaps` [R, N] is
    true (Riezler and Maxwell 2005, algorithm 1)."""
    drawn = swaps @ first + ~swaps @ second  # [R, C]; the other system has the rest
    rest = first.sum(axis=0) + second.sum(axis=0) - drawn
    return np.array(
        [_score(metric, one) - _score(metric, other) for one, other in zip(drawn, rest, strict=True)]
    )


def _generator() -> np.random.Generator:
    """As sacreBLEU seeds its own."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return np.random.default_rng(None if seed.lower() == "none" else int(seed))


def _score(metric: Metric, counts: np.ndarray) -> float:
    """By counts [C] over all sentences."""
    return float(metric._aggregate_and_compute([counts.tolist()]).score)


def _share(differences: np.ndarray, observed: float) -> float:
    """`(1 + #{differences >= observed}) / (1 + how many)`: rounding makes none smaller."""
    return (1 + int(np.sum(differences >= observed - 1e-9))) / (1 + len(differences))
