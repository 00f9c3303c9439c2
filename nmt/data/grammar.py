"""A synchronous grammar of English and Vietnamese: sentence pairs with the word alignment of their derivation.

Every rule builds both languages at once from the same constituents (Aho and Ullman 1969, "Syntax directed
translations and the pushdown assembler"; Chiang 2007): `rule("D A N", "N A D", D=…, A=…, N=…)` is
NP → ⟨D₁ A₂ N₃, N₃ A₂ D₁⟩, and `not/1`, `không/1` are words linked by their number. Links are thus known, never
estimated. A word without a number has no counterpart: English articles and `do`, mostly.

An English sentence has one translation. Text is tokenised: words and marks stand apart, and only names and `I`
are capitalised. `python -m nmt.data.grammar DIR` writes a corpus as ordinary files.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from nmt.data import lexicon
from nmt.data.lexicon import Adjective, Mass, Noun, Pronoun, Verb
from nmt.errors import UserError

LANGUAGES = ("en", "vi")
FORMATS = ("text", "jsonl", "tsv", "csv", "parquet")
MIN_WORDS = 3
_TRIES = 3000  # fruitless draws in a row after which no new sentence is looked for


class Pair(NamedTuple):
    """A sentence and its translation. alignment: (i, j) for English word i and Vietnamese word j, sorted."""

    en: str
    vi: str
    alignment: tuple[tuple[int, int], ...]


# ---------------------------------------------------------------------------------------------------- formalism


class Phrase(NamedTuple):
    """A node of the derivation: its words on either side, and the links between them."""

    en: tuple[str, ...]
    vi: tuple[str, ...]
    links: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Words on the longer side."""
        return max(len(self.en), len(self.vi))


EMPTY = Phrase((), (), ())


def unlinked(english: str) -> Phrase:
    """A word without a counterpart, as `does` in a question with a question word."""
    return Phrase((english,), (), ())


@cache
def _symbols(side: str) -> tuple[tuple[str, str | None], ...]:
    """`A not/1 B` -> (A, slot), (not, 1), (B, slot); a slot is one capital letter, its link None."""
    found: list[tuple[str, str | None]] = []
    for token in side.split():
        text, _, number = token.rpartition("/")
        if text:
            found.append((text, number))
        else:
            found.append((token, None if len(token) == 1 and token.isupper() and token != "I" else ""))
    return tuple(found)


def rule(english: str, vietnamese: str, **parts: Phrase) -> Phrase:
    """X → ⟨english, vietnamese⟩: a capital letter is a constituent, other tokens are words.

    Words with the same number after a slash are linked, each with each. A constituent left out of one side
    would lose its words there, so both sides name the same ones.
    """
    words: tuple[list[str], list[str]] = ([], [])
    starts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    numbered: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for side, text in enumerate((english, vietnamese)):
        out = words[side]
        for symbol, number in _symbols(text):
            if number is None:
                starts[side][symbol] = len(out)
                part = parts[symbol]
                out.extend(part.vi if side else part.en)
            else:
                if number:
                    numbered[side].setdefault(number, []).append(len(out))
                out.append(symbol)
    assert starts[0].keys() == starts[1].keys() == parts.keys(), (english, vietnamese, sorted(parts))
    links = [
        (i + start, j + starts[1][symbol])
        for symbol, start in starts[0].items()
        for i, j in parts[symbol].links
    ]
    links += [
        (i, j) for number, ones in numbered[0].items() for i in ones for j in numbered[1].get(number, ())
    ]
    return Phrase(tuple(words[0]), tuple(words[1]), tuple(links))


@cache
def word(english: str, vietnamese: str) -> Phrase:
    """Words that translate each other as a whole: teacher, `giáo viên`."""
    en, vi = tuple(english.split()), tuple(vietnamese.split())
    return Phrase(en, vi, tuple((i, j) for i in range(len(en)) for j in range(len(vi))))


# -------------------------------------------------------------------------------------------------- noun phrases


class NounPhrase(NamedTuple):
    """agr: how its verb agrees, `1`, `3` or `p`. kind, name: what verbs and adjectives choose by."""

    phrase: Phrase
    agr: str
    kind: str
    name: str


def count_noun(noun: Noun, *, plural: bool, classifier: bool = True, marker: bool = False) -> Phrase:
    """book, `quyển sách`; the books, `những quyển sách`; books in general, `sách`."""
    vi = f"{noun.classifier} {noun.vi}" if classifier else noun.vi
    return word(noun.plural if plural else noun.singular, f"{noun.plural_marker} {vi}" if marker else vi)


def with_adjective(rng: random.Random, noun: Noun | Mass, head: Phrase, *, colour: bool = True) -> Phrase:
    """The adjective follows in Vietnamese: old book, `sách cũ`; very old book, `sách rất cũ`; two mirror."""
    fitting = _adjectives_for(noun)
    if not fitting:
        return head
    adjective, vi = rng.choice(fitting)
    described = rule("A N", "N A", A=word(adjective.en, vi), N=head)
    if adjective.en in lexicon.COLOURS and colour:
        sizes = [(size, sense) for size, sense in fitting if size.en in lexicon.SIZES]
        if sizes and rng.random() < 0.4:  # the new red car, `chiếc ô tô đỏ mới`
            size, sense = rng.choice(sizes)
            described = rule("A N", "N A", A=word(size.en, sense), N=described)
    elif adjective.en not in lexicon.COLOURS and rng.random() < 0.12:
        described = rule("very/1 A N", "N rất/1 A", A=word(adjective.en, vi), N=head)
    return described


def article(nominal: Phrase) -> Phrase:
    """a book, `một quyển sách`; an old book."""
    return rule("an/1 N" if nominal.en[0][0] in "aeiou" else "a/1 N", "một/1 N", N=nominal)


