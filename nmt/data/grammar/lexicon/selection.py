"""Which words go together: nouns of a kind, adjectives with nouns, verbs with what acts and is acted on."""

from functools import cache

from nmt.data.grammar.lexicon.adjectives import ADJECTIVES
from nmt.data.grammar.lexicon.entries import Adjective, Mass, Noun, Verb
from nmt.data.grammar.lexicon.nouns import MASSES, NOUNS, PRONOUNS
from nmt.data.grammar.lexicon.verbs import INTRANSITIVES, TRANSITIVES

ANIMATE = ("person", "animal", "bird")
NOUNS_OF_KIND = {
    kind: tuple(noun for noun in NOUNS if noun.kind == kind)
    for kind in dict.fromkeys(noun.kind for noun in NOUNS)
}
OWNED = tuple(
    noun
    for kind in ("text", "thing", "picture", "garment", "hat", "jewel", "scarf", "car", "bike")
    for noun in NOUNS_OF_KIND[kind]
)
SHORT_PRONOUNS = tuple(each for each in PRONOUNS if " " not in each.vi)
PASSIVE = tuple(verb for verb in TRANSITIVES if "passive" in verb.flags)


@cache
def adjectives_for(noun: Noun | Mass) -> tuple[tuple[Adjective, str], ...]:
    """Adjectives that go with `noun`, each with its Vietnamese there."""
    return tuple((each, vi) for each in ADJECTIVES if (vi := each.vi(noun)))


@cache
def objects_of(verb: Verb) -> tuple[tuple[Noun | Mass, str], ...]:
    """Nouns that `verb` takes as objects, each with the verb's Vietnamese there."""
    things: tuple[Noun | Mass, ...] = (*NOUNS, *MASSES)
    return tuple((noun, sense) for noun in things if (sense := verb.sense(noun)))


@cache
def verbs_for(kind: str, name: str, intransitive: bool) -> tuple[Verb, ...]:
    """What a noun of this kind or name can do."""
    table = INTRANSITIVES if intransitive else TRANSITIVES
    return tuple(verb for verb in table if kind in verb.subjects or name in verb.subjects)


DESCRIBED = tuple(noun for noun in NOUNS if adjectives_for(noun))
COMPARABLE = tuple(noun for noun in NOUNS if any(each.comparative for each, _ in adjectives_for(noun)))
