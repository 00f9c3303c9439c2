"""Significance tests of the differences between translations of the same sentences."""

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from scipy.special import stdtr, stdtrit

from nmt import metrics
from nmt.errors import UserError


def paired_tests(
    chosen: Mapping[str, Metric],
    systems: Sequence[Sequence[str]],
    references: metrics.References,
    *,
    num_bootstrap: int,
    num_trials: int,
    first: int = 0,
) -> list[dict[str, dict[str, Any]]]:
    """Scores of each system as from `score_with`, also on resamples, with two p-values against the system number
    `first`.

        p_bootstrap = (1 + #{|d_b - mean d_b| >= |d|}) / (1 + B)    p_randomization = (1 + #{|d_r| >= |d|}) / (1 + R)

    The paired bootstrap has B = `num_bootstrap` resamples (Koehn 2004), paired approximate randomisation has R =
    `num_trials` swaps (Riezler and Maxwell 2005). Both are two-sided, with sacreBLEU's draws, None for system `first`,
    and not corrected for the number of systems.

    They are not sacreBLEU's p. Its bootstrap takes absolute differences before it centres them: its p is near half of a
    two-sided p and never above 0.5. Its randomisation leaves out trials that differ exactly as much as observed, and so
    would call a difference sure if few sentences differ.
    """
    if num_bootstrap < 2 or num_trials < 1:
        raise UserError(f"paired tests need resamples: got {num_bootstrap} resamples and {num_trials} trials")
    results = [
        metrics.score_with(chosen, hypotheses, references, num_bootstrap=num_bootstrap)
        for hypotheses in systems
    ]
    sets = metrics.reference_sets(references)
    number = len(sets[0])
    resamples = _generator().choice(number, size=(num_bootstrap, number), replace=True)
    swaps = _generator().integers(2, size=(num_trials, number), dtype=bool)
    for name, metric in chosen.items():
        counts = [
            np.array(metric._extract_corpus_statistics(list(hypotheses), sets)) for hypotheses in systems
        ]
        resampled = [_resampled_scores(metric, each, resamples) for each in counts]
        for result, own, scores in zip(results, counts, resampled, strict=True):
            result[name] |= {"resampled": scores, "p_bootstrap": None, "p_randomization": None}
            if result is results[first]:
                continue
            observed = abs(result[name]["score"] - results[first][name]["score"])
            differences = scores - resampled[first]
            swapped = _swapped_differences(metric, counts[first], own, swaps)
            result[name] |= {
                # Centred, for two sides (Efron and Tibshirani 1993, 16.4)
                "p_bootstrap": _share(np.abs(differences - differences.mean()), observed),
                "p_randomization": _share(np.abs(swapped), observed),
            }
    return results


def _resampled_scores(metric: Metric, counts: np.ndarray, resamples: np.ndarray) -> np.ndarray:
    """Scores [B] of a system with the counts [N, C] of its sentences, on the sentences of `resamples` [B, N]."""
    return np.array([_score(metric, np.bincount(each, minlength=len(counts)) @ counts) for each in resamples])


def _swapped_differences(
    metric: Metric, first: np.ndarray, second: np.ndarray, swaps: np.ndarray
) -> np.ndarray:
    """Differences [R] between two systems that exchange the sentences marked in `swaps` [R, N].

    first, second: the counts of their sentences [N, C] (Riezler and Maxwell 2005, algorithm 1).
    """
    drawn = swaps @ first + ~swaps @ second  # [R, C]; the other system has the rest
    rest = first.sum(axis=0) + second.sum(axis=0) - drawn
    return np.array(
        [_score(metric, one) - _score(metric, other) for one, other in zip(drawn, rest, strict=True)]
    )