def possessor(rng: random.Random, *, kin: bool = False) -> tuple[str, str, dict[str, Phrase]]:
    """The two sides of a possessive around the slot N: my N, `N của tôi`; the teacher 's N, `N của giáo viên`.

    The family goes without `của` after a pronoun: my mother, `mẹ tôi`.
    """
    if rng.random() < (0.85 if kin else 0.6):
        owner = rng.choice(_KIN_OWNERS if kin else lexicon.PRONOUNS[:6])
        own = word(owner.possessive, owner.vi if kin else f"của {owner.vi}")
        return "P N", "N P", {"P": own}
    if rng.random() < 0.5:
        name = rng.choice(lexicon.NAMES)
        return "P 's/1 N", "N của/1 P", {"P": word(name, name)}
    noun = rng.choice(_NOUNS["person"])
    if rng.random() < 0.25:
        return "the P '/1 N", "N của/1 P", {"P": count_noun(noun, plural=True, marker=True)}
    return "the P 's/1 N", "N của/1 P", {"P": count_noun(noun, plural=False)}


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
        superlatives = [(adj, vi) for adj, vi in _adjectives_for(noun) if adj.superlative]
        if superlatives:  # the oldest book, `quyển sách cũ nhất`
            adjective, vi = rng.choice(superlatives)
            best = word(adjective.superlative, f"{vi} nhất")
            phrase = rule("the A N", "N A", A=best, N=count_noun(noun, plural=False))
        else:  # every teacher, `mỗi giáo viên`
            phrase = rule("every/1 N", "mỗi/1 N", N=nominal(plural=False))
    agr = "p" if plural else "3"
    if relative and room >= 14 and choice < 0.62 and rng.random() < 0.3:
        phrase = rule("N R", "N R", N=phrase, R=relative_clause(rng, noun, agr))
    return NounPhrase(phrase, agr, noun.kind, noun.singular)


def relative_clause(rng: random.Random, noun: Noun, agr: str) -> Phrase:
    """The student who reads the book, `học sinh mà đọc quyển sách`; the book that Lan bought, `… mà Lan đã mua`."""
    tense = rng.choice(("present", "past", "progressive"))
    verbs = [(verb, sense) for verb in lexicon.TRANSITIVES if (sense := verb.sense(noun))]
    if noun.kind in _ANIMATE and (not verbs or rng.random() < 0.6):
        pronoun = "who" if noun.kind == "person" else "that"
        act = action(rng, NounPhrase(EMPTY, agr, noun.kind, noun.singular), 6)
        return rule(f"{pronoun}/1 V", "mà/1 V", V=predicate(act, tense, agr))
    if not verbs:
        return rule("that/1 V", "mà/1 V", V=predicate(seen(noun), tense, agr))
    subject = simple_person(rng)
    verb, sense = rng.choice([(v, s) for v, s in verbs if fits(v, subject)] or [(_SEE, "nhìn thấy")])
    act = Act(verb, partial(verb_with, verb, sense, EMPTY))
    return rule("that/1 S V", "mà/1 S V", S=subject.phrase, V=predicate(act, tense, subject.agr))


def simple_person(rng: random.Random) -> NounPhrase:
    """A pronoun, a name or `the` with a noun, for clauses inside others."""
    choice = rng.random()
    if choice < 0.45:
        return pronoun_subject(rng.choice(lexicon.PRONOUNS[:6]))
    if choice < 0.7:
        return person_name(rng)
    noun = rng.choice(_NOUNS["person"])
    return NounPhrase(rule("the N", "N", N=count_noun(noun, plural=False)), "3", "person", noun.singular)


def pronoun_subject(pronoun: Pronoun) -> NounPhrase:
    return NounPhrase(word(pronoun.subject, pronoun.vi), pronoun.agr, pronoun.kind, pronoun.subject)


def person_name(rng: random.Random) -> NounPhrase:
    name = rng.choice(lexicon.NAMES)
    return NounPhrase(word(name, name), "3", "person", "")


def other_pronoun(rng: random.Random, who: NounPhrase) -> Phrase:
    """A pronoun as object, where `who` acts: neither `I see me` nor `he sees him`."""
    own = ("I", "we") if who.name in ("I", "we") else (who.name,)
    pronoun = rng.choice([each for each in lexicon.PRONOUNS[:6] if each.subject not in own])
    return word(pronoun.object, pronoun.vi)


def other_name(rng: random.Random, who: NounPhrase) -> Phrase:
    name = rng.choice([name for name in lexicon.NAMES if name not in who.phrase.en])
    return word(name, name)


def kin(rng: random.Random) -> NounPhrase:
    """my mother, `mẹ tôi`; Lan 's mother, `mẹ của Lan`."""
    noun = rng.choice(lexicon.KIN)
    english, vietnamese, parts = possessor(rng, kin=True)
    return NounPhrase(rule(english, vietnamese, N=word(noun.singular, noun.vi), **parts), "3", "person", "")


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
        right = word(second, second) if rng.random() < 0.4 else _the_person(rng)
        return NounPhrase(rule("A and/1 B", "A và/1 B", A=word(first, first), B=right), "p", "person", "")
    kind = "person" if choice < 0.87 else rng.choice(("animal", "animal", "bird"))
    return noun_phrase(rng, rng.choice(_NOUNS[kind]), room)


def _the_person(rng: random.Random) -> Phrase:
    return rule("the N", "N", N=count_noun(rng.choice(_NOUNS["person"]), plural=False))


def mass_phrase(rng: random.Random, noun: Mass) -> Phrase:
    """tea, `trà`; a cup of tea, `một tách trà`; two cups of hot tea, `hai tách trà nóng`; this tea, `trà này`."""
    head = word(noun.en, noun.vi)
    if rng.random() < 0.3:
        head = with_adjective(rng, noun, head)
    choice = rng.random()
    if noun.measure and choice < 0.3:
        one, _, measure = noun.measure
        return rule("a/1 M of N", "một/1 M N", M=word(one, measure), N=head)
    if noun.measure and choice < 0.5:
        _, many, measure = noun.measure
        number = word(*rng.choice(lexicon.NUMBERS))
        return rule("Q M of N", "Q M N", Q=number, M=word(many, measure), N=head)
    if choice < 0.6:
        return rule("D N", "N D", D=rng.choice((word("this", "này"), word("that", "đó"))), N=head)
    if choice < 0.7:
        english, vietnamese, parts = possessor(rng)
        return rule(english, vietnamese, N=head, **parts)
    return head


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
        others = [other for other, sense in _objects(verb) if other != noun and sense == verb.sense(noun)]
        counted = [other for other in others if isinstance(other, Noun)]
        if counted and "mà" not in found.vi:
            right = noun_phrase(rng, rng.choice(counted), 6, generic=generic).phrase
            return rule("A and/1 B", "A và/1 B", A=found, B=right)
    return found


