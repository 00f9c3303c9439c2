"""Adverbials of time and place."""

import random

from nmt.data.grammar import lexicon
from nmt.data.grammar.derivation import Phrase, rule, word
from nmt.data.grammar.lexicon import Noun
from nmt.data.grammar.nominals import THIS_OR_THAT, count_noun, noun_of, possessive, with_adjective

# Upper bound of the random number, preposition, its Vietnamese, kinds of nouns
_PLACES = (
    (0.60, "in/1 P", "trong/1 P", ("inside", "house")),
    (0.82, "at/1 P", "ở/1 P", ("site",)),
    (0.92, "near/1 P", "gần/1 P", ("nature", "site", "inside")),
    (1.00, "behind/1 P", "sau/1 P", ("site", "inside")),
)


def time_phrase(rng: random.Random, tense: str) -> Phrase | None:
    """A time that goes with the tense, if any: yesterday, `hôm qua`; next week, `tuần sau`."""
    known = lexicon.TIMES.get({"must": "future", "should": "future"}.get(tense, tense))
    return rule(*rng.choice(known)) if known else None


def place_noun(rng: random.Random, noun: Noun, room: int) -> Phrase:
    """A place as a noun. After a preposition `the house` is `nhà`, but `this house` is `ngôi nhà này`."""
    choice = rng.random()
    if choice < 0.6 or room < 8:
        return rule("the N", "N", N=count_noun(noun, classifier=False))
    if choice < 0.75:
        return rule("the N", "N", N=with_adjective(rng, noun, count_noun(noun)))
    if choice < 0.88:
        return rule("D N", "N D", D=rng.choice(THIS_OR_THAT), N=count_noun(noun))
    return possessive(rng)(N=count_noun(noun))


def place_phrase(rng: random.Random, room: int, *, town: bool = False) -> Phrase:
    """A place: in the library, `trong thư viện`; in the city, `ở thành phố`; at the market, `ở chợ`."""
    choice = rng.random()
    if town or choice < 0.2:
        if rng.random() < 0.6:
            return rule("in/1 P", "ở/1 P", P=word(*rng.choice(lexicon.CITIES)))
        return rule("in/1 P", "ở/1 P", P=place_noun(rng, noun_of(rng, "town"), room))
    if choice < 0.28:
        return rule("at/1 home/2", "ở/1 nhà/2")
    _, english, vietnamese, kinds = next(row for row in _PLACES if choice < row[0])
    return rule(english, vietnamese, P=place_noun(rng, noun_of(rng, *kinds), room))


def destination(rng: random.Random) -> Phrase:
    if rng.random() < 0.3:
        return word(*rng.choice(lexicon.CITIES))
    return place_noun(rng, noun_of(rng, "inside", "site", "town"), 8)


def lying_place(rng: random.Random) -> Phrase:
    """The place of a thing: on the table, `trên bàn`; under the chair, `dưới ghế`; in the room, `trong phòng`."""
    preposition, vi = rng.choice((("on", "trên"), ("under", "dưới"), ("in", "trong")))
    noun = noun_of(rng, "house" if preposition == "in" else "furniture")
    return rule("Q P", "Q P", Q=word(preposition, vi), P=place_noun(rng, noun, 8))
