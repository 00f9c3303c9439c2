"""Clauses: actions, sayings and states."""

import random

from nmt.data.grammar import lexicon
from nmt.data.grammar.adverbials import lying_place, time_phrase
from nmt.data.grammar.derivation import Phrase, rule, word
from nmt.data.grammar.nominals import (
    NounPhrase,
    article,
    count_noun,
    described_noun,
    noun_of,
    number,
    person_name,
    pronoun_subject,
    simple_person,
    single_person,
    the,
    with_adjective,
)
from nmt.data.grammar.phrases import action, noun_phrase, subject
from nmt.data.grammar.predicates import ACTIVE, Act, act_of, clause_of, predicate, set_kind

_ERAS = {
    "present": ("present",) * 8
    + ("progressive",) * 4
    + ("can", "can", "must", "should", "want", "want", "already", "just", "ever", "perfect"),
    "past": ("past",),
    "future": ("future",) * 4 + ("must", "should"),
}
_NEGATABLE = ("present", "past", "future", "can", "must", "should", "want")


def clause(
    rng: random.Random,
    room: int,
    era: str,
    *,
    front: bool = False,
    timed: bool = True,
    tense: str | None = None,
) -> Phrase:
    """A clause of at most `room` words on either side (at least 2).

    front: a time may stand first, with a comma. tense: for a clause beside a main clause, its tense; the clause then
    tells of an event.
    """
    for _ in range(12):
        if tense is not None:
            found = verbal_clause(rng, room, tense, front=False, timed=False, plain=False)
        elif era == "present" and room >= 5 and rng.random() < 0.22:
            found = stative_clause(rng, room)
        else:
            found = verbal_clause(rng, room, rng.choice(_ERAS[era]), front=front, timed=timed)
        if found.size <= room:
            return found
    act = act_of(rng.choice(lexicon.verbs_for("animal", "", True)))
    who = pronoun_subject(rng.choice(lexicon.SHORT_PRONOUNS))
    return clause_of(who, "S V", "S V", V=predicate(act, "present", who.agr))