# ------------------------------------------------------------------------------------------------------- verbs


class Act(NamedTuple):
    """A verb with all that follows it, still without tense: build(form, marker) puts both in.

    marker: `đã` where the English past form itself carries the tense, else empty.
    """

    verb: Verb
    build: Callable[[str, str], Phrase]


@cache
def _verb_sides(form: str, particle: str, sense: str, marker: str, has_object: bool) -> tuple[str, str]:
    before, gap, after = sense.partition("…")
    vietnamese = " ".join(f"{syllable}/1" for syllable in f"{marker} {before}".split())
    if has_object:
        vietnamese += " O"
    if gap:
        vietnamese += "".join(f" {syllable}/1" for syllable in after.split())
    return f"{form}/1 {particle}{' O' if has_object else ''}", vietnamese


def verb_with(verb: Verb, sense: str, thing: Phrase, form: str, marker: str) -> Phrase:
    """Verb and object: bought a book, `đã mua một quyển sách`; feeds the cat, `cho con mèo ăn`."""
    sides = _verb_sides(getattr(verb, form), verb.particle, sense, marker, bool(thing.en))
    return rule(*sides, O=thing) if thing.en else rule(*sides)


def followed(act: Act, tail: Phrase) -> Act:
    """The act with words after it that follow in both languages."""
    return Act(act.verb, lambda form, marker: rule("V T", "V T", V=act.build(form, marker), T=tail))


def fits(verb: Verb, who: NounPhrase) -> bool:
    return who.kind in verb.subjects or who.name in verb.subjects


def action(rng: random.Random, who: NounPhrase, room: int, *, state: bool = True, place: bool = True) -> Act:
    """Something that `who` can do, with its object, manner and place."""
    choice = rng.random()
    if choice < 0.66 and room >= 3:
        verbs = [verb for verb in _verbs_for(who.kind, who.name, False) if state or "state" not in verb.flags]
    else:
        verbs = []
    if who.kind == "person" and choice >= 0.76 and room >= 6:
        return followed_by_place(rng, special_action(rng, who, choice, room, state), room, place=place)
    if verbs:
        verb = rng.choice(verbs)
        others = [
            each
            for each in _objects(verb)
            if not (isinstance(each[0], Noun) and each[0].singular == who.name)
        ]
        noun, sense = rng.choice(others)  # no dog chases the dog
        act = Act(verb, partial(verb_with, verb, sense, object_phrase(rng, verb, noun, room, who)))
    else:
        verb = rng.choice(_verbs_for(who.kind, who.name, True))
        act = Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY))
    manners = [manner for manner in lexicon.MANNERS.items() if manner[0] in verb.flags]
    if manners and room >= 9 and rng.random() < 0.25:  # carefully, `một cách cẩn thận`
        act = followed(act, word(*rng.choice(manners)))
    return followed_by_place(rng, act, room, place=place)


def followed_by_place(rng: random.Random, act: Act, room: int, *, place: bool) -> Act:
    if place and "place" in act.verb.flags and room >= 6 and rng.random() < 0.3:
        return followed(act, place_phrase(rng, room))
    return act


def special_action(rng: random.Random, who: NounPhrase, choice: float, room: int, state: bool) -> Act:
    """What people do with a frame of its own: go somewhere, give something, learn, live, become."""
    if choice < 0.84:  # goes to the market, `đi đến chợ`
        verb = rng.choice(lexicon.MOTIONS)
        where = rule("to/1 P", "đến/1 P", P=destination(rng))
        return followed(Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY)), where)
    if choice < 0.91:  # gives a book to the child, `đưa một quyển sách cho đứa trẻ`
        verb = rng.choice(lexicon.GIVINGS)
        noun, sense = rng.choice(_objects(verb))
        assert isinstance(noun, Noun)
        thing = noun_phrase(rng, noun, min(room, 8), relative=False).phrase
        if rng.random() < 0.4:
            to = other_pronoun(rng, who)
        else:
            to = rng.choice((other_name(rng, who), kin(rng).phrase, _the_person(rng)))
        return followed(Act(verb, partial(verb_with, verb, sense, thing)), rule("to/1 R", "cho/1 R", R=to))
    if choice < 0.96 or not state:  # learns Vietnamese, `học tiếng Việt`
        verb = lexicon.LEARN if rng.random() < 0.6 else lexicon.TEACH
        thing = word(*rng.choice(lexicon.SUBJECTS))
        return Act(verb, partial(verb_with, verb, verb.senses[""], thing))
    verb = lexicon.LIVE  # lives in Hanoi, `sống ở Hà Nội`
    return followed(
        Act(verb, partial(verb_with, verb, verb.senses[""], EMPTY)), place_phrase(rng, room, town=True)
    )


def seen(noun: Noun) -> Act:
    """… that is in the way of no verb: a fallback for nouns which no verb takes."""
    return Act(_SEE, partial(verb_with, _SEE, "nhìn thấy", EMPTY))


