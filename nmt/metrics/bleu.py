"""BLEU, chrF and TER: sacreBLEU's metrics, with the types and ranges of their settings."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from nmt.config.types import Count, NonNegative
from nmt.errors import UserError

Order = Annotated[int, Field(ge=1, le=16)]  # of n-grams


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