def _generator() -> np.random.Generator:
    """A generator with sacreBLEU's seed."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return np.random.default_rng(None if seed.lower() == "none" else int(seed))


def _score(metric: Metric, counts: np.ndarray) -> float:
    """The score by counts [C] over all sentences."""
    return float(metric._aggregate_and_compute([counts.tolist()]).score)


def _share(differences: np.ndarray, observed: float) -> float:
    """`(1 + #{differences >= observed}) / (1 + how many)`, with a tolerance for rounding."""
    return (1 + int(np.sum(differences >= observed - 1e-9))) / (1 + len(differences))


def compare_systems(
    scores: np.ndarray,
    resampled: np.ndarray,
    systems: Mapping[str, Sequence[int]],
    baseline: str | None = None,
) -> list[dict[str, Any]]:
    """Differences between the mean scores of systems: of every two systems, or of each system and `baseline`.

    A system is the rows of its runs, which differ only in their seed. scores [R]: the scores of the runs. resampled [R,
    B]: their scores on resampled sentences. Keys: system, other, difference, ci (half of the 95 % interval), p, of
    ("systems", or "runs" if a system has a single run), p_holm.
    """
    pairs = list(combinations(systems, 2))
    if baseline is not None:
        pairs = [(each, baseline) for each in systems if each != baseline]
    found: list[dict[str, Any]] = [
        {"system": ours, "other": theirs, **_difference(scores, resampled, systems[ours], systems[theirs])}
        for ours, theirs in pairs
    ]
    for entry, p in zip(found, holm([each["p"] for each in found]), strict=True):
        entry["p_holm"] = p
    return found


def _difference(
    scores: np.ndarray, resampled: np.ndarray, ours: Sequence[int], theirs: Sequence[int]
) -> dict[str, Any]:
    """Test the difference d of the mean scores of two systems, A and B, over seeds and sentences.

        t = d / sqrt(V)    V = s_A^2 / n_A + s_B^2 / n_B + max(c_AA + c_BB - 2 c_AB, 0)

    s^2 is the variance of a system's scores over its n seeds. c is the covariance of two runs over resampled sentences,
    both of the same system or of A and B. This is the test of Obuchowski and Rockette (1995) for readers (seeds) nested
    in treatments (systems) that read the same cases (sentences), as derived by Hillis (2014), with a variance for each
    system and the degrees of freedom of Welch and Satterthwaite: V^2 / Σ (s^2 / n)^2 / (n - 1).

    With a single run of a system the variance over seeds is unknown. The paired bootstrap over sentences (Koehn 2004)
    then tests these runs, and not the systems.
    """
    difference = float(scores[ours].mean() - scores[theirs].mean())
    if min(len(ours), len(theirs)) < 2:
        resamples = resampled[ours].mean(axis=0) - resampled[theirs].mean(axis=0)
        low, high = np.quantile(resamples, (0.025, 0.975))
        p = _share(np.abs(resamples - resamples.mean()), abs(difference))
        return {"difference": difference, "ci": float(high - low) / 2, "p": p, "of": "runs"}
    covariance = np.cov(resampled)

    def mean_covariance(rows: Sequence[int]) -> float:
        part = covariance[np.ix_(rows, rows)]
        return (part.sum() - np.trace(part)) / (len(rows) * (len(rows) - 1))

    of_seeds = [(scores[rows].var(ddof=1) / len(rows), len(rows) - 1) for rows in (ours, theirs)]
    of_sentences = (
        mean_covariance(ours) + mean_covariance(theirs) - 2 * covariance[np.ix_(ours, theirs)].mean()
    )
    variance = sum(each for each, _ in of_seeds) + max(of_sentences, 0)
    uncertainty = sum(each**2 / freedom for each, freedom in of_seeds)
    freedom = variance**2 / uncertainty if uncertainty > 0 else np.inf
    error = np.sqrt(variance)
    p = float(2 * stdtr(freedom, -abs(difference) / error)) if error > 0 else float(difference == 0)
    return {
        "difference": difference,
        "ci": float(error * stdtrit(freedom, 0.975)),
        "p": p,
        "of": "systems",
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number m (Holm 1979): `max_{j <= k} min(1, (m - j + 1) p_j)` for the k-th smallest."""
    order = np.argsort(p_values)
    factors = np.arange(len(order), 0, -1)
    corrected = np.maximum.accumulate(np.asarray(p_values, dtype=float)[order] * factors).clip(max=1)
    return corrected[np.argsort(order)].tolist()