# Tense and negation. C: the act. {be}, {have}, {do}, {want} agree with the subject.
# (tense, negative) -> English, Vietnamese, form of the verb, marker that the verb form itself carries
_TENSES = {
    ("present", False): ("C", "C", "finite", ""),
    ("present", True): ("{do} not/1 C", "không/1 C", "base", ""),
    ("past", False): ("C", "C", "past", "đã"),
    ("past", True): ("did/1 not/2 C", "đã/1 không/2 C", "base", ""),
    ("then", False): (
        "C",
        "C",
        "past",
        "",
    ),  # in `when he came`, Vietnamese leaves the past to the main clause
    ("future", False): ("will/1 C", "sẽ/1 C", "base", ""),
    ("future", True): ("will/1 not/2 C", "sẽ/1 không/2 C", "base", ""),
    ("progressive", False): ("{be}/1 C", "đang/1 C", "ing", ""),
    ("was", False): ("{was}/1 C", "đang/1 C", "ing", ""),
    ("already", False): ("{have}/1 already/2 C", "đã/1 C rồi/2", "participle", ""),
    ("perfect", True): ("{have} not/1 C", "chưa/1 C", "participle", ""),
    ("just", False): ("{have} just/1 C", "vừa/1 mới/1 C", "participle", ""),
    ("ever", False): ("{have} never/1 C", "chưa/1 bao/1 giờ/1 C", "participle", ""),
    ("can", False): ("can/1 C", "có/1 thể/1 C", "base", ""),
    ("can", True): ("can/1 not/2 C", "không/2 thể/1 C", "base", ""),
    ("must", False): ("must/1 C", "phải/1 C", "base", ""),
    ("must", True): ("must/1 not/2 C", "không/2 được/1 C", "base", ""),
    ("should", False): ("should/1 C", "nên/1 C", "base", ""),
    ("should", True): ("should/1 not/2 C", "không/2 nên/1 C", "base", ""),
    ("want", False): ("{want}/1 to C", "muốn/1 C", "base", ""),
    ("want", True): ("{do} not/1 want/2 to C", "không/1 muốn/2 C", "base", ""),
}
_AGREEMENT = {
    "1": {"be": "am", "was": "was", "have": "have", "do": "do", "want": "want"},
    "3": {"be": "is", "was": "was", "have": "has", "do": "does", "want": "wants"},
    "p": {"be": "are", "was": "were", "have": "have", "do": "do", "want": "want"},
}


@cache
def _tense_sides(tense: str, negative: bool, agr: str) -> tuple[str, str, str, str]:
    english, vietnamese, form, marker = _TENSES[tense, negative]
    form = ("third" if agr == "3" else "base") if form == "finite" else form
    return english.format(**_AGREEMENT[agr]), vietnamese, form, marker


def predicate(act: Act, tense: str, agr: str, *, negative: bool = False) -> Phrase:
    """The act in a tense. A past that looks like the present (they read) is negated: they did not read."""
    verb = act.verb
    if "state" in verb.flags and tense in ("progressive", "was"):
        tense = "present" if tense == "progressive" else "then"
    negative = negative or (tense == "past" and verb.past == verb.base and agr != "3")
    english, vietnamese, form, marker = _tense_sides(tense, negative, agr)
    return rule(english, vietnamese, C=act.build(form, marker))


# ------------------------------------------------------------------------------------------------- adverbials


def time_phrase(rng: random.Random, tense: str) -> Phrase | None:
    """When, where the tense goes with one: yesterday, `hôm qua`; next week, `tuần sau`."""
    known = lexicon.TIMES.get({"must": "future", "should": "future"}.get(tense, tense))
    return rule(*rng.choice(known)) if known else None


def place_noun(rng: random.Random, noun: Noun, room: int) -> Phrase:
    """The place itself. After a preposition `the house` is `nhà`, but `this house` is `ngôi nhà này`."""
    choice = rng.random()
    if choice < 0.6 or room < 8:
        return rule("the N", "N", N=count_noun(noun, plural=False, classifier=False))
    if choice < 0.75:
        return rule("the N", "N", N=with_adjective(rng, noun, count_noun(noun, plural=False)))
    if choice < 0.88:
        determiner = rng.choice((word("this", "này"), word("that", "đó")))
        return rule("D N", "N D", D=determiner, N=count_noun(noun, plural=False))
    english, vietnamese, parts = possessor(rng)
    return rule(english, vietnamese, N=count_noun(noun, plural=False), **parts)


def place_phrase(rng: random.Random, room: int, *, town: bool = False) -> Phrase:
    """Where: in the library, `trong thư viện`; in the city, `ở thành phố`; at the market, `ở chợ`."""
    choice = rng.random()
    if town or choice < 0.2:
        if rng.random() < 0.6:
            return rule("in/1 P", "ở/1 P", P=word(*rng.choice(lexicon.CITIES)))
        return rule("in/1 P", "ở/1 P", P=place_noun(rng, rng.choice(_NOUNS["town"]), room))
    if choice < 0.28:
        return rule("at/1 home/2", "ở/1 nhà/2")
    if choice < 0.6:
        noun = rng.choice(_NOUNS[rng.choice(("inside", "house"))])
        return rule("in/1 P", "trong/1 P", P=place_noun(rng, noun, room))
    if choice < 0.82:
        return rule("at/1 P", "ở/1 P", P=place_noun(rng, rng.choice(_NOUNS["site"]), room))
    if choice < 0.92:
        noun = rng.choice(_NOUNS[rng.choice(("nature", "site", "inside"))])
        return rule("near/1 P", "gần/1 P", P=place_noun(rng, noun, room))
    noun = rng.choice(_NOUNS[rng.choice(("site", "inside"))])
    return rule("behind/1 P", "sau/1 P", P=place_noun(rng, noun, room))


def destination(rng: random.Random) -> Phrase:
    if rng.random() < 0.3:
        return word(*rng.choice(lexicon.CITIES))
    noun = rng.choice(_NOUNS[rng.choice(("inside", "site", "town"))])
    return place_noun(rng, noun, 8)


def lying_place(rng: random.Random) -> Phrase:
    """Where things lie: on the table, `trên bàn`; under the chair, `dưới ghế`; in the room, `trong phòng`."""
    preposition, vi = rng.choice((("on", "trên"), ("under", "dưới"), ("in", "trong")))
    noun = rng.choice(_NOUNS["house" if preposition == "in" else "furniture"])
    return rule("Q P", "Q P", Q=word(preposition, vi), P=place_noun(rng, noun, 8))


# ----------------------------------------------------------------------------------------------------- clauses

