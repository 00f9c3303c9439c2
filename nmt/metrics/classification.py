"""Metrics of a label per text: exact match, macro F1 and the confusion of labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from nmt.errors import UserError
from nmt.metrics.base import SentenceMean


class ExactMatch(SentenceMean):
    """The share of hypotheses equal to their reference, in per cent, spacing aside."""

    def __init__(self, *, lowercase: bool = False) -> None:
        super().__init__("exact_match", {"case": "lc" if lowercase else "mixed", "space": "any"})
        self.lowercase = lowercase

    def value(self, hypothesis: str, reference: str) -> float:
        return float(_plain(hypothesis, self.lowercase) == _plain(reference, self.lowercase))


class MacroF1(Metric):
    """The mean over the references' labels of `F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c)`, in per cent.

    `score_with` adds `classes`: the F1 of each label. A hypothesis that is no label of the references is a miss.
    """

    name = "macro_f1"

    def __init__(self, *, lowercase: bool = False) -> None:
        super().__init__()
        self.lowercase = lowercase
        self._labels: list[str] = []

    def get_signature(self) -> Signature:
        signature = super().get_signature()
        signature.info.update({"case": "lc" if self.lowercase else "mixed", "space": "any"})
        return signature

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> Any:
        if len(references) > 1:
            raise UserError(
                "metrics.macro_f1 counts one label for each text, and these have several references"
            )
        self._labels = confusion(hypotheses, references[0], lowercase=self.lowercase)[0]
        return super()._extract_corpus_statistics(hypotheses, references)

    def _preprocess_segment(self, sent: str) -> str:
        return _plain(sent, self.lowercase)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"reference": _plain(refs[0], self.lowercase)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        """TP, FP and FN of each label."""
        truth = ref_kwargs["reference"]
        of_labels = [
            (each == hypothesis == truth, each == hypothesis != truth, each == truth != hypothesis)
            for each in self._labels
        ]
        return [float(column) for row in zip(*of_labels, strict=True) for column in row]

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        hits, *misses = np.asarray(stats).reshape(3, -1)
        total = 2 * hits + sum(misses)
        f1 = 100 * np.divide(2 * hits, total, out=np.zeros_like(total), where=total > 0)
        score: Any = Score(self.name, float(f1[total > 0].mean()))  # a resample may lack a label
        score.classes = dict(zip(self._labels, f1.tolist(), strict=True))
        return score


def _plain(text: str, lowercase: bool) -> str:
    """The text with a single space between words, in lower case if `lowercase`."""
    return " ".join((text.lower() if lowercase else text).split())


def confusion(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> tuple[list[str], np.ndarray]:
    """The labels of the references, sorted, and the counts [C, C + 1] of reference (row) and hypothesis (column).

    The last column counts hypotheses that are no label. Spacing does not matter, nor case with `lowercase`.
    """
    taken, wanted = ([_plain(each, lowercase) for each in texts] for texts in (hypotheses, references))
    labels = sorted(set(wanted))
    number = {label: place for place, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels) + 1), dtype=int)
    for hypothesis, reference in zip(taken, wanted, strict=True):
        table[number[reference], number.get(hypothesis, len(labels))] += 1
    return labels, table
