"""Noun phrases and verb phrases, which may contain each other: someone opens the book that someone reads."""

import random
from typing import Any

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
    noun_of,
    number,
    other_name,
    other_pronoun,
    person_name,
    possessive,
    pronoun_subject,
    simple_person,
    the,
    with_adjective,
)
from nmt.data.grammar.predicates import Act, act_of, add_adverbial, add_complement, clause_of, predicate

# Kinds without a bare plural: their Vietnamese needs its classifier
_SINGLE = ("person", "song", "task", "show", "house", "town", "inside", "site", "nature", "opening")
# People with an owner: my teacher
_SOMEONES = ("teacher", "student", "doctor", "driver", "neighbour", "friend", "guest")
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
    choice = rng.random()
    phrase, plural = _add_determiner(
        rng, noun, choice, described=room >= 7, definite=definite, generic=generic
    )
    agr = "p" if plural else "3"
    if relative and room >= 14 and choice < 0.62 and rng.random() < 0.3:
        phrase = rule("N [R]", "N R", N=phrase, R=relative_clause(rng, noun, agr))
    return NounPhrase(phrase, agr, noun.kind, noun.singular)


def _add_determiner(
    rng: random.Random, noun: Noun, choice: float, *, described: bool, definite: bool, generic: bool
) -> tuple[Phrase, bool]:
    """A noun with the determiner for the number `choice`, and True if it is plural."""

    def nominal(**how: Any) -> Phrase:
        head = count_noun(noun, **how)
        return with_adjective(rng, noun, head) if rng.random() < 0.35 * described else head

    if choice < 0.30:  # the book, `quyển sách`; the books, `những quyển sách`
        plural = rng.random() < 0.3
        return rule("the N", "N", N=nominal(plural=plural, marker=plural)), plural
    if choice < 0.48 and not definite:
        if generic and rng.random() < 0.4:
            return nominal(plural=True, classifier=False), True
        return article(nominal()), False
    owned = noun.kind != "person" or noun.singular in _SOMEONES
    if choice < 0.62 or (choice < 0.80 and not owned):
        # this old book, `quyển sách cũ này`; those books, `những quyển sách đó`
        plural = rng.random() < 0.35
        near = rng.random() < 0.5
        english = ("these" if plural else "this") if near else ("those" if plural else "that")
        determiner = word(english, "này" if near else "đó")
        return rule("D N", "N D", D=determiner, N=nominal(plural=plural, marker=plural)), plural
    if choice < 0.80:
        plural = rng.random() < 0.25
        return possessive(rng)(N=nominal(plural=plural, marker=plural)), plural
    if choice < 0.88:  # three books, `ba quyển sách`
        return rule("Q N", "Q N", Q=number(rng), N=nominal(plural=True)), True
    if choice < 0.95:
        english, vietnamese, marker = rng.choice(_QUANTIFIERS)
        return rule(english, vietnamese, N=nominal(plural=True, marker=marker)), True
    if superlatives := [(adj, vi) for adj, vi in lexicon.adjectives_for(noun) if adj.superlative]:
        adjective, vi = rng.choice(superlatives)  # the oldest book, `quyển sách cũ nhất`
        return rule("the A N", "N A", A=word(adjective.superlative, f"{vi} nhất"), N=count_noun(noun)), False
    return rule("every/1 N", "mỗi/1 N", N=nominal()), False  # every teacher, `mỗi giáo viên`


def relative_clause(rng: random.Random, noun: Noun, agr: str) -> Phrase:
    """The student who reads the book, `học sinh mà đọc quyển sách`; the book that Lan bought, `… mà Lan đã mua`."""
    tense = rng.choice(("present", "past", "progressive"))
    verbs = [(verb, sense) for verb in lexicon.TRANSITIVES if (sense := verb.sense(noun))]
    if noun.kind in lexicon.ANIMATE and (not verbs or rng.random() < 0.6):
        pronoun = "who" if noun.kind == "person" else "that"
        act = action(rng, NounPhrase(EMPTY, agr, noun.kind, noun.singular), 6)
        return rule(f"{pronoun}/1 V", "mà/1 V", V=predicate(act, tense, agr))
    seeing = (lexicon.SEE, "nhìn thấy")  # if no verb takes it, it can be seen
    if not verbs:
        return rule("that/1 V", "mà/1 V", V=predicate(act_of(*seeing), tense, agr))
    who = simple_person(rng)
    theirs = [each for each in verbs if who.kind in each[0].subjects or who.name in each[0].subjects]
    act = act_of(*rng.choice(theirs or [seeing]))
    return clause_of(who, "that/1 S V", "mà/1 S V", V=predicate(act, tense, who.agr))


