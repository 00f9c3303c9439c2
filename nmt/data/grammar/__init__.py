"""A synchronous grammar of English and Vietnamese: sentence pairs with the word alignment of their derivation.

Every rule builds both languages at once from the same constituents (Aho and Ullman 1969, "Syntax directed
translations and the pushdown assembler"; Chiang 2007): `rule("D A N", "N A D", D=…, A=…, N=…)` is
NP → ⟨D₁ A₂ N₃, N₃ A₂ D₁⟩, and `not/1`, `không/1` are words linked by their number. Links are thus known, never
estimated. A word without a number has no counterpart: English articles and `do`, mostly.

The derivation tells more of a sentence than its translation. `core` is its main clause, without the clauses
beside it, relative clauses and adverbials, which rules put into brackets; `kind` is what the main clause does.

An English sentence has one translation, core and kind. Text is tokenised: words and marks stand apart, and only
names and `I` are capitalised. `python -m nmt.data.grammar DIR` writes a corpus as ordinary files.
"""

from nmt.data.grammar import lexicon
from nmt.data.grammar.derivation import EMPTY, Phrase, rule, unlinked, word
from nmt.data.grammar.files import FORMATS, main, write_files
from nmt.data.grammar.predicates import Act, predicate
from nmt.data.grammar.sentences import ANNOTATIONS, LANGUAGES, MIN_WORDS, Pair, corpus, sentence
