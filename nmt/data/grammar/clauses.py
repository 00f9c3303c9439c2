"""Clauses: what someone does, says or is."""

import random
from functools import partial

from nmt.data.grammar import lexicon
from nmt.data.grammar.adverbials import lying_place, time_phrase
from nmt.data.grammar.derivation import EMPTY, Phrase, rule, word
from nmt.data.grammar.nominals import (
    article,
    count_noun,
    described_noun,
    person_name,
    pronoun_subject,
    simple_person,
    single_person,
    the_person,
    with_adjective,
)
from nmt.data.grammar.phrases import action, noun_phrase, subject
from nmt.data.grammar.predicates import ACTIVE, AGREEMENT, Act, predicate, told, verb_with

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

    front: a time may stand first, with a comma. tense: one that the clause has beside its main clause, where it
    tells of an event: affirmative, and no state.
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
    verb = rng.choice(lexicon.verbs_for("animal", "", True))
    who = pronoun_subject(rng.choice(lexicon.SHORT_PRONOUNS))
    act = Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY))
    return rule("S V", "S V", S=who.phrase, V=predicate(act, "present", who.agr))


def verbal_clause(
    rng: random.Random, room: int, tense: str, *, front: bool, timed: bool, plain: bool = True
) -> Phrase:
    """Subject, verb, object, place and time; Vietnamese puts the time first. plain: a state will do, or a negation.

    he bought a book at the market yesterday, `hôm qua anh ấy đã mua một quyển sách ở chợ`
    """
    if plain and room >= 12 and tense in ("present", "past") and rng.random() < 0.1:
        return saying_clause(rng, room, tense)
    if plain and room >= 10 and tense == "past" and rng.random() < 0.08:
        return passive_clause(rng, room)
    who = subject(rng, room)
    rest = room - who.phrase.size
    simple = tense == "already"  # `rồi` closes the clause: nothing long may stand before it
    act = action(
        rng, who, min(rest, 6) if simple else rest, state=plain and tense not in ACTIVE, place=not simple
    )
    joined = False
    if rest >= 12 and not simple and tense != "perfect" and rng.random() < 0.12:
        first, second = act, action(rng, who, rest // 2, state=plain and tense not in ACTIVE)
        invariant = any(each.verb.past == each.verb.base for each in (first, second))
        joined = first.verb.base != second.verb.base and not invariant
        if joined:
            act = Act(
                first.verb if "state" in first.verb.flags else second.verb,
                lambda form, marker: rule(
                    "A [and/1 B]", "A và/1 B", A=first.build(form, marker), B=second.build(form, marker)
                ),
            )
    if who.kind != "person" and tense in ("must", "should"):
        tense = "can"
    negative = tense == "perfect" or (tense in _NEGATABLE and plain and not joined and rng.random() < 0.2)
    said = predicate(act, tense, who.agr, negative=negative)
    if tense == "present" and plain and not negative and room >= 5 and rng.random() < 0.2:
        choices = lexicon.FREQUENCIES[-2:] if "state" in act.verb.flags else lexicon.FREQUENCIES
        often, vi = rng.choice(choices)
        said = told(rule("F V", "F V", F=word(often, vi), V=said), tense, negative=often == "never")
    elif timed and rest >= 5 and "state" not in act.verb.flags and rng.random() < 0.4:
        time = time_phrase(rng, tense)
        if time is not None:
            if front and rng.random() < 0.35:
                return rule("[T ,/1] S V", "T ,/1 S V", T=time, S=who.phrase, V=said)
            # After a relative clause the time would seem to belong to that clause.
            if "mà" not in said.vi:
                return rule("S V [T]", "T S V", T=time, S=who.phrase, V=said)
    return rule("S V", "S V", S=who.phrase, V=said)


def saying_clause(rng: random.Random, room: int, tense: str) -> Phrase:
    """Lan said that …, `Lan đã nói rằng …`."""
    verb = rng.choice(lexicon.SAYINGS)
    who = simple_person(rng)
    act = Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY))
    inner = clause(rng, room - who.phrase.size - 3, rng.choice(("present", "past", "future")))
    said = predicate(act, tense, who.agr)
    return rule("S V that/1 C", "S V rằng/1 C", S=who.phrase, V=said, C=inner)


def passive_clause(rng: random.Random, room: int) -> Phrase:
    """the letter was written by Lan, `bức thư đã được viết bởi Lan`."""
    verb = rng.choice(lexicon.PASSIVE)
    noun, sense = rng.choice(lexicon.objects_of(verb))
    assert isinstance(noun, lexicon.Noun)
    thing = noun_phrase(rng, noun, min(room, 7), definite=True, relative=False)
    doer = person_name(rng).phrase if rng.random() < 0.4 else the_person(rng)
    was = AGREEMENT[thing.agr]["was"]
    done = rule(
        f"S {was}/1 V by/2 D",
        "S đã/1 được/1 V bởi/2 D",
        S=thing.phrase,
        V=word(verb.participle, sense),
        D=doer,
    )
    return told(done, "past", negative=False)


