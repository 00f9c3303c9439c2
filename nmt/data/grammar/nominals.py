"""Noun phrases without clauses: nouns with articles, owners, numbers and adjectives; names, pronouns and measures."""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nmt.data.grammar import lexicon
from nmt.data.grammar.derivation import Phrase, rule, word
from nmt.data.grammar.lexicon import Adjective, Mass, Noun, Pronoun

THIS_OR_THAT = (word("this", "này"), word("that", "đó"))
_KIN_OWNERS = tuple(each for each in lexicon.PRONOUNS if each.subject in ("I", "he", "she", "we"))


class NounPhrase(NamedTuple):
    """agr: agreement of the verb, `1`, `3` or `p`. kind, name: verbs and adjectives are chosen by these."""

    phrase: Phrase
    agr: str
    kind: str
    name: str


def noun_of(rng: random.Random, *kinds: str) -> Noun:
    """A noun of one of these kinds."""
    return rng.choice(lexicon.NOUNS_OF_KIND[rng.choice(kinds) if len(kinds) > 1 else kinds[0]])


def count_noun(noun: Noun, *, plural: bool = False, classifier: bool = True, marker: bool = False) -> Phrase:
    """book, `quyển sách`; the books, `những quyển sách`; books in general, `sách`."""
    vi = f"{noun.classifier} {noun.vi}" if classifier else noun.vi
    return word(noun.plural if plural else noun.singular, f"{noun.plural_marker} {vi}" if marker else vi)


def with_adjective(rng: random.Random, noun: Noun | Mass, head: Phrase) -> Phrase:
    """Add an adjective, which follows in Vietnamese: old book, `sách cũ`; very old book, `sách rất cũ`; two are
    mirrored.
    """
    fitting = lexicon.adjectives_for(noun)
    if not fitting:
        return head
    adjective, vi = rng.choice(fitting)
    described = rule("A N", "N A", A=word(adjective.en, vi), N=head)
    if adjective.en in lexicon.COLOURS:
        sizes = [(size, sense) for size, sense in fitting if size.en in lexicon.SIZES]
        if sizes and rng.random() < 0.4:  # the new red car, `chiếc ô tô đỏ mới`
            size, sense = rng.choice(sizes)
            return rule("A N", "N A", A=word(size.en, sense), N=described)
    elif rng.random() < 0.12:
        return rule("very/1 A N", "N rất/1 A", A=word(adjective.en, vi), N=head)
    return described


def the(noun: Noun) -> Phrase:
    """the book, `quyển sách`."""
    return rule("the N", "N", N=count_noun(noun))


def article(nominal: Phrase) -> Phrase:
    """a book, `một quyển sách`; an old book."""
    return rule("an/1 N" if nominal.en[0][0] in "aeiou" else "a/1 N", "một/1 N", N=nominal)


def number(rng: random.Random) -> Phrase:
    return word(*rng.choice(lexicon.NUMBERS))


def possessive(rng: random.Random, *, kin: bool = False) -> Callable[..., Phrase]:
    """The rule that gives N an owner: my N, `N của tôi`; the teacher 's N; of the family, my mother, `mẹ tôi`."""
    if rng.random() < (0.85 if kin else 0.6):
        owner = rng.choice(_KIN_OWNERS if kin else lexicon.PRONOUNS[:6])
        return partial(rule, "P N", "N P", P=word(owner.possessive, owner.vi if kin else f"của {owner.vi}"))
    if rng.random() < 0.5:
        return partial(rule, "P 's/1 N", "N của/1 P", P=word(*rng.choice(lexicon.NAMES)))
    noun = noun_of(rng, "person")
    if rng.random() < 0.25:
        return partial(rule, "the P '/1 N", "N của/1 P", P=count_noun(noun, plural=True, marker=True))
    return partial(rule, "the P 's/1 N", "N của/1 P", P=count_noun(noun))


def simple_person(rng: random.Random) -> NounPhrase:
    """A pronoun, a name or `the` with a noun, for clauses inside others."""
    choice = rng.random()
    if choice < 0.45:
        return pronoun_subject(rng.choice(lexicon.PRONOUNS[:6]))
    if choice < 0.7:
        return person_name(rng)
    noun = noun_of(rng, "person")
    return NounPhrase(the(noun), "3", "person", noun.singular)


def pronoun_subject(pronoun: Pronoun) -> NounPhrase:
    return NounPhrase(word(pronoun.subject, pronoun.vi), pronoun.agr, pronoun.kind, pronoun.subject)


def person_name(rng: random.Random) -> NounPhrase:
    return NounPhrase(word(*rng.choice(lexicon.NAMES)), "3", "person", "")


def other_pronoun(rng: random.Random, who: NounPhrase) -> Phrase:
    """A pronoun as object of the subject `who`: neither `I see me` nor `he sees him`."""
    own = ("I", "we") if who.name in ("I", "we") else (who.name,)
    pronoun = rng.choice([each for each in lexicon.PRONOUNS[:6] if each.subject not in own])
    return word(pronoun.object, pronoun.vi)


def other_name(rng: random.Random, who: NounPhrase) -> Phrase:
    return word(*rng.choice([pair for pair in lexicon.NAMES if pair[0] not in who.phrase.en]))


def kin(rng: random.Random) -> NounPhrase:
    """my mother, `mẹ tôi`; Lan 's mother, `mẹ của Lan`."""
    relative = word(*rng.choice(lexicon.KIN))
    return NounPhrase(possessive(rng, kin=True)(N=relative), "3", "person", "")


def mass_phrase(rng: random.Random, noun: Mass) -> Phrase:
    """tea, `trà`; a cup of tea, `một tách trà`; two cups of hot tea, `hai tách trà nóng`; this tea, `trà này`."""
    head = word(noun.singular, noun.vi)
    if rng.random() < 0.3:
        head = with_adjective(rng, noun, head)
    choice = rng.random()
    if noun.measure and choice < 0.5:
        one, many, measure = noun.measure.split()
        if choice < 0.3:
            return rule("a/1 M of N", "một/1 M N", M=word(one, measure), N=head)
        return rule("Q M of N", "Q M N", Q=number(rng), M=word(many, measure), N=head)
    if choice < 0.6:
        return rule("D N", "N D", D=rng.choice(THIS_OR_THAT), N=head)
    return possessive(rng)(N=head) if choice < 0.7 else head


def single_person(rng: random.Random) -> NounPhrase:
    """Someone who can be `a doctor`: not we or they."""
    choice = rng.random()
    if choice < 0.4:
        return pronoun_subject(rng.choice(lexicon.PRONOUNS[:4]))
    return person_name(rng) if choice < 0.65 else kin(rng)


def described_noun(rng: random.Random, *, comparable: bool = False) -> tuple[Noun, tuple[Adjective, str]]:
    """A noun and an adjective that goes with it, with the adjective's Vietnamese for it."""
    noun = rng.choice(lexicon.COMPARABLE if comparable else lexicon.DESCRIBED)
    adjectives = lexicon.adjectives_for(noun)
    return noun, rng.choice([each for each in adjectives if each[0].comparative or not comparable])
