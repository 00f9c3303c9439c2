"""Printed names of scores, and the base class of metrics that are a mean over sentences."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "exact_match": "exact match",
    "macro_f1": "macro F1",
}


def label(name: str, signature: str) -> str:
    """The printed name of a score. chrF over n-grams of words too, by its signature, is chrF++."""
    words = re.search(r"\|nw:(\d{1,2})\b", signature)
    return LABELS.get(name, name) + "+" * (int(words[1]) if words else 0)


def best_of(metric: Metric) -> Literal["min", "max"]:
    """The best of several scores by a metric: the highest, unless the metric has `higher_is_better = False`."""
    return "max" if getattr(metric, "higher_is_better", True) else "min"


class SentenceMean(Metric):
    """`100 / N · Σ value(hypothesis_i, reference_i)`: a metric that is a mean over the N sentences.

    With several references of a sentence, the highest value counts.
    """

    def __init__(self, name: str, settings: dict[str, str]) -> None:
        super().__init__()
        self.name, self.settings = name, settings

    @abstractmethod
    def value(self, hypothesis: str, reference: str) -> float:
        """The score of a sentence, from 0 to 1."""

    def get_signature(self) -> Signature:
        signature = super().get_signature()
        signature.info.update(self.settings)
        return signature

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        return [max(self.value(hypothesis, each) for each in ref_kwargs["references"]), 1.0]

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(100 * stats[0] / stats[1]))
