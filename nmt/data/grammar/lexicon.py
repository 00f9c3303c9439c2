"""The words of the English–Vietnamese grammar, read from the tables in `words/`.

A table is a file of columns between tabs, named by its first line. A speaker of both languages can proofread it. Every
English word has a single translation in its context. A noun has its classifier (`cái bàn`, `con chó`). A verb or an
adjective may have several senses, chosen by its noun: an old teacher is `già`, an old book `cũ`; to wear a shirt is
`mặc`, to wear a hat `đội`.
"""

import csv
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WORDS = Path(__file__).parent / "words"


@dataclass(frozen=True, eq=False)
class Noun:
    """A count noun. classifier: empty if the noun is counted without a classifier (`hai bác sĩ`, two doctors)."""

    kind: str
    singular: str
    plural: str
    classifier: str
    vi: str

    @property
    def plural_marker(self) -> str:
        """`các` before a noun without classifier (các bác sĩ), `những` before a classifier (những con chó)."""
        return "những" if self.classifier else "các"


@dataclass(frozen=True, eq=False)
class Mass:
    """A noun that is not counted but measured: tea, `trà`; two cups of tea, `hai tách trà`.

    measure: its singular, its plural and its translation (cup, cups, tách); empty if there is none.
    """

    singular: str
    vi: str
    kind: str
    measure: str


@dataclass(frozen=True, eq=False)
class _WithSenses:
    """senses: a noun or a kind of nouns -> the Vietnamese beside it, or `-` if the two do not go together."""

    senses: dict[str, str]

    def sense(self, noun: Noun | Mass) -> str | None:
        """The Vietnamese beside `noun`, by the noun itself or else its kind; None if the two do not go together."""
        found = self.senses.get(noun.singular, self.senses.get(noun.kind))
        return None if found == "-" else found


@dataclass(frozen=True, eq=False)
class Adjective(_WithSenses):
    """comparative, superlative: empty if English needs `more`."""

    en: str
    comparative: str = ""
    superlative: str = ""


@dataclass(frozen=True, eq=False)
class Verb(_WithSenses):
    """A verb with senses by its object; … in a sense stands for the object. An intransitive verb has the key "".

    subjects: the nouns and kinds of nouns that act. flags: `state` (no progressive), `place` (goes with a place),
    `passive`, and the adverbs of manner for this verb. particle: the `for` of `wait for`, a part of the verb without a
    word in Vietnamese.
    """

    subjects: tuple[str, ...]
    flags: frozenset[str]
    base: str
    third: str
    past: str
    participle: str
    ing: str
    particle: str = ""

    @property
    def one_sense(self) -> bool:
        """True if the verb translates alike before every object, so that the object may be a pronoun."""
        return len(set(self.senses.values())) == 1


@dataclass(frozen=True, eq=False)
class Pronoun:
    """agr: how the verb agrees, `1` (I am), `3` (she is) or `p` (they are)."""

    subject: str
    object: str
    possessive: str
    vi: str
    agr: str
    kind: str


def _rows(table: str) -> list[dict[str, str]]:
    """The rows of a table by the names of its columns; empty cells at the end of a line may be left out."""
    lines = unicodedata.normalize("NFC", (WORDS / f"{table}.tsv").read_text("utf-8")).splitlines()
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, restval=""))


def _senses(cell: str) -> dict[str, str]:
    """`già: person animal; cũ: text` -> {"person": "già", "animal": "già", "text": "cũ"}."""
    senses = [sense.partition(":") for sense in cell.split(";")]
    return {key: vi.strip() for vi, _, keys in senses for key in keys.split() or [""]}


def _verbs(frame: str) -> tuple[Verb, ...]:
    return tuple(
        Verb(
            _senses(row["senses"]),
            tuple(row["subjects"].split()),
            frozenset(row["flags"].split()),
            *row["forms"].split(),
        )
        for row in _rows("verbs")
        if row["frame"] == frame
    )


def _pairs(group: str) -> tuple[tuple[str, str], ...]:
    """The phrases (English, Vietnamese) of a group."""
    return tuple((row["english"], row["vietnamese"]) for row in _rows("phrases") if row["group"] == group)