def verbal_clause(
    rng: random.Random, room: int, tense: str, *, front: bool, timed: bool, plain: bool = True
) -> Phrase:
    """Subject, verb, object, place and time; Vietnamese puts the time first. plain: a state or a negation is possible.

    he bought a book at the market yesterday, `hôm qua anh ấy đã mua một quyển sách ở chợ`
    """
    if plain and room >= 12 and tense in ("present", "past") and rng.random() < 0.1:
        return saying_clause(rng, room, tense)
    if plain and room >= 10 and tense == "past" and rng.random() < 0.08:
        return passive_clause(rng, room)
    who = subject(rng, room)
    rest = room - who.phrase.size
    simple = tense == "already"  # `rồi` closes the clause: nothing long may stand before it
    state = plain and tense not in ACTIVE
    act = action(rng, who, min(rest, 6) if simple else rest, state=state, place=not simple)
    joined = None
    if rest >= 12 and not simple and tense != "perfect" and rng.random() < 0.12:
        joined = _join(act, action(rng, who, rest // 2, state=state))
    if who.kind != "person" and tense in ("must", "should"):
        tense = "can"
    negative = tense == "perfect" or (tense in _NEGATABLE and plain and not joined and rng.random() < 0.2)
    act = joined or act
    said = predicate(act, tense, who.agr, negative=negative)
    is_state = "state" in act.verb.flags
    if tense == "present" and plain and not negative and room >= 5 and rng.random() < 0.2:
        often, vi = rng.choice(lexicon.FREQUENCIES[-2:] if is_state else lexicon.FREQUENCIES)
        said = set_kind(rule("F V", "F V", F=word(often, vi), V=said), tense, negative=often == "never")
    elif timed and rest >= 5 and not is_state and rng.random() < 0.4 and (time := time_phrase(rng, tense)):
        if front and rng.random() < 0.35:
            return clause_of(who, "[T ,/1] S V", "T ,/1 S V", T=time, V=said)
        if "mà" not in said.vi:  # after a relative clause the time would seem to belong to that clause
            return clause_of(who, "S V [T]", "T S V", T=time, V=said)
    return clause_of(who, "S V", "S V", V=said)


def _join(first: Act, second: Act) -> Act | None:
    """Two acts of the same subject; None if both have the same verb, or if a past form looks like the present."""
    verbs = first.verb, second.verb
    if verbs[0].base == verbs[1].base or any(verb.past == verb.base for verb in verbs):
        return None

    def build(form: str, marker: str) -> Phrase:
        return rule("A [and/1 B]", "A và/1 B", A=first.build(form, marker), B=second.build(form, marker))

    return Act(verbs[0] if "state" in verbs[0].flags else verbs[1], build)


def saying_clause(rng: random.Random, room: int, tense: str) -> Phrase:
    """Lan said that …, `Lan đã nói rằng …`."""
    act = act_of(rng.choice(lexicon.SAYINGS))
    who = simple_person(rng)
    inner = clause(rng, room - who.phrase.size - 3, rng.choice(("present", "past", "future")))
    return clause_of(who, "S V that/1 C", "S V rằng/1 C", V=predicate(act, tense, who.agr), C=inner)


def passive_clause(rng: random.Random, room: int) -> Phrase:
    """the letter was written by Lan, `bức thư đã được viết bởi Lan`."""
    verb = rng.choice(lexicon.PASSIVE)
    noun, sense = rng.choice(lexicon.objects_of(verb))
    assert isinstance(noun, lexicon.Noun)
    thing = noun_phrase(rng, noun, min(room, 7), definite=True, relative=False)
    doer = person_name(rng).phrase if rng.random() < 0.4 else the(noun_of(rng, "person"))
    sides = ("S {was}/1 V by/2 D", "S đã/1 được/1 V bởi/2 D")
    return set_kind(clause_of(thing, *sides, V=word(verb.participle, sense), D=doer), "past", negative=False)


def stative_clause(rng: random.Random, room: int) -> Phrase:
    """A state: quality, feeling, comparison, profession or place."""
    choice = rng.random()
    negative = rng.random() < 0.2 and not 0.80 <= choice < 0.90  # never `there is not`
    return set_kind(_state(rng, room, choice, negative=negative), "present", negative=negative)


def _state(rng: random.Random, room: int, choice: float, *, negative: bool) -> Phrase:
    if choice < 0.22:
        who = simple_person(rng)
        return quality(rng, who, word(*rng.choice(lexicon.FEELINGS)), negative=negative)
    if choice < 0.50:  # this house is very old, `ngôi nhà này rất cũ`
        noun, (adjective, vi) = described_noun(rng)
        thing = noun_phrase(rng, noun, min(room - 2, 6), definite=True, relative=False)
        return quality(rng, thing, word(adjective.en, vi), negative=negative)
    if choice < 0.66:
        return comparison(rng, negative=negative)
    if choice < 0.80:
        return profession(rng, room, negative=negative)
    noun = noun_of(rng, "thing", "thing", "picture", "fruit", "animal")
    if choice < 0.90:  # there are two books on the table, `có hai quyển sách trên bàn`
        if rng.random() < 0.5:
            lying, be = article(count_noun(noun)), "is"
        else:
            lying, be = rule("Q N", "Q N", Q=number(rng), N=count_noun(noun, plural=True)), "are"
        return rule(f"there {be}/1 N P", "có/1 N P", N=lying, P=lying_place(rng))
    # the key is under the table, `chiếc chìa khóa ở dưới bàn`
    found = noun_phrase(rng, noun, 5, definite=True, relative=False)
    sides = ("S {be}/1 not/2 P", "S không/2 ở/1 P") if negative else ("S {be}/1 P", "S ở/1 P")
    return clause_of(found, *sides, P=lying_place(rng))


def comparison(rng: random.Random, *, negative: bool) -> Phrase:
    """the dog is bigger than the cat, `con chó lớn hơn con mèo`."""
    noun, (adjective, vi) = described_noun(rng, comparable=True)
    alike = [other for other in lexicon.NOUNS_OF_KIND[noun.kind] if adjective.sense(other) == vi]
    thing = noun_phrase(rng, noun, 4, definite=True, relative=False)
    other = noun_phrase(rng, rng.choice(alike), 4, definite=True, relative=False).phrase
    sides = (
        ("S {be} not/1 A than/2 O", "S không/1 A hơn/2 O")
        if negative
        else ("S {be} A than/2 O", "S A hơn/2 O")
    )
    return clause_of(thing, *sides, A=word(adjective.comparative, vi), O=other)


def profession(rng: random.Random, room: int, *, negative: bool) -> Phrase:
    """she is a teacher, `cô ấy là một giáo viên`; is not, `không phải là`; wants to become, `muốn trở thành`."""
    who = single_person(rng)
    noun = rng.choice(lexicon.PROFESSIONS)
    head = count_noun(noun)
    job = article(with_adjective(rng, noun, head) if room > 8 and rng.random() < 0.4 else head)
    if negative:
        return clause_of(who, "S {be}/1 not/2 N", "S không/2 phải/2 là/1 N", N=job)
    if rng.random() < 0.25:
        return clause_of(who, "S {want}/1 to become/2 N", "S muốn/1 trở/2 thành/2 N", N=job)
    return clause_of(who, "S {be}/1 N", "S là/1 N", N=job)


def quality(rng: random.Random, who: NounPhrase, adjective: Phrase, *, negative: bool) -> Phrase:
    """An adjective is a verb in Vietnamese: he is tired, `anh ấy mệt`; very tired, `rất mệt`."""
    if negative:
        return clause_of(who, "S {be} not/1 A", "S không/1 A", A=adjective)
    degree = rng.random() + (adjective.en[0] in lexicon.COLOURS)
    if degree < 0.35:
        return clause_of(who, "S {be} very/1 A", "S rất/1 A", A=adjective)
    if degree < 0.5:
        return clause_of(who, "S {be} too/1 A", "S quá/1 A", A=adjective)
    return clause_of(who, "S {be} A", "S A", A=adjective)