def subject(rng: random.Random, room: int) -> NounPhrase:
    """A subject: mostly people, sometimes animals."""
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
        right = word(*second) if rng.random() < 0.4 else the(noun_of(rng, "person"))
        return NounPhrase(rule("A and/1 B", "A và/1 B", A=word(*first), B=right), "p", "person", "")
    kinds = ("person",) if choice < 0.87 else ("animal", "animal", "bird")
    return noun_phrase(rng, noun_of(rng, *kinds), room)


def object_phrase(rng: random.Random, verb: Verb, noun: Noun | Mass, room: int, who: NounPhrase) -> Phrase:
    """An object other than `who`. It is a pronoun only if the verb translates alike before every noun."""
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
        objects = [each for each, sense in lexicon.objects_of(verb) if sense == verb.sense(noun)]
        counted = [each for each in objects if isinstance(each, Noun) and each is not noun]
        if counted and "mà" not in found.vi:
            right = noun_phrase(rng, rng.choice(counted), 6, generic=generic).phrase
            return rule("A [and/1 B]", "A và/1 B", A=found, B=right)
    return found


def action(rng: random.Random, who: NounPhrase, room: int, *, state: bool = True, place: bool = True) -> Act:
    """An act that `who` can do, with its object, manner and place."""
    act = _action(rng, who, room, state)
    if place and "place" in act.verb.flags and room >= 6 and rng.random() < 0.3:
        return add_adverbial(act, place_phrase(rng, room))
    return act


def _action(rng: random.Random, who: NounPhrase, room: int, state: bool) -> Act:
    choice = rng.random()
    if who.kind == "person" and choice >= 0.76 and room >= 6:
        return special_action(rng, who, choice, room, state)
    verbs = lexicon.verbs_for(who.kind, who.name, False) if choice < 0.66 and room >= 3 else ()
    if verbs := tuple(verb for verb in verbs if state or "state" not in verb.flags):
        verb = rng.choice(verbs)
        others = [each for each in lexicon.objects_of(verb) if each[0].singular != who.name]
        noun, sense = rng.choice(others)  # no dog chases the dog
        act = act_of(verb, sense, object_phrase(rng, verb, noun, room, who))
    else:
        verb = rng.choice(lexicon.verbs_for(who.kind, who.name, True))
        act = act_of(verb)
    manners = [manner for manner in lexicon.MANNERS.items() if manner[0] in verb.flags]
    if manners and room >= 9 and rng.random() < 0.25:  # carefully, `một cách cẩn thận`
        return add_adverbial(act, word(*rng.choice(manners)))
    return act


def special_action(rng: random.Random, who: NounPhrase, choice: float, room: int, state: bool) -> Act:
    """An act of people with a special frame: go somewhere, give something, learn, live."""
    if choice < 0.84:  # goes to the market, `đi đến chợ`
        act = act_of(rng.choice(lexicon.MOTIONS))
        return add_complement(act, rule("to/1 P", "đến/1 P", P=destination(rng)))
    if choice < 0.91:  # gives a book to the child, `đưa một quyển sách cho đứa trẻ`
        verb = rng.choice(lexicon.GIVINGS)
        noun, sense = rng.choice(lexicon.objects_of(verb))
        assert isinstance(noun, Noun)
        act = act_of(verb, sense, noun_phrase(rng, noun, min(room, 8), relative=False).phrase)
        if rng.random() < 0.4:
            to = other_pronoun(rng, who)
        else:
            to = rng.choice((other_name(rng, who), kin(rng).phrase, the(noun_of(rng, "person"))))
        return add_complement(act, rule("to/1 R", "cho/1 R", R=to))
    if choice < 0.96 or not state:  # learns Vietnamese, `học tiếng Việt`
        verb = lexicon.LEARN if rng.random() < 0.6 else lexicon.TEACH
        return act_of(verb, thing=word(*rng.choice(lexicon.SUBJECTS)))
    # lives in Hanoi, `sống ở Hà Nội`
    return add_complement(act_of(lexicon.LIVE), place_phrase(rng, room, town=True))
