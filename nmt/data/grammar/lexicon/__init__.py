"""The words of the English–Vietnamese grammar: tables that a speaker of both languages can proofread.

Every English word has one translation in its context. A noun brings its classifier (`cái bàn`, `con chó`); a verb
or an adjective may have several senses, chosen by the noun it goes with: an old teacher is `già`, an old book
`cũ`; one wears (`mặc`) a shirt but wears (`đội`) a hat.
"""

from nmt.data.grammar.lexicon.adjectives import ADJECTIVES, COLOURS, FEELINGS, SIZES
from nmt.data.grammar.lexicon.adverbs import FREQUENCIES, MANNERS, TIMES
from nmt.data.grammar.lexicon.conjunctions import CONJUNCTIONS, FRONTED
from nmt.data.grammar.lexicon.entries import Adjective, Mass, Noun, Pronoun, Verb
from nmt.data.grammar.lexicon.nouns import (
    CITIES,
    KIN,
    MASSES,
    NAMES,
    NOUNS,
    NUMBERS,
    PROFESSIONS,
    PRONOUNS,
    SUBJECTS,
)
from nmt.data.grammar.lexicon.selection import (
    ANIMATE,
    COMPARABLE,
    DESCRIBED,
    NOUNS_OF_KIND,
    OWNED,
    PASSIVE,
    SHORT_PRONOUNS,
    adjectives_for,
    objects_of,
    verbs_for,
)
from nmt.data.grammar.lexicon.verbs import (
    GIVINGS,
    INTRANSITIVES,
    LEARN,
    LIVE,
    MOTIONS,
    SAYINGS,
    SEE,
    SLEEP,
    TEACH,
    TRANSITIVES,
)
