"""Documents of the built-in grammar, in which the important sentences are known."""

import random
from typing import NamedTuple

from nmt.data.grammar.sentences import Pair, corpus
from nmt.errors import UserError

MOST_WORDS = 10  # of a sentence
_POOL = {"train": 8000, "val": 500, "test": 1500}  # distinct sentences for the documents of a split
_NEGATIVE = "negative "


class GrammarDocument(NamedTuple):
    """Sentences, and the numbers from 0 of the negative sentences, which alone determine a label or a summary."""

    sentences: tuple[Pair, ...]
    important: tuple[int, ...]

    @property
    def label(self) -> str:
        """The tense of the first negative sentence: past, present, future, perfect or modal."""
        return self.sentences[self.important[0]].kind.removeprefix(_NEGATIVE)


def documents(
    *,
    num_train: int,
    num_val: int,
    num_test: int,
    min_sentences: int,
    max_sentences: int,
    most_important: int,
    seed: int,
) -> dict[str, list[GrammarDocument]]:
    """Splits of random documents; no sentence is in two splits.

    A document has `min_sentences` to `max_sentences` sentences, of which 1 to `most_important` are negative. A sentence
    has at most `MOST_WORDS` words. All tenses of negative sentences are equally likely. Raises UserError if the numbers
    do not fit together.
    """
    if not 1 <= most_important <= min_sentences <= max_sentences:
        raise UserError(
            f"data.min_sentences={min_sentences} must be at least {most_important} and at most "
            f"data.max_sentences={max_sentences}"
        )
    sizes = {f"num_{split}": number for split, number in _POOL.items()}
    pools = corpus(**sizes, max_words=MOST_WORDS, seed=seed)
    rng = random.Random(seed)
    splits: dict[str, list[GrammarDocument]] = {}
    for split, number in (("train", num_train), ("val", num_val), ("test", num_test)):
        by_kind: dict[str, list[Pair]] = {}
        for pair in pools[split]:
            by_kind.setdefault(pair.kind if pair.kind.startswith(_NEGATIVE) else "", []).append(pair)
        others = by_kind.pop("")
        denials = [by_kind[kind] for kind in sorted(by_kind)]
        splits[split] = []
        for _ in range(number):
            size = rng.randint(min_sentences, max_sentences)
            important = sorted(rng.sample(range(size), rng.randint(1, most_important)))
            sentences = [
                rng.choice(rng.choice(denials) if place in important else others) for place in range(size)
            ]
            splits[split].append(GrammarDocument(tuple(sentences), tuple(important)))
    return splits