_ERAS = {
    "present": ("present",) * 8
    + ("progressive",) * 4
    + ("can", "can", "must", "should", "want", "want", "already", "just", "ever", "perfect"),
    "past": ("past",),
    "future": ("future",) * 4 + ("must", "should"),
}
# Not with a state: nobody `has just known`.
_ACTIVE = (
    "progressive",
    "was",
    "already",
    "just",
    "ever",
    "perfect",
    "can",
    "want",
)
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
    verb = rng.choice(_verbs_for("animal", "", True))
    who = pronoun_subject(rng.choice(_SHORT_PRONOUNS))
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
        rng, who, min(rest, 6) if simple else rest, state=plain and tense not in _ACTIVE, place=not simple
    )
    joined = False
    if rest >= 12 and not simple and tense != "perfect" and rng.random() < 0.12:
        first, second = act, action(rng, who, rest // 2, state=plain and tense not in _ACTIVE)
        invariant = any(each.verb.past == each.verb.base for each in (first, second))
        joined = first.verb.base != second.verb.base and not invariant
        if joined:
            act = Act(
                first.verb if "state" in first.verb.flags else second.verb,
                lambda form, marker: rule(
                    "A and/1 B", "A và/1 B", A=first.build(form, marker), B=second.build(form, marker)
                ),
            )
    if who.kind != "person" and tense in ("must", "should"):
        tense = "can"
    negative = tense == "perfect" or (tense in _NEGATABLE and plain and not joined and rng.random() < 0.2)
    said = predicate(act, tense, who.agr, negative=negative)
    if tense == "present" and plain and not negative and room >= 5 and rng.random() < 0.2:
        choices = lexicon.FREQUENCIES[-2:] if "state" in act.verb.flags else lexicon.FREQUENCIES
        said = rule("F V", "F V", F=word(*rng.choice(choices)), V=said)
    elif timed and rest >= 5 and "state" not in act.verb.flags and rng.random() < 0.4:
        time = time_phrase(rng, tense)
        if time is not None:
            if front and rng.random() < 0.35:
                return rule("T ,/1 S V", "T ,/1 S V", T=time, S=who.phrase, V=said)
            # After a relative clause the time would seem to belong to that clause.
            if "mà" not in said.vi:
                return rule("S V T", "T S V", T=time, S=who.phrase, V=said)
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
    verb = rng.choice(_PASSIVE)
    noun, sense = rng.choice(_objects(verb))
    assert isinstance(noun, Noun)
    thing = noun_phrase(rng, noun, min(room, 7), definite=True, relative=False)
    doer = person_name(rng).phrase if rng.random() < 0.4 else _the_person(rng)
    was = _AGREEMENT[thing.agr]["was"]
    return rule(
        f"S {was}/1 V by/2 D",
        "S đã/1 được/1 V bởi/2 D",
        S=thing.phrase,
        V=word(verb.participle, sense),
        D=doer,
    )


def stative_clause(rng: random.Random, room: int) -> Phrase:
    """What is: qualities, feelings, comparisons, professions, places."""
    choice = rng.random()
    negative = rng.random() < 0.2
    if choice < 0.22:
        who = simple_person(rng)
        be = _AGREEMENT[who.agr]["be"]
        return quality(rng, who.phrase, be, word(*rng.choice(lexicon.FEELINGS)), negative=negative)
    if choice < 0.50:  # this house is very old, `ngôi nhà này rất cũ`
        noun, (adjective, vi) = _described(rng)
        thing = noun_phrase(rng, noun, min(room - 2, 6), definite=True, relative=False)
        be = _AGREEMENT[thing.agr]["be"]
        return quality(rng, thing.phrase, be, word(adjective.en, vi), negative=negative)
    if choice < 0.66:  # the dog is bigger than the cat, `con chó lớn hơn con mèo`
        noun, (adjective, vi) = _described(rng, comparable=True)
        alike = [other for other in _NOUNS[noun.kind] if adjective.vi(other) == vi]
        thing = noun_phrase(rng, noun, 4, definite=True, relative=False)
        other = noun_phrase(rng, rng.choice(alike), 4, definite=True, relative=False)
        be = _AGREEMENT[thing.agr]["be"]
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
        be = _AGREEMENT[who.agr]["be"]
        noun = rng.choice(lexicon.PROFESSIONS)
        head = count_noun(noun, plural=False)
        job = article(with_adjective(rng, noun, head) if room > 8 and rng.random() < 0.4 else head)
        if negative:
            return rule(f"S {be}/1 not/2 N", "S không/2 phải/2 là/1 N", S=who.phrase, N=job)
        if rng.random() < 0.25:  # wants to become
            want = _AGREEMENT[who.agr]["want"]
            return rule(f"S {want}/1 to become/2 N", "S muốn/1 trở/2 thành/2 N", S=who.phrase, N=job)
        return rule(f"S {be}/1 N", "S là/1 N", S=who.phrase, N=job)
    noun = rng.choice(_NOUNS[rng.choice(("thing", "thing", "picture", "fruit", "animal"))])
    if choice < 0.90:  # there are two books on the table, `có hai quyển sách trên bàn`
        if rng.random() < 0.5:
            lying, be = article(count_noun(noun, plural=False)), "is"
        else:
            number = word(*rng.choice(lexicon.NUMBERS))
            lying, be = rule("Q N", "Q N", Q=number, N=count_noun(noun, plural=True)), "are"
        return rule(f"there {be}/1 N P", "có/1 N P", N=lying, P=lying_place(rng))
    # the key is under the table, `chiếc chìa khóa ở dưới bàn`
    found = noun_phrase(rng, noun, 5, definite=True, relative=False)
    be = _AGREEMENT[found.agr]["be"]
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


def single_person(rng: random.Random) -> NounPhrase:
    """Someone who can be `a doctor`: not we or they."""
    choice = rng.random()
    if choice < 0.4:
        return pronoun_subject(rng.choice(lexicon.PRONOUNS[:4]))
    return person_name(rng) if choice < 0.65 else kin(rng)


def _described(rng: random.Random, *, comparable: bool = False) -> tuple[Noun, tuple[Adjective, str]]:
    fitting = _COMPARABLE if comparable else _DESCRIBED
    noun = rng.choice(fitting)
    adjectives = _adjectives_for(noun)
    return noun, rng.choice([each for each in adjectives if each[0].comparative or not comparable])


# --------------------------------------------------------------------------------------------------- questions


def question(rng: random.Random, room: int) -> Phrase:
    """A question with its mark. Vietnamese leaves the question word where the answer would stand."""
    for _ in range(12):
        found = rng.choice(_QUESTIONS)(rng, room - 1)
        if found.size <= room:
            return found
    who = pronoun_subject(rng.choice(_SHORT_PRONOUNS))
    return rule(f"where/1 {_AGREEMENT[who.agr]['be']} S ?/2", "S ở/1 đâu/1 ?/2", S=who.phrase)


def _asked(rng: random.Random, room: int) -> tuple[NounPhrase, int]:
    who = subject(rng, min(room, 9))
    while "mà" in who.phrase.vi:
        who = subject(rng, min(room, 9))
    return who, room - who.phrase.size


def polar_question(rng: random.Random, room: int) -> Phrase:
    """does he read books ?, `anh ấy có đọc sách không ?`; did he …, with a time, `hôm qua anh ấy có … không ?`."""
    who, rest = _asked(rng, room)
    if rng.random() < 0.35:
        act = action(rng, who, rest - 3, state=False)
        time = time_phrase(rng, "past")
        assert time is not None
        sides = ("did/1 S C T ?/2", "T S có/1 C không/1 ?/2")
        return rule(*sides, S=who.phrase, C=act.build("base", ""), T=time)
    act = action(rng, who, rest - 2)
    if rng.random() < 0.3:  # can you swim ?, `bạn có thể bơi không ?`
        sides = ("can/1 S C ?/2", "S có/1 thể/1 C không/1 ?/2")
    else:
        sides = (f"{_AGREEMENT[who.agr]['do']}/1 S C ?/2", "S có/1 C không/1 ?/2")
    return rule(*sides, S=who.phrase, C=act.build("base", ""))


def yet_question(rng: random.Random, room: int) -> Phrase:
    """has he sold the house yet ?, `anh ấy đã bán ngôi nhà chưa ?`."""
    who, rest = _asked(rng, room)
    act = action(rng, who, min(rest, 6), state=False, place=False)
    have = _AGREEMENT[who.agr]["have"]
    done = act.build("participle", "")
    return rule(f"{have}/1 S C yet/3 ?/2", "S đã/1 C chưa/3 ?/2", S=who.phrase, C=done)


def being_question(rng: random.Random, room: int) -> Phrase:
    """is this house old ?, `ngôi nhà này có cũ không ?`; is she a doctor ?, `cô ấy có phải là một bác sĩ không ?`."""
    choice = rng.random()
    if choice < 0.35:
        who = single_person(rng)
        job = article(count_noun(rng.choice(lexicon.PROFESSIONS), plural=False))
        sides = (f"{_AGREEMENT[who.agr]['be']}/1 S N ?/2", "S có/1 phải/1 là/1 N không/1 ?/2")
        return rule(*sides, S=who.phrase, N=job)
    if choice < 0.6:
        who = simple_person(rng)
        described = word(*rng.choice(lexicon.FEELINGS))
    else:
        noun, (adjective, vi) = _described(rng)
        who = noun_phrase(rng, noun, 6, definite=True, relative=False)
        described = word(adjective.en, vi)
    sides = (f"{_AGREEMENT[who.agr]['be']}/1 S A ?/2", "S có/1 A không/1 ?/2")
    return rule(*sides, S=who.phrase, A=described)


def object_question(rng: random.Random, room: int) -> Phrase:
    """what did he buy ?, `anh ấy đã mua cái gì ?`; who does she love ?, `cô ấy yêu ai ?`; which, `nào`."""
    who = simple_person(rng) if rng.random() < 0.6 else _asked(rng, room)[0]
    verbs = [verb for verb in _verbs_for(who.kind, who.name, False) if verb.one_sense]
    if not verbs:
        return adverb_question(rng, room)
    verb = rng.choice(verbs)
    noun, sense = rng.choice(_objects(verb))
    choice = rng.random()
    if isinstance(noun, Noun) and choice < 0.25:  # which book, `quyển sách nào`
        asked = rule("which/1 N", "N nào/1", N=count_noun(noun, plural=False))
    elif isinstance(noun, Noun) and choice < 0.45:  # how many books, `bao nhiêu quyển sách`
        asked = rule("how/1 many/2 N", "bao/1 nhiêu/2 N", N=count_noun(noun, plural=True))
    elif noun.kind == "person":
        asked = word("who", "ai")
    elif all(each.kind in _ANIMATE for each, _ in _objects(verb)):
        asked = word("what", "con gì")
    else:
        asked = word("what", "cái gì")
    helper = rng.choice(
        (unlinked(_AGREEMENT[who.agr]["do"]), word("did", "đã"), word("did", "đã"), word("will", "sẽ"))
    )
    before, after = (
        " ".join(f"{syllable}/1" for syllable in part.split()) for part in (sense + "…").split("…")[:2]
    )
    english = f"W D S {verb.base}/1 {verb.particle} ?/2"
    return rule(english, f"S D {before} W {after} ?/2", W=asked, D=helper, S=who.phrase)


def subject_question(rng: random.Random, room: int) -> Phrase:
    """who bought this house ?, `ai đã mua ngôi nhà này ?`: the same order in both."""
    who = NounPhrase(word("who", "ai"), "3", "person", "")
    tense = rng.choice(("present", "past", "past", "future", "progressive", "can", "want"))
    act = action(rng, who, room - 3, state=tense not in _ACTIVE)
    return rule("S V ?/1", "S V ?/1", S=who.phrase, V=predicate(act, tense, "3"))


def adverb_question(rng: random.Random, room: int) -> Phrase:
    """where does he work ?, `anh ấy làm việc ở đâu ?`; when will …, `khi nào … sẽ … ?`; why, `tại sao`."""
    who, rest = _asked(rng, room)
    act = action(rng, who, min(rest - 3, 8), state=False, place=False)
    do = unlinked(_AGREEMENT[who.agr]["do"])
    doing = act.build("base", "")
    parts = {"S": who.phrase, "V": doing}
    choice = rng.random()
    if choice < 0.4:
        if "place" not in act.verb.flags:
            verb = rng.choice(
                [v for v in _verbs_for(who.kind, who.name, True) if "place" in v.flags] or [_SLEEP]
            )
            parts["V"] = verb_with(verb, verb.senses[""], EMPTY, "base", "")
        if choice < 0.2:
            return rule("where/1 D S V ?/2", "S D V ở/1 đâu/1 ?/2", D=do, **parts)
        return rule("where/1 did/3 S V ?/2", "S đã/3 V ở/1 đâu/1 ?/2", **parts)
    if choice < 0.55:  # of the past, when stands last; of the future, first
        return rule("when/1 did/3 S V ?/2", "S đã/3 V khi/1 nào/1 ?/2", **parts)
    if choice < 0.7:
        return rule("when/1 will/3 S V ?/2", "khi/1 nào/1 S sẽ/3 V ?/2", **parts)
    if choice < 0.85:
        return rule("why/1 D S V ?/2", "tại/1 sao/1 S D V ?/2", D=do, **parts)
    return rule("why/1 did/3 S V ?/2", "tại/1 sao/1 S đã/3 V ?/2", **parts)


def naming_question(rng: random.Random, room: int) -> Phrase:
    """whose book is this ?, `đây là quyển sách của ai ?`; who is that man ?, `người đàn ông đó là ai ?`; where is …"""
    choice = rng.random()
    if choice < 0.35:
        noun = rng.choice(_OWNED)
        head = count_noun(noun, plural=False)
        if rng.random() < 0.4:
            head = with_adjective(rng, noun, head)
        near = rng.choice((word("this", "đây"), word("that", "đó")))
        return rule("whose/1 N is/2 D ?/3", "D là/2 N của/1 ai/1 ?/3", N=head, D=near)
    if choice < 0.6:
        noun = rng.choice(_NOUNS["person"])
        head = count_noun(noun, plural=False)
        if rng.random() < 0.5:
            head = with_adjective(rng, noun, head)
        that = rng.choice((word("this", "này"), word("that", "đó")))
        return rule("who/1 is/2 D N ?/3", "N D là/2 ai/1 ?/3", D=that, N=head)
    noun = rng.choice((*_OWNED, *_NOUNS["person"], *_NOUNS["site"], *_NOUNS["inside"]))
    thing = noun_phrase(rng, noun, 8, definite=True, relative=False)
    be = _AGREEMENT[thing.agr]["be"]
    return rule(f"where/1 {be} S ?/2", "S ở/1 đâu/1 ?/2", S=thing.phrase)


def request(rng: random.Random, room: int) -> Phrase:
    """please open the door, `xin hãy mở cánh cửa`; do not open the door, `đừng mở cánh cửa`."""
    act = action(rng, NounPhrase(EMPTY, "p", "person", ""), room - 3, state=False)
    sides = ("please/1 C", "xin/1 hãy/1 C") if rng.random() < 0.55 else ("do/1 not/1 C", "đừng/1 C")
    return rule(*sides, C=act.build("base", ""))


_QUESTIONS: tuple[Callable[[random.Random, int], Phrase], ...] = (
    polar_question,
    polar_question,
    yet_question,
    being_question,
    object_question,
    object_question,
    subject_question,
    adverb_question,
    adverb_question,
    naming_question,
)

# --------------------------------------------------------------------------------------------------- sentences

# In a clause of time Vietnamese leaves the past unmarked, and English the future.
_TIME_CLAUSE = {"past": "then", "present": "present", "future": "present"}
_TIME_OPENERS = ("when", "before", "after", "while")
_WHILE_CLAUSE = {"past": "was", "present": "progressive", "future": "progressive"}


def _subordinate(rng: random.Random, opener: str, room: int, era: str) -> Phrase:
    """The clause after `opener`, in the tense that it takes beside a main clause of this era."""
    if opener in ("when", "before", "after"):
        return clause(rng, room, era, tense=_TIME_CLAUSE[era])
    if opener == "while":
        return clause(rng, room, era, tense=_WHILE_CLAUSE[era])
    if opener == "if":
        return clause(rng, room, "present", timed=False)
    return clause(rng, room, era)


def statement(rng: random.Random, room: int, target: int) -> Phrase:
    """Clauses in a row until about `target` words, at most `room`."""
    era = rng.choice(("present", "present", "past", "past", "future"))
    goal = min(target, room)
    coordinate_next = False
    if goal >= 12 and rng.random() < 0.25:  # if …, …
        sides = rng.choice(lexicon.FRONTED)
        opener = sides[0].partition("/")[0]
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
        opener = sides[0].split()[1].partition("/")[0]
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
    """A sentence, or None where its length came out wrong."""
    target = min(max_words, 5 + int(rng.expovariate(1 / 9)))
    if min_words > MIN_WORDS:  # Vietnamese is the longer side, by a quarter
        target = max(target, min(max_words, min_words * 5 // 4 + 1))
    room = max_words - 1
    choice = rng.random()
    if choice < 0.22 and target < 22 and max_words >= 5:
        derived = question(rng, min(max_words, max(target, 8)))
    elif choice < 0.26 and target < 18 and max_words >= 6:
        derived = rule("C ./1", "C ./1", C=request(rng, min(room, max(target, 6))))
    else:
        derived = rule("C ./1", "C ./1", C=statement(rng, room, target))
    if derived.size > max_words or min(len(derived.en), len(derived.vi)) < min_words:
        return None
    return Pair(" ".join(derived.en), " ".join(derived.vi), tuple(sorted(derived.links)))


def sentence(rng: random.Random, *, max_words: int) -> Pair:
    """A random sentence of 3 to `max_words` words on either side. Raises UserError where max_words < 3."""
    if max_words < MIN_WORDS:
        raise UserError(f"max_words={max_words}: the shortest sentence has {MIN_WORDS} words")
    while True:
        pair = _draw(rng, MIN_WORDS, max_words)
        if pair is not None:
            return pair


def corpus(
    *, num_train: int, num_val: int, num_test: int, min_words: int = MIN_WORDS, max_words: int, seed: int
) -> dict[str, list[Pair]]:
    """Disjoint splits: no sentence of either language occurs twice, in one split or in two.

    Test, then validation are drawn first, so that they stay the same where only `num_train` differs. Raises
    UserError where there are not so many sentences, or none at all, of these lengths.
    """
    if max_words < MIN_WORDS:
        raise UserError(f"max_words={max_words}: the shortest sentence has {MIN_WORDS} words")
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


# ------------------------------------------------------------------------------------------------------ tables

_ANIMATE = ("person", "animal", "bird")
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
_NOUNS = {
    kind: tuple(noun for noun in lexicon.NOUNS if noun.kind == kind)
    for kind in dict.fromkeys(noun.kind for noun in lexicon.NOUNS)
}
_OWNED = tuple(
    noun
    for kind in ("text", "thing", "picture", "garment", "hat", "jewel", "scarf", "car", "bike")
    for noun in _NOUNS[kind]
)
_SOMEONES = ("teacher", "student", "doctor", "driver", "neighbour", "friend", "guest")  # who may be `my` one
_KIN_OWNERS = tuple(each for each in lexicon.PRONOUNS if each.subject in ("I", "he", "she", "we"))
_SHORT_PRONOUNS = tuple(each for each in lexicon.PRONOUNS if " " not in each.vi)
_QUANTIFIERS = (
    ("many/1 N", "nhiều/1 N", False),
    ("a few/1 N", "vài/1 N", False),
    ("all/1 the N", "tất/1 cả/1 N", True),
)
_PASSIVE = tuple(verb for verb in lexicon.TRANSITIVES if "passive" in verb.flags)
_SEE = next(verb for verb in lexicon.TRANSITIVES if verb.base == "see")
_SLEEP = next(verb for verb in lexicon.INTRANSITIVES if verb.base == "sleep")
_COORDINATIONS = tuple(sides for sides in lexicon.CONJUNCTIONS if ",/1" in sides[0])


@cache
def _adjectives_for(noun: Noun | Mass) -> tuple[tuple[Adjective, str], ...]:
    return tuple((each, vi) for each in lexicon.ADJECTIVES if (vi := each.vi(noun)))


@cache
def _objects(verb: Verb) -> tuple[tuple[Noun | Mass, str], ...]:
    things: tuple[Noun | Mass, ...] = (*lexicon.NOUNS, *lexicon.MASSES)
    return tuple((noun, sense) for noun in things if (sense := verb.sense(noun)))


@cache
def _verbs_for(kind: str, name: str, intransitive: bool) -> tuple[Verb, ...]:
    table = lexicon.INTRANSITIVES if intransitive else lexicon.TRANSITIVES
    return tuple(verb for verb in table if kind in verb.subjects or name in verb.subjects)


_DESCRIBED = tuple(noun for noun in lexicon.NOUNS if _adjectives_for(noun))
_COMPARABLE = tuple(
    noun for noun in lexicon.NOUNS if any(each.comparative for each, _ in _adjectives_for(noun))
)


# ------------------------------------------------------------------------------------------------------- files


def pharaoh(alignment: Iterable[tuple[int, int]]) -> str:
    """Links in the order given: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in alignment)


def _text(pairs: Sequence[Pair]) -> dict[str, str]:
    return {
        "en": "".join(f"{pair.en}\n" for pair in pairs),
        "vi": "".join(f"{pair.vi}\n" for pair in pairs),
        "align": "".join(f"{pharaoh(pair.alignment)}\n" for pair in pairs),
    }


def write_files(directory: str | Path, splits: dict[str, list[Pair]], *, format: str) -> list[Path]:
    """Write each split into `directory` and return the files' paths.

    text: SPLIT.en, SPLIT.vi and SPLIT.align (Pharaoh links, English first). jsonl, csv and parquet: the columns
    en, vi and alignment; tsv: the same three in this order, with no header. Each file appears whole or not at
    all. Raises UserError for another format, and where the directory cannot be written to.
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: choose one of {', '.join(FORMATS)}")
    folder = Path(directory).expanduser()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, pairs in splits.items():
            if format == "text":
                for ending, text in _text(pairs).items():
                    written.append(_replace(folder / f"{split}.{ending}", partial(_write_text, text=text)))
            else:
                written.append(_replace(folder / f"{split}.{format}", partial(_WRITERS[format], pairs=pairs)))
    except OSError as error:
        raise UserError(f"{folder}: cannot write there ({error.strerror}): choose another folder") from error
    return written


def _replace(path: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a file beside `path`, then give it that name."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _columns(pair: Pair) -> dict[str, str]:
    return {"en": pair.en, "vi": pair.vi, "alignment": pharaoh(pair.alignment)}


def _write_text(path: Path, *, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_jsonl(path: Path, *, pairs: Sequence[Pair]) -> None:
    lines = (json.dumps(_columns(pair), ensure_ascii=False) for pair in pairs)
    _write_text(path, text="".join(f"{line}\n" for line in lines))


def _write_tsv(path: Path, *, pairs: Sequence[Pair]) -> None:
    _write_text(path, text="".join("\t".join(_columns(pair).values()) + "\n" for pair in pairs))


def _write_csv(path: Path, *, pairs: Sequence[Pair]) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, ["en", "vi", "alignment"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_columns, pairs))


def _write_parquet(path: Path, *, pairs: Sequence[Pair]) -> None:
    import pyarrow as pa  # half a second, which generating sentences does not need
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in ("en", "vi", "alignment")])
    pq.write_table(pa.Table.from_pylist([_columns(pair) for pair in pairs], schema=schema), path)


_WRITERS: dict[str, Callable[..., None]] = {
    "jsonl": _write_jsonl,
    "tsv": _write_tsv,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a corpus: `python -m nmt.data.grammar DIR`."""
    parser = argparse.ArgumentParser(
        prog="python -m nmt.data.grammar",
        description="Write the built-in English–Vietnamese corpus, with gold word alignments, as ordinary files.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="where the files go; made where it is missing"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="kind of file")
    for split, number in (("train", 20_000), ("val", 300), ("test", 1000)):
        parser.add_argument(f"--num-{split}", metavar="N", type=int, default=number, help=f"pairs in {split}")
    parser.add_argument(
        "--min-words", metavar="N", type=int, default=MIN_WORDS, help="fewest words on a side"
    )
    parser.add_argument("--max-words", metavar="N", type=int, default=30, help="most words on a side")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the same seed gives the same files")
    options = vars(parser.parse_args(arguments))
    directory, form = options.pop("directory"), options.pop("format")
    try:
        for path in write_files(directory, corpus(**options), format=form):
            print(path)
    except UserError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