def stative_clause(rng: random.Random, room: int) -> Phrase:
    """What is: qualities, feelings, comparisons, professions, places."""
    choice = rng.random()
    negative = rng.random() < 0.2 and not 0.80 <= choice < 0.90  # never `there is not`
    return told(_state(rng, room, choice, negative=negative), "present", negative=negative)


def _state(rng: random.Random, room: int, choice: float, *, negative: bool) -> Phrase:
    if choice < 0.22:
        who = simple_person(rng)
        be = AGREEMENT[who.agr]["be"]
        return quality(rng, who.phrase, be, word(*rng.choice(lexicon.FEELINGS)), negative=negative)
    if choice < 0.50:  # this house is very old, `ngôi nhà này rất cũ`
        noun, (adjective, vi) = described_noun(rng)
        thing = noun_phrase(rng, noun, min(room - 2, 6), definite=True, relative=False)
        be = AGREEMENT[thing.agr]["be"]
        return quality(rng, thing.phrase, be, word(adjective.en, vi), negative=negative)
    if choice < 0.66:  # the dog is bigger than the cat, `con chó lớn hơn con mèo`
        noun, (adjective, vi) = described_noun(rng, comparable=True)
        alike = [other for other in lexicon.NOUNS_OF_KIND[noun.kind] if adjective.vi(other) == vi]
        thing = noun_phrase(rng, noun, 4, definite=True, relative=False)
        other = noun_phrase(rng, rng.choice(alike), 4, definite=True, relative=False)
        be = AGREEMENT[thing.agr]["be"]
        english, vietnamese = ("not/1 A", "không/1 A") if negative else ("A", "A")
        return rule(
            f"S {be} {english} than/2 O",
            f"S {vietnamese} hơn/2 O",
            S=thing.phrase,
            A=word(adjective.comparative, vi),
            O=other.phrase,
        )
    if choice < 0.80:  # she is a teacher, `cô ấy là một giáo viên`; is not a teacher, `không phải là …`
        who = single_person(rng)
        be = AGREEMENT[who.agr]["be"]
        noun = rng.choice(lexicon.PROFESSIONS)
        head = count_noun(noun, plural=False)
        job = article(with_adjective(rng, noun, head) if room > 8 and rng.random() < 0.4 else head)
        if negative:
            return rule(f"S {be}/1 not/2 N", "S không/2 phải/2 là/1 N", S=who.phrase, N=job)
        if rng.random() < 0.25:  # wants to become
            want = AGREEMENT[who.agr]["want"]
            return rule(f"S {want}/1 to become/2 N", "S muốn/1 trở/2 thành/2 N", S=who.phrase, N=job)
        return rule(f"S {be}/1 N", "S là/1 N", S=who.phrase, N=job)
    noun = rng.choice(lexicon.NOUNS_OF_KIND[rng.choice(("thing", "thing", "picture", "fruit", "animal"))])
    if choice < 0.90:  # there are two books on the table, `có hai quyển sách trên bàn`
        if rng.random() < 0.5:
            lying, be = article(count_noun(noun, plural=False)), "is"
        else:
            number = word(*rng.choice(lexicon.NUMBERS))
            lying, be = rule("Q N", "Q N", Q=number, N=count_noun(noun, plural=True)), "are"
        return rule(f"there {be}/1 N P", "có/1 N P", N=lying, P=lying_place(rng))
    # the key is under the table, `chiếc chìa khóa ở dưới bàn`
    found = noun_phrase(rng, noun, 5, definite=True, relative=False)
    be = AGREEMENT[found.agr]["be"]
    if negative:
        return rule(f"S {be}/1 not/2 P", "S không/2 ở/1 P", S=found.phrase, P=lying_place(rng))
    return rule(f"S {be}/1 P", "S ở/1 P", S=found.phrase, P=lying_place(rng))


def quality(rng: random.Random, who: Phrase, be: str, adjective: Phrase, *, negative: bool) -> Phrase:
    """An adjective is a verb in Vietnamese: he is tired, `anh ấy mệt`; very tired, `rất mệt`."""
    if negative:
        return rule(f"S {be} not/1 A", "S không/1 A", S=who, A=adjective)
    degree = rng.random() + (adjective.en[0] in lexicon.COLOURS)
    if degree < 0.35:
        return rule(f"S {be} very/1 A", "S rất/1 A", S=who, A=adjective)
    if degree < 0.5:
        return rule(f"S {be} too/1 A", "S quá/1 A", S=who, A=adjective)
    return rule(f"S {be} A", "S A", S=who, A=adjective)
