"""Translation scores on detokenised text, with sacreBLEU's own signatures."""

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from nmt.errors import UserError


class _FloatScores:
    """Scores as Python floats: sacreBLEU 2.6 cannot average resamples where NumPy's stand beside a plain 0.0."""

    def _compute_score_from_stats(self, stats: Any) -> Any:
        result = super()._compute_score_from_stats(stats)  # type: ignore[misc]
        result.score = float(result.score)
        return result


METRICS: dict[str, Any] = {
    "bleu": type("BLEU", (_FloatScores, BLEU), {}),
    "chrf": type("CHRF", (_FloatScores, CHRF), {}),
    "ter": type("TER", (_FloatScores, TER), {}),
}


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    names: Sequence[str] = ("bleu", "chrf", "ter"),
    num_bootstrap: int = 1000,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, dict[str, Any]]:
    """Corpus scores of hypotheses against one reference each: `{"bleu": {"score", "signature", "ci"}, …}`.

    bleu: Papineni et al. 2002, with sacreBLEU's `tokenize`. chrf: Popović 2015. ter: Snover et al. 2006, where
    lower is better; caseless, as sacreBLEU's own is. Each on a scale of 100. `lowercase` is for BLEU and chrF.
    ci: half the width of the 95 % bootstrap interval over `num_bootstrap` resamples of the sentences (Koehn
    2004), drawn from the seed in SACREBLEU_SEED, else 12345; None where `num_bootstrap` is 0. Raises UserError
    where the counts differ or are zero, and for a metric or a tokenisation that sacreBLEU has not.
    """
    for name in names:
        if name not in METRICS:
            raise UserError(f"no metric {name!r}: choose from {', '.join(METRICS)}")
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"no tokenisation {tokenize!r}: choose from {', '.join(map(str, BLEU.TOKENIZERS))}")
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    if not references:
        raise UserError("nothing to score: 0 sentences")
    # `force` only silences sacreBLEU's doubt whether text that ends in " ." is detokenised: it is as it was given.
    settings: dict[str, dict[str, Any]] = {
        "bleu": {"tokenize": tokenize, "lowercase": lowercase, "force": True},
        "chrf": {"lowercase": lowercase},
    }
    results = {}
    for name in names:
        metric = METRICS[name](**settings.get(name, {}))
        # Fewer than two resamples give no interval, and sacreBLEU then leaves them out of the signature.
        result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=max(1, num_bootstrap))
        results[name] = {
            "score": float(result.score),
            "signature": str(metric.get_signature()),
            "ci": float(result._ci) if num_bootstrap > 1 else None,
        }
    return results
