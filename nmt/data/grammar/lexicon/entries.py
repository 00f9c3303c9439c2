"""Kinds of words, and how their tables are read: a row a line, cells between bars."""

import unicodedata
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Noun:
    """A count noun. classifier: empty where the noun is counted without one (`hai bác sĩ`, two doctors)."""

    singular: str
    plural: str
    classifier: str
    vi: str
    kind: str

    @property
    def plural_marker(self) -> str:
        """`các` before a noun without classifier (các bác sĩ), `những` before a classifier (những con chó)."""
        return "những" if self.classifier else "các"


@dataclass(frozen=True)
class Mass:
    """A noun that is not counted but measured: tea, `trà`; two cups of tea, `hai tách trà`."""

    en: str
    vi: str
    kind: str
    measure: tuple[str, str, str] | None  # cup, cups, tách


@dataclass(frozen=True)
class Adjective:
    """senses: what noun (kind, or the noun itself) -> the Vietnamese for it, or `-` where they do not go together."""

    en: str
    comparative: str  # empty where English needs `more`
    superlative: str
    senses: dict[str, str] = field(hash=False)

    def vi(self, noun: Noun | Mass) -> str | None:
        """The Vietnamese of this adjective with `noun`, or None where they do not go together."""
        return _sense(self.senses, noun)


@dataclass(frozen=True)
class Verb:
    """senses: the kind of object (or the noun itself) -> the Vietnamese, where … stands for the object.

    An intransitive verb has the one key "". flags: `state` (no progressive), `place` (goes with a place), `passive`,
    and the adverbs of manner that it goes with.
    """

    base: str
    third: str
    past: str
    participle: str
    ing: str
    particle: str  # the `for` of `wait for`: part of the verb, with no word of its own in Vietnamese
    subjects: tuple[str, ...]
    senses: dict[str, str] = field(hash=False)
    flags: frozenset[str]

    @property
    def one_sense(self) -> bool:
        """Whether it translates alike before every object, so that the object may be a pronoun."""
        return len(set(self.senses.values())) == 1

    def sense(self, noun: Noun | Mass) -> str | None:
        """The Vietnamese of this verb with the object `noun`, or None where they do not go together."""
        return _sense(self.senses, noun)


@dataclass(frozen=True)
class Pronoun:
    """agr: how the verb agrees, `1` (I am), `3` (she is) or `p` (they are)."""

    subject: str
    object: str
    possessive: str
    vi: str
    agr: str
    kind: str


def _sense(senses: dict[str, str], noun: Noun | Mass) -> str | None:
    """The sense for the noun itself, else for its kind; `-` says that there is none."""
    name = noun.singular if isinstance(noun, Noun) else noun.en
    sense = senses.get(name, senses.get(noun.kind))
    return None if sense == "-" else sense


def rows(table: str) -> list[list[str]]:
    """The cells of a table: a row a line, cells between bars."""
    lines = unicodedata.normalize("NFC", table).strip().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def nouns(table: str) -> tuple[Noun, ...]:
    found = []
    for kind, forms, classifier, vi in rows(table):
        singular, plural = forms.split()
        found.append(Noun(singular, plural, classifier, vi, kind))
    return tuple(found)


def _senses(cell: str) -> dict[str, str]:
    """`già: person animal; cũ: text` -> {"person": "già", …}."""
    found = {}
    for sense in cell.split(";"):
        vi, _, keys = sense.partition(":")
        for key in keys.split() or [""]:
            found[key] = vi.strip()
    return found


def adjectives(table: str) -> tuple[Adjective, ...]:
    found = []
    for forms, senses in rows(table):
        en, comparative, superlative = [*forms.split(), "", ""][:3]
        found.append(Adjective(en, comparative, superlative, _senses(senses)))
    return tuple(found)


def verbs(table: str) -> tuple[Verb, ...]:
    found = []
    for forms, subjects, senses, flags in rows(table):
        base, third, past, participle, ing, particle = [*forms.split(), ""][:6]
        found.append(
            Verb(
                base,
                third,
                past,
                participle,
                ing,
                particle,
                tuple(subjects.split()),
                _senses(senses),
                frozenset(flags.split()),
            )
        )
    return tuple(found)
