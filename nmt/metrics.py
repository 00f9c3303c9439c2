"""Metrics of detokenised text: scores with signatures and intervals.

A metric is a sacreBLEU `Metric`, which counts per sentence. The same resamples of the sentences thus serve the
intervals and the paired tests of every metric here, ROUGE and exact match included.
"""

import hashlib
import json
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from nmt.config.types import Count, NonNegative
from nmt.errors import UserError, check_lines, install

References = Sequence[str] | Sequence[Sequence[str]]  # a reference per hypothesis, or several sets

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


Order = Annotated[int, Field(ge=1, le=16)]  # of n-grams


def best_of(metric: Metric) -> Literal["min", "max"]:
    """The best of several scores by a metric: the highest, unless the metric has `higher_is_better = False`."""
    return "max" if getattr(metric, "higher_is_better", True) else "min"


class _FloatScores:
    """Scores as Python floats: sacreBLEU 2.6 cannot average NumPy's floats with a plain 0.0 among them."""

    def _compute_score_from_stats(self, stats: Any) -> Any:
        result = super()._compute_score_from_stats(stats)  # type: ignore[misc]
        result.score = float(result.score)
        return result


class Bleu(_FloatScores, BLEU):
    """BLEU (Papineni et al. 2002) on a scale of 100, with sacreBLEU's tokenisation `tokenize`.

    The other settings are sacreBLEU's. Raises UserError if the tokenisation does not exist, or if its package or model
    is missing.
    """

    def __init__(
        self,
        *,
        tokenize: str,
        lowercase: bool,
        smooth_method: Literal["exp", "floor", "add-k", "none"] = "exp",
        smooth_value: NonNegative | None = None,
        max_ngram_order: Order = 4,
        effective_order: bool = False,
    ) -> None:
        if tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(map(str, BLEU.TOKENIZERS))
            raise UserError(f"no tokenisation {tokenize!r}: choose from {known}")
        model = SPM_MODELS.get(tokenize)
        if model is not None and not Path(SACREBLEU_DIR, "models", Path(model["url"]).name).exists():
            raise UserError(
                f"metrics.bleu.tokenize={tokenize} needs a model, which a run does not fetch by itself: fetch it "
                f"with python -c \"import sacrebleu; sacrebleu.BLEU(tokenize='{tokenize}')\""
            )
        if smooth_value is not None and BLEU.SMOOTH_DEFAULTS[smooth_method] is None:
            raise UserError(
                f"smooth_value={smooth_value} has no effect with smooth_method={smooth_method}: leave it out"
            )
        try:
            super().__init__(
                tokenize=tokenize,
                lowercase=lowercase,
                smooth_method=smooth_method,
                smooth_value=smooth_value,
                max_ngram_order=max_ngram_order,
                effective_order=effective_order,
                force=True,  # no warning of sacreBLEU that text ending in " ." is tokenised
            )
        except RuntimeError as error:  # of ja-mecab and ko-mecab
            raise UserError(
                f"metrics.bleu.tokenize={tokenize} needs MeCab: pip install 'sacrebleu[{tokenize[:2]}]', or give "
                "metrics.bleu.tokenize=char"
            ) from error


class Chrf(_FloatScores, CHRF):
    """chrF (Popović 2015) on a scale of 100, with sacreBLEU's settings: F2 over character n-grams up to 6.

    With `word_order=2` it is chrF++ (Popović 2017), over n-grams of words too.
    """

    def __init__(
        self,
        *,
        lowercase: bool,
        char_order: Order = 6,
        word_order: Annotated[int, Field(ge=0, le=16)] = 0,
        beta: Count = 2,
        whitespace: bool = False,
        eps_smoothing: bool = False,
    ) -> None:
        super().__init__(
            lowercase=lowercase,
            char_order=char_order,
            word_order=word_order,
            beta=beta,
            whitespace=whitespace,
            eps_smoothing=eps_smoothing,
        )


class Ter(_FloatScores, TER):
    """TER (Snover et al. 2006): edits per hundred reference words, so lower is better; with sacreBLEU's settings.

    `asian_support` with `normalized` takes each Chinese character for a word.
    """

    higher_is_better = False

    def __init__(
        self,
        *,
        normalized: bool = False,
        no_punct: bool = False,
        asian_support: bool = False,
        case_sensitive: bool = False,
    ) -> None:
        if asian_support and not (normalized or no_punct):
            raise UserError(
                "metrics.ter.asian_support=true has no effect without metrics.ter.normalized=true or no_punct=true"
            )
        super().__init__(
            normalized=normalized,
            no_punct=no_punct,
            asian_support=asian_support,
            case_sensitive=case_sensitive,
        )


class _SentenceMean(Metric):
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


class ExactMatch(_SentenceMean):
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


class Rouge(_SentenceMean):
    """ROUGE (Lin 2004) by the package rouge-score: the mean F1 over sentences, on a scale of 100.

    `kind` is rouge1, rouge2 (n-grams) or rougeL (longest common subsequence). Words are those of
    `words_of_any_script`, without stemming. Raises UserError without the package.
    """

    def __init__(self, *, kind: Literal["rouge1", "rouge2", "rougeL"]) -> None:
        try:  # imported here: only ROUGE needs the package
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError as error:
            raise UserError(f"ROUGE needs the package rouge-score: {install('summarization')}") from error
        super().__init__(
            kind, {"case": "lc", "tok": "unicode", "stem": "no", "rouge-score": version("rouge-score")}
        )
        self._scorer = RougeScorer([kind], tokenizer=_UnicodeTokenizer())

    def value(self, hypothesis: str, reference: str) -> float:
        return float(self._scorer.score(reference, hypothesis)[self.name].fmeasure)


class _UnicodeTokenizer:
    """Words of any script. rouge-score's tokenizer keeps only a-z and 0-9, and drops most of a Vietnamese sentence."""

    def tokenize(self, text: str) -> list[str]:
        return words_of_any_script(text)


def words_of_any_script(text: str) -> list[str]:
    """Lower-case runs of letters, marks and digits of any script, composed (NFC): `Đi 3 nhà!` → đi, 3, nhà.

    On ASCII this is rouge-score's tokenisation. A script written without spaces (Chinese, Japanese, Thai) gives a word
    per run: split such text into words first.
    """
    composed = unicodedata.normalize("NFC", text.lower())
    return "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in composed).split()


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
