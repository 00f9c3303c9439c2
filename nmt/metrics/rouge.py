"""ROUGE, over the words of any script."""

import unicodedata
from importlib.metadata import version
from typing import Literal

from nmt.errors import UserError, install
from nmt.metrics.base import SentenceMean


class Rouge(SentenceMean):
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
