"""A synchronous grammar of English and Vietnamese: sentence pairs with the word alignment of their derivation.

Every rule builds both languages at once from the same constituents (Aho and Ullman 1969, "Syntax directed translations
and the pushdown assembler"; Chiang 2007): `rule("D A N", "N A D", D=…, A=…, N=…)` is NP → ⟨D₁ A₂ N₃, N₃ A₂ D₁⟩, and
`not/1`, `không/1` are words linked by their number. The links are therefore known and not estimated. A word without a
number has no counterpart, as English articles and `do`.

A derivation also gives `core`, the main clause without the parts in brackets (other clauses, relative clauses and
adverbials), and `kind`, the type of the main clause. An English sentence has a single translation, core and kind. Words
and punctuation marks stand apart; only names and `I` have capitals. `python -m nmt.data.grammar DIR` writes a corpus as
files.
"""

from nmt.data.grammar import lexicon
from nmt.data.grammar.derivation import EMPTY, Phrase, rule, unlinked_word, word
from nmt.data.grammar.documents import GrammarDocument, documents
from nmt.data.grammar.predicates import Act, predicate
from nmt.data.grammar.sentences import ANNOTATIONS, LANGUAGES, MIN_WORDS, Pair, corpus, sentence
from nmt.data.grammar.write import FORMATS, write_files, write_grammar