NOUNS = tuple(Noun(**row) for row in _rows("nouns"))
MASSES = tuple(Mass(**row) for row in _rows("masses"))
PRONOUNS = tuple(Pronoun(**row) for row in _rows("pronouns"))
ADJECTIVES = tuple(Adjective(_senses(row["senses"]), *row["forms"].split()) for row in _rows("adjectives"))
COLOURS = frozenset(("red", "black", "white", "yellow"))
SIZES = frozenset(("old", "new", "big", "small"))  # may stand before a colour

TRANSITIVES, INTRANSITIVES = _verbs("transitive"), _verbs("intransitive")
MOTIONS = _verbs("motion")  # going somewhere: English `to` is `đến`
GIVINGS = _verbs("giving")  # handing something to someone: English `to` is `cho`
SAYINGS = _verbs("saying")  # saying and thinking: English `that` is `rằng`
LEARN, TEACH, LIVE = (_verbs(frame)[0] for frame in ("learning", "teaching", "living"))
SEE = next(verb for verb in TRANSITIVES if verb.base == "see")
SLEEP = next(verb for verb in INTRANSITIVES if verb.base == "sleep")

NUMBERS, NAMES = _pairs("number"), _pairs("name")
CITIES, SUBJECTS = _pairs("city"), _pairs("school subject")
KIN = _pairs("kin")  # possessed without `của` (my mother, mẹ tôi)
FEELINGS = _pairs("feeling")  # adjectives of a person
MANNERS = dict(_pairs("manner"))  # after the verb and its object
FREQUENCIES = _pairs("frequency")  # before the verb
# Links are by number, as in the grammar's rules.
TIMES = {tense: _pairs(f"time {tense}") for tense in ("past", "future", "present", "progressive")}
# English, Vietnamese, form of the verb, and the marker that this form carries. C is the act; words in braces agree
# with the subject. In `when he came` (then), Vietnamese leaves the past to the main clause.
TENSES = {tense: tuple(cells) for tense, *cells in (row.values() for row in _rows("tenses"))}
# Conjunctions of clauses A and B. Parts in brackets are not in the core.
CONJUNCTIONS, FRONTED = _pairs("conjunction"), _pairs("fronted conjunction")

ANIMATE = ("person", "animal", "bird")
NOUNS_OF_KIND = {
    kind: tuple(each for each in NOUNS if each.kind == kind) for kind in {each.kind for each in NOUNS}
}
OWNED = tuple(
    noun
    for kind in ("text", "thing", "picture", "garment", "hat", "jewel", "scarf", "car", "bike")
    for noun in NOUNS_OF_KIND[kind]
)
PROFESSIONS = NOUNS[:13]
SHORT_PRONOUNS = tuple(each for each in PRONOUNS if " " not in each.vi)
PASSIVE = tuple(verb for verb in TRANSITIVES if "passive" in verb.flags)


@cache
def adjectives_for(noun: Noun | Mass) -> tuple[tuple[Adjective, str], ...]:
    """Adjectives that go with `noun`, with their Vietnamese for it."""
    return tuple((each, vi) for each in ADJECTIVES if (vi := each.sense(noun)))


@cache
def objects_of(verb: Verb) -> tuple[tuple[Noun | Mass, str], ...]:
    """Nouns that `verb` takes as objects, with the Vietnamese of the verb for each noun."""
    things: tuple[Noun | Mass, ...] = (*NOUNS, *MASSES)
    return tuple((noun, sense) for noun in things if (sense := verb.sense(noun)))


@cache
def verbs_for(kind: str, name: str, intransitive: bool) -> tuple[Verb, ...]:
    """Verbs for a subject of this kind or name."""
    table = INTRANSITIVES if intransitive else TRANSITIVES
    return tuple(verb for verb in table if kind in verb.subjects or name in verb.subjects)


DESCRIBED = tuple(noun for noun in NOUNS if adjectives_for(noun))
COMPARABLE = tuple(noun for noun in NOUNS if any(each.comparative for each, _ in adjectives_for(noun)))
