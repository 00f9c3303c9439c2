"""Verbs with their objects, in a tense, affirmative or negative."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from nmt.data.grammar import lexicon
from nmt.data.grammar.derivation import EMPTY, Phrase, rule
from nmt.data.grammar.lexicon import Verb
from nmt.data.grammar.nominals import NounPhrase


class Act(NamedTuple):
    """A verb with everything that follows it, still without tense: build(form, marker) puts both in.

    marker: `đã` if the English past form itself carries the tense, else empty.
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


def act_of(verb: Verb, sense: str | None = None, thing: Phrase = EMPTY) -> Act:
    """The act of a verb with an object, or of an intransitive verb."""
    return Act(verb, partial(verb_with, verb, verb.senses[""] if sense is None else sense, thing))


def add_complement(act: Act, tail: Phrase) -> Act:
    """Add a complement of the verb, which follows in both languages: goes to the market."""
    return Act(act.verb, lambda form, marker: rule("V T", "V T", V=act.build(form, marker), T=tail))


def add_adverbial(act: Act, adverbial: Phrase) -> Act:
    """Add a manner or a place, which follows in both languages and is not in the core."""
    return Act(act.verb, lambda form, marker: rule("V [T]", "V T", V=act.build(form, marker), T=adverbial))


_AGREEMENT = {
    "1": {"be": "am", "was": "was", "have": "have", "do": "do", "want": "want"},
    "3": {"be": "is", "was": "was", "have": "has", "do": "does", "want": "wants"},
    "p": {"be": "are", "was": "were", "have": "have", "do": "do", "want": "want"},
}
# tense -> kind of the clause, if they differ
_KINDS = {"then": "past", "was": "past", "progressive": "present", "want": "present"}
_KINDS |= dict.fromkeys(("already", "just", "ever"), "perfect") | dict.fromkeys(
    ("can", "must", "should"), "modal"
)
# Tenses that no state has: nobody `has just known`.
ACTIVE = ("progressive", "was", "already", "just", "ever", "perfect", "can", "want")


@cache
def agree(text: str, agr: str) -> str:
    """The text with the forms of {be}, {was}, {have}, {do} and {want} that agree with a subject."""
    return text.format(**_AGREEMENT[agr])


def clause_of(who: NounPhrase, english: str, vietnamese: str, **parts: Phrase) -> Phrase:
    """The rule with the subject `who` as S; words in braces agree with it."""
    return rule(agree(english, who.agr), vietnamese, S=who.phrase, **parts)


def predicate(act: Act, tense: str, agr: str, *, negative: bool = False) -> Phrase:
    """The act in a tense. A past that looks like the present (they read) is negated: they did not read."""
    verb = act.verb
    if "state" in verb.flags and tense in ("progressive", "was"):
        tense = "present" if tense == "progressive" else "then"
    negative = negative or (tense == "past" and verb.past == verb.base and agr != "3")
    english, vietnamese, form, marker = lexicon.TENSES["negative " * negative + tense]
    form = ("third" if agr == "3" else "base") if form == "finite" else form
    return set_kind(
        rule(agree(english, agr), vietnamese, C=act.build(form, marker)), tense, negative=negative
    )


def set_kind(clause: Phrase, tense: str, *, negative: bool) -> Phrase:
    """The clause with its kind: past, negative past, …; `never` is negative too."""
    negation = "negative " if negative or tense == "ever" else ""
    return clause._replace(kind=negation + _KINDS.get(tense, tense))
