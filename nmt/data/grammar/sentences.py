"""Random sentences, and corpora of distinct sentences."""

import random
from typing import NamedTuple

from nmt.data.grammar import lexicon
from nmt.data.grammar.clauses import clause
from nmt.data.grammar.derivation import Phrase, rule
from nmt.data.grammar.questions import question, request
from nmt.errors import UserError

LANGUAGES = ("en", "vi")
ANNOTATIONS = ("core", "kind")  # targets of a derivation that are no translation
MIN_WORDS = 3
_TRIES = 3000  # draws in a row without a new sentence before an error


class Pair(NamedTuple):
    """A sentence and its translation. alignment: (i, j) for English word i and Vietnamese word j, sorted.

    core: the English main clause without relative clauses, time, place and manner, and without the second of joined
    verbs or objects. kind: past, negative modal, open question, prohibition, …
    """

    en: str
    vi: str
    alignment: tuple[tuple[int, int], ...]
    core: str
    kind: str


# In a clause of time Vietnamese leaves the past unmarked, and English the future.
_TIME_CLAUSE = {"past": "then", "present": "present", "future": "present"}
_TIME_OPENERS = ("when", "before", "after", "while")
_WHILE_CLAUSE = {"past": "was", "present": "progressive", "future": "progressive"}
_COORDINATIONS = tuple(sides for sides in lexicon.CONJUNCTIONS if ",/1" in sides[0])


def _subordinate(rng: random.Random, opener: str, room: int, era: str) -> Phrase:
    """The clause after `opener`, in its tense beside a main clause of this era."""
    if opener in _TIME_OPENERS:
        return clause(rng, room, era, tense=(_WHILE_CLAUSE if opener == "while" else _TIME_CLAUSE)[era])
    if opener == "if":
        return clause(rng, room, "present", timed=False)
    return clause(rng, room, era)


def statement(rng: random.Random, room: int, target: int) -> Phrase:
    """Clauses in a row, of about `target` words and at most `room`."""
    era = rng.choice(("present", "present", "past", "past", "future"))
    goal = min(target, room)
    coordinate_next = False
    if goal >= 12 and rng.random() < 0.25:  # if …, …
        sides = rng.choice(lexicon.FRONTED)
        opener = sides[0].strip("[").partition("/")[0]
        if opener == "if":
            era = "future"
        first = _subordinate(rng, opener, goal // 2 - 1, era)
        habit = "present" if opener in _TIME_OPENERS and era == "present" else None
        main = clause(rng, goal - first.size - 4, era, timed=False, tense=habit)
        found = rule(*sides, A=first, B=main)
        coordinate_next = True
    else:
        found = clause(rng, goal if goal < 16 else rng.randint(8, 16), era, front=True)
    while goal - found.size >= 7:
        sides = rng.choice(_COORDINATIONS if coordinate_next else lexicon.CONJUNCTIONS)
        opener = sides[0].split()[1].strip("[").partition("/")[0]
        if (opener == "if" and era != "future") or (opener in _TIME_OPENERS and era == "present"):
            continue
        space = goal - found.size - 3
        if opener == ",":
            era = rng.choice(("present", "past", "future")) if rng.random() < 0.15 else era
            added = clause(rng, min(space, rng.randint(7, 16)), era)
        else:
            added = _subordinate(rng, opener, min(space, rng.randint(7, 16)), era)
        coordinate_next = opener != ","
        found = rule(*sides, A=found, B=added)
    return found


def _draw(rng: random.Random, min_words: int, max_words: int) -> Pair | None:
    """A sentence, or None if its length is wrong."""
    target = min(max_words, 5 + int(rng.expovariate(1 / 9)))
    if min_words > MIN_WORDS:  # Vietnamese is the longer side, by a quarter
        target = max(target, min(max_words, min_words * 5 // 4 + 1))
    room = max_words - 1
    choice = rng.random()
    if choice < 0.22 and target < 22 and max_words >= 5:
        derived = question(rng, min(max_words, max(target, 8)))
    else:
        asks = choice < 0.26 and target < 18 and max_words >= 6
        said = request(rng, min(room, max(target, 6))) if asks else statement(rng, room, target)
        derived = rule("C ./1", "C ./1", C=said)
    if derived.size > max_words or min(len(derived.en), len(derived.vi)) < min_words:
        return None
    en, vi, core = (" ".join(words) for words in (derived.en, derived.vi, derived.core))
    return Pair(en, vi, tuple(sorted(derived.links)), core, derived.kind)


def sentence(rng: random.Random, *, max_words: int) -> Pair:
    """A random sentence of 3 to `max_words` words on either side. Raises UserError if max_words < 3."""
    _check_longest(max_words)
    while True:
        if pair := _draw(rng, MIN_WORDS, max_words):
            return pair


def _check_longest(max_words: int) -> None:
    if max_words < MIN_WORDS:
        raise UserError(f"max_words={max_words}: the shortest sentence has {MIN_WORDS} words")


def corpus(
    *, num_train: int, num_val: int, num_test: int, min_words: int = MIN_WORDS, max_words: int, seed: int
) -> dict[str, list[Pair]]:
    """Splits without repetition: no sentence of either language occurs twice, in one split or in two.

    Test, then validation are drawn first, so that they stay the same if only `num_train` differs. Raises UserError if
    there are too few sentences of these lengths.
    """
    _check_longest(max_words)
    for name, number in (("num_train", num_train), ("num_val", num_val), ("num_test", num_test)):
        if number < 0:
            raise UserError(f"{name}={number}: give at least 0")
    if min_words > max_words:
        raise UserError(f"min_words={min_words} is more than max_words={max_words}")
    rng = random.Random(seed)
    seen_en: set[str] = set()
    seen_vi: set[str] = set()
    splits: dict[str, list[Pair]] = {"train": [], "val": [], "test": []}
    for split, number in (("test", num_test), ("val", num_val), ("train", num_train)):
        fruitless = 0
        while len(splits[split]) < number:
            pair = _draw(rng, min_words, max_words)
            if pair is None or pair.en in seen_en or pair.vi in seen_vi:
                fruitless += 1
                if fruitless >= _TRIES:
                    asked = num_train + num_val + num_test
                    raise UserError(
                        f"found only {len(seen_en):,} distinct sentences of {min_words} to {max_words} words, "
                        f"but {asked:,} are asked for: raise max_words or ask for fewer"
                    )
                continue
            fruitless = 0
            seen_en.add(pair.en)
            seen_vi.add(pair.vi)
            splits[split].append(pair)
    return splits
