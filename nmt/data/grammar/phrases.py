"""Noun phrases and verb phrases, which hold each other: what someone does to the book that someone reads."""

import random
from functools import partial

from nmt.data.grammar import lexicon
from nmt.data.grammar.adverbials import destination, place_phrase
from nmt.data.grammar.derivation import EMPTY, Phrase, rule, word
from nmt.data.grammar.lexicon import Mass, Noun, Verb
from nmt.data.grammar.nominals import (
    NounPhrase,
    article,
    count_noun,
    kin,
    mass_phrase,
    other_name,
    other_pronoun,
    person_name,
    possessor,
    pronoun_subject,
    simple_person,
    the_person,
    with_adjective,
)
from nmt.data.grammar.predicates import Act, fits, followed, modified, predicate, seen, verb_with

# Not spoken of in general here, since their Vietnamese needs its classifier.
_SINGLE = (
    "person",
    "song",
    "task",
    "show",
    "house",
    "town",
    "inside",
    "site",
    "nature",
    "opening",
)
_SOMEONES = ("teacher", "student", "doctor", "driver", "neighbour", "friend", "guest")  # who may be `my` one
_QUANTIFIERS = (
    ("many/1 N", "nhiều/1 N", False),
    ("a few/1 N", "vài/1 N", False),
    ("all/1 the N", "tất/1 cả/1 N", True),
)


def noun_phrase(
    rng: random.Random,
    noun: Noun,
    room: int,
    *,
    definite: bool = False,
    generic: bool = False,
    relative: bool = True,
) -> NounPhrase:
    """A noun with determiner, adjectives and perhaps a relative clause.

    definite: neither `a` nor a bare plural. generic: a bare plural is possible (he sells books, `bán sách`).
    """
    adjectives = 0.35 if room >= 7 else 0.0

    def nominal(*, plural: bool, classifier: bool = True, marker: bool = False) -> Phrase:
        head = count_noun(noun, plural=plural, classifier=classifier, marker=marker)
        return with_adjective(rng, noun, head) if rng.random() < adjectives else head

    choice = rng.random()
    plural = False
    owned = noun.kind != "person" or noun.singular in _SOMEONES
    if choice < 0.30:  # the book, `quyển sách`; the books, `những quyển sách`
        plural = rng.random() < 0.3
        phrase = rule("the N", "N", N=nominal(plural=plural, marker=plural))
    elif choice < 0.48 and not definite:
        if generic and rng.random() < 0.4:
            plural = True
            phrase = nominal(plural=True, classifier=False)
        else:
            phrase = article(nominal(plural=False))
    elif choice < 0.62 or (choice < 0.80 and not owned):
        # this old book, `quyển sách cũ này`; those books, `những quyển sách đó`
        plural = rng.random() < 0.35
        near = rng.random() < 0.5
        determiner = (
            (("these" if plural else "this"), "này") if near else (("those" if plural else "that"), "đó")
        )
        phrase = rule("D N", "N D", D=word(*determiner), N=nominal(plural=plural, marker=plural))
    elif choice < 0.80:
        plural = rng.random() < 0.25
        english, vietnamese, parts = possessor(rng)
        phrase = rule(english, vietnamese, N=nominal(plural=plural, marker=plural), **parts)
    elif choice < 0.88:  # three books, `ba quyển sách`
        plural = True
        phrase = rule("Q N", "Q N", Q=word(*rng.choice(lexicon.NUMBERS)), N=nominal(plural=True))
    elif choice < 0.95:
        plural = True
        english, vietnamese, marker = rng.choice(_QUANTIFIERS)
        phrase = rule(english, vietnamese, N=nominal(plural=True, marker=marker))
    else:
        superlatives = [(adj, vi) for adj, vi in lexicon.adjectives_for(noun) if adj.superlative]
        if superlatives:  # the oldest book, `quyển sách cũ nhất`
            adjective, vi = rng.choice(superlatives)
            best = word(adjective.superlative, f"{vi} nhất")
            phrase = rule("the A N", "N A", A=best, N=count_noun(noun, plural=False))
        else:  # every teacher, `mỗi giáo viên`
            phrase = rule("every/1 N", "mỗi/1 N", N=nominal(plural=False))
    agr = "p" if plural else "3"
    if relative and room >= 14 and choice < 0.62 and rng.random() < 0.3:
        phrase = rule("N [R]", "N R", N=phrase, R=relative_clause(rng, noun, agr))
    return NounPhrase(phrase, agr, noun.kind, noun.singular)


def relative_clause(rng: random.Random, noun: Noun, agr: str) -> Phrase:
    """The student who reads the book, `học sinh mà đọc quyển sách`; the book that Lan bought, `… mà Lan đã mua`."""
    tense = rng.choice(("present", "past", "progressive"))
    verbs = [(verb, sense) for verb in lexicon.TRANSITIVES if (sense := verb.sense(noun))]
    if noun.kind in lexicon.ANIMATE and (not verbs or rng.random() < 0.6):
        pronoun = "who" if noun.kind == "person" else "that"
        act = action(rng, NounPhrase(EMPTY, agr, noun.kind, noun.singular), 6)
        return rule(f"{pronoun}/1 V", "mà/1 V", V=predicate(act, tense, agr))
    if not verbs:
        return rule("that/1 V", "mà/1 V", V=predicate(seen(noun), tense, agr))
    subject = simple_person(rng)
    verb, sense = rng.choice([(v, s) for v, s in verbs if fits(v, subject)] or [(lexicon.SEE, "nhìn thấy")])
    act = Act(verb, partial(verb_with, verb, sense, EMPTY))
    return rule("that/1 S V", "mà/1 S V", S=subject.phrase, V=predicate(act, tense, subject.agr))


