"""Scores of hypotheses against one or several sets of references, and the digest of the text that was scored."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics.base import Metric

from nmt.errors import UserError, check_lines

References = Sequence[str] | Sequence[Sequence[str]]  # a reference per hypothesis, or several sets


def score_with(
    metrics: Mapping[str, Metric],
    hypotheses: Sequence[str],
    references: References,
    *,
    num_bootstrap: int,
) -> dict[str, dict[str, Any]]:
    """Corpus scores of hypotheses against their references: `{"bleu": {"score", "signature", "ci"}, …}`.

    ci: half the width of the 95 % bootstrap interval over `num_bootstrap` resamples of the sentences (Koehn 2004),
    drawn from the seed in SACREBLEU_SEED, else 12345; None if `num_bootstrap` is below 2. Raises UserError if the
    counts differ or are zero.
    """
    check_lines(hypotheses=hypotheses, references=references)
    sets = reference_sets(references)
    if len(hypotheses) != len(sets[0]):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(sets[0])} references")
    if not hypotheses:
        raise UserError("nothing to score: 0 sentences")
    results = {}
    for name, metric in metrics.items():
        metric.n_bootstrap = metric.seed = None  # else the signature has those of the last call
        # Fewer than two resamples give no interval, and sacreBLEU then leaves them out of the signature.
        result = metric.corpus_score(list(hypotheses), sets, n_bootstrap=max(1, num_bootstrap))
        results[name] = {
            "score": float(result.score),
            "signature": str(metric.get_signature()),
            "ci": float(result._ci) if num_bootstrap > 1 else None,
            **({"classes": result.classes} if hasattr(result, "classes") else {}),
        }
    return results


def reference_sets(references: References) -> list[list[Any]]:
    """The references as a list of sets. Of several sets, an empty line is None: no reference."""
    if not references or isinstance(references[0], str):
        return [list(references)]
    rows = zip(*references, strict=True)
    filled = [[text or None for text in row] if any(row) else row for row in rows]
    return list(map(list, zip(*filled, strict=True)))


def digest(sources: Sequence[str], references: References) -> str:
    """`sha256:…` of sources and references. Scores with the same digest compare."""
    texts = [list(sources), *reference_sets(references)]
    text = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
