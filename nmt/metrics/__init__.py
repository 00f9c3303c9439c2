"""Metrics of detokenised text: scores with signatures and intervals.

A metric is a sacreBLEU `Metric`, which counts per sentence. The same resamples of the sentences thus serve the
intervals and the paired tests of every metric here, ROUGE and exact match included.
"""

from nmt.metrics.base import LABELS, best_of, label
from nmt.metrics.bleu import Bleu, Chrf, Ter
from nmt.metrics.classification import ExactMatch, MacroF1, confusion
from nmt.metrics.corpus_score import References, digest, reference_sets, score_with
from nmt.metrics.rouge import Rouge, words_of_any_script