def subject(rng: random.Random, room: int) -> NounPhrase:
    """Who acts: people mostly, animals at times."""
    choice = rng.random()
    if room < 6:
        choice *= 0.5
    if choice < 0.27:
        return pronoun_subject(rng.choice(lexicon.PRONOUNS[: None if rng.random() < 0.3 else 6]))
    if choice < 0.38:
        return person_name(rng)
    if choice < 0.46:
        return kin(rng)
    if choice < 0.50 or room < 8:
        return simple_person(rng)
    if choice < 0.57:  # Lan and the teacher, `Lan và giáo viên`
        first, second = rng.sample(lexicon.NAMES, 2)
        right = word(second, second) if rng.random() < 0.4 else the_person(rng)
        return NounPhrase(rule("A and/1 B", "A và/1 B", A=word(first, first), B=right), "p", "person", "")
    kind = "person" if choice < 0.87 else rng.choice(("animal", "animal", "bird"))
    return noun_phrase(rng, rng.choice(lexicon.NOUNS_OF_KIND[kind]), room)


def object_phrase(rng: random.Random, verb: Verb, noun: Noun | Mass, room: int, who: NounPhrase) -> Phrase:
    """What is acted on, and is not `who`. A pronoun only where the verb translates alike before every noun."""
    if isinstance(noun, Mass):
        return mass_phrase(rng, noun)
    choice = rng.random()
    if noun.kind == "person" and choice < 0.5:
        if choice < 0.3 and verb.one_sense:
            return other_pronoun(rng, who)
        return other_name(rng, who) if choice < 0.4 else kin(rng).phrase
    if choice < 0.06 and verb.one_sense:
        return word("it", "nó")
    generic = noun.kind not in _SINGLE
    found = noun_phrase(rng, noun, room, generic=generic).phrase
    if room >= 12 and choice > 0.92:  # the book and a pen, `quyển sách và một cây bút`
        others = [
            other for other, sense in lexicon.objects_of(verb) if other != noun and sense == verb.sense(noun)
        ]
        counted = [other for other in others if isinstance(other, Noun)]
        if counted and "mà" not in found.vi:
            right = noun_phrase(rng, rng.choice(counted), 6, generic=generic).phrase
            return rule("A [and/1 B]", "A và/1 B", A=found, B=right)
    return found


def action(rng: random.Random, who: NounPhrase, room: int, *, state: bool = True, place: bool = True) -> Act:
    """Something that `who` can do, with its object, manner and place."""
    choice = rng.random()
    if choice < 0.66 and room >= 3:
        verbs = [
            verb
            for verb in lexicon.verbs_for(who.kind, who.name, False)
            if state or "state" not in verb.flags
        ]
    else:
        verbs = []
    if who.kind == "person" and choice >= 0.76 and room >= 6:
        return perhaps_with_place(rng, special_action(rng, who, choice, room, state), room, place=place)
    if verbs:
        verb = rng.choice(verbs)
        others = [
            each
            for each in lexicon.objects_of(verb)
            if not (isinstance(each[0], Noun) and each[0].singular == who.name)
        ]
        noun, sense = rng.choice(others)  # no dog chases the dog
        act = Act(verb, partial(verb_with, verb, sense, object_phrase(rng, verb, noun, room, who)))
    else:
        verb = rng.choice(lexicon.verbs_for(who.kind, who.name, True))
        act = Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY))
    manners = [manner for manner in lexicon.MANNERS.items() if manner[0] in verb.flags]
    if manners and room >= 9 and rng.random() < 0.25:  # carefully, `một cách cẩn thận`
        act = modified(act, word(*rng.choice(manners)))
    return perhaps_with_place(rng, act, room, place=place)


def perhaps_with_place(rng: random.Random, act: Act, room: int, *, place: bool) -> Act:
    if place and "place" in act.verb.flags and room >= 6 and rng.random() < 0.3:
        return modified(act, place_phrase(rng, room))
    return act


def special_action(rng: random.Random, who: NounPhrase, choice: float, room: int, state: bool) -> Act:
    """What people do with a frame of its own: go somewhere, give something, learn, live, become."""
    if choice < 0.84:  # goes to the market, `đi đến chợ`
        verb = rng.choice(lexicon.MOTIONS)
        where = rule("to/1 P", "đến/1 P", P=destination(rng))
        return followed(Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY)), where)
    if choice < 0.91:  # gives a book to the child, `đưa một quyển sách cho đứa trẻ`
        verb = rng.choice(lexicon.GIVINGS)
        noun, sense = rng.choice(lexicon.objects_of(verb))
        assert isinstance(noun, Noun)
        thing = noun_phrase(rng, noun, min(room, 8), relative=False).phrase
        if rng.random() < 0.4:
            to = other_pronoun(rng, who)
        else:
            to = rng.choice((other_name(rng, who), kin(rng).phrase, the_person(rng)))
        return followed(Act(verb, partial(verb_with, verb, sense, thing)), rule("to/1 R", "cho/1 R", R=to))
    if choice < 0.96 or not state:  # learns Vietnamese, `học tiếng Việt`
        verb = lexicon.LEARN if rng.random() < 0.6 else lexicon.TEACH
        thing = word(*rng.choice(lexicon.SUBJECTS))
        return Act(verb, partial(verb_with, verb, verb.senses[""], thing))
    verb = lexicon.LIVE  # lives in Hanoi, `sống ở Hà Nội`
    return followed(
        Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY)), place_phrase(rng, room, town=True)
    )
