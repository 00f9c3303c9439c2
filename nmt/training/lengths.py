"""The length limit of the search, set from the training text, a warning of references above it, and the length
penalty, chosen on the validation set."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from sacrebleu.metrics.base import Metric

from nmt.comparison.significance import paired_tests
from nmt.data import encoding
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import DecodingSettings
from nmt.decoding.settings import LEAST_RATIO
from nmt.metrics import LABELS, best_of
from nmt.models.base import Translator
from nmt.run.data import references_of
from nmt.run.limits import count_above_limit, warn_of_limit
from nmt.run.run import Run
from nmt.run.translation import Translation

ALPHAS = tuple(each / 5 for each in range(11))  # 0 to 2
MOST_PAIRS = RESAMPLES = 1000

log = logging.getLogger(__name__)


def set_length_ratio(cfg: DictConfig, datamodule: TranslationDataModule) -> None:
    """Set `decoding.max_length_ratio` if it is null: the ratio of the training text, from 2 to `data.max_ratio`."""
    if cfg.decoding.max_length_ratio is None:
        ratio = encoding.length_ratio(*datamodule.training_lengths(), extra=cfg.decoding.max_length_extra)
        cfg.decoding.max_length_ratio = max(LEAST_RATIO, min(ratio, cfg.data.max_ratio))


def warn_of_long_references(
    decoding: DecodingSettings,
    translator: Translator,
    datamodule: TranslationDataModule,
    splits: dict[str, Any],
) -> None:
    """Warn of references that have more pieces than a translation may have, with their number in every split.

    Up to 0.1 % of the training pairs do not count: the limit measured on the training text leaves them out.
    """
    lengths = {"train": datamodule.training_lengths(), "val": datamodule.rows("val")[1:]}
    if "test" in splits:
        lengths["test"] = encoding.lengths(encoding.encode(splits["test"], datamodule.tokenizer))
    counts = {split: count_above_limit(decoding, translator, *each) for split, each in lengths.items()}
    if counts["train"] <= len(lengths["train"][0]) // 1000:
        counts["train"] = 0
    found = [
        f"{number:,} of {len(lengths[split][0]):,} in {split}" for split, number in counts.items() if number
    ]
    warn_of_limit(decoding, found)


def choose_length_alpha(
    run: Run, rows: Any, decoding: DecodingSettings, scorers: Mapping[str, Metric]
) -> float:
    """For `decoding.length_alpha=null`: the exponent of ALPHAS nearest to 1 among those that score as well as the best.

    The score is that of validation pairs `rows` by the scorer that the best checkpoint goes by, else by the first.
    As well: the difference is at most its standard error, by the paired bootstrap (the rule of Breiman et al. 1984,
    3.4.3). The best alone would be an accident of these pairs. Of many pairs, MOST_PAIRS are translated, evenly spaced.
    The hypotheses that a beam finishes do not depend on the exponent, so that one search serves all.
    """
    if decoding.beam_size == 1 or decoding.coverage_beta > 0 or not scorers:
        return decoding.length_alpha
    rows = encoding.sample_rows(rows, MOST_PAIRS)
    found = run.translate(
        list(rows["src"]),
        replace(decoding, length_alpha=1.0),
        num_best=decoding.beam_size,
        need_weights=False,
        show_progress=True,
    )
    name = str(OmegaConf.select(run.config, "callbacks.checkpoint.monitor")).removeprefix("val/")
    if name not in scorers:
        name = next(iter(scorers))
    texts = [[_best(each, alpha) for each in found] for alpha in ALPHAS]
    tests = paired_tests(
        {name: scorers[name]}, texts, references_of(rows), num_bootstrap=RESAMPLES, num_trials=1
    )
    scores = {alpha: each[name]["score"] for alpha, each in zip(ALPHAS, tests, strict=True)}
    resampled = {alpha: each[name]["resampled"] for alpha, each in zip(ALPHAS, tests, strict=True)}
    best = (max if best_of(scorers[name]) == "max" else min)(ALPHAS, key=lambda alpha: scores[alpha])
    chosen = nearest_to_one(scores, resampled, best)
    log.info(
        "decoding.length_alpha=%s: %s of validation %.2f (with 1.0: %.2f; the best, with %s: %.2f)",
        *(chosen, LABELS.get(name, name), scores[chosen], scores[1.0], best, scores[best]),
    )
    return chosen


def nearest_to_one(scores: Mapping[float, float], resampled: Mapping[float, Any], best: float) -> float:
    """The exponent nearest to 1 whose score is within a standard error of that of `best`; of two, the better.

    resampled: the scores of every exponent on the same resamples.
    """
    worse = {alpha: abs(score - scores[best]) for alpha, score in scores.items()}
    as_good = [each for each in scores if worse[each] <= np.std(resampled[each] - resampled[best])]
    return min(as_good, key=lambda alpha: (round(abs(alpha - 1), 6), worse[alpha]))


def _best(found: Translation, alpha: float) -> str:
    """The text of the n-best list, scored with a length_alpha of 1, that another alpha ranks first."""

    def score(each: Translation) -> float:
        penalty = each.log_prob / each.score if each.log_prob else 1.0
        return each.log_prob / penalty**alpha

    return max((found, *found.others), key=score).text
