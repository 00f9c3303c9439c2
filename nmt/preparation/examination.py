"""Examine the splits of a corpus in two readings of the text, with a few bytes of memory per pair.

The first finds the problems of single pairs, counts, and draws a sample. The second compares every pair with the whole
text, as learned from the sample.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.alignment.numbered_words import Bools, Ints, Words
from nmt.data.find import Files, Languages
from nmt.preparation import shifts
from nmt.preparation.codes import SCRIPTS, Codes, Floats, own_words
from nmt.preparation.counts import Counts
from nmt.preparation.held_out import Keys, are_near
from nmt.preparation.mismatches import KINDS, Mismatches, length_ratios
from nmt.preparation.problems import BIT, find_problems, form_of, has
from nmt.preparation.reading import Block, pairs_at_once, read_blocks
from nmt.preparation.trigrams import LEAST_LENGTH, LanguageOdds, log_odds
from nmt.preparation.word_pairs import WordPairs

_SAMPLED = 10_000  # pairs in each half of the sample
_OF_CLASSIFIER = 3_000  # of them
_BLOCKS, _LINES = 20, 100  # of the sample, in their order
_LEAST_SAMPLE = 100  # pairs in each half
_SCRIPT_SHARE = 0.25  # of the letters of a side: a script of its language
_LEAST_LETTERS = 3  # on a side whose script is judged
_LEAST_CHARACTERS = 30  # on the longer side of a pair whose ratio is judged
_LEAST_WORDS = 4  # on the longer side of a pair that may be mismatched or truncated


@dataclass
class Split:
    """A split's files, and all that is found in it. bits: the problems of each pair; pairs: their hashes."""

    name: str
    files: Files
    languages: Languages
    counts: Counts
    skip_bad: bool
    bits: NDArray[np.uint32] = field(init=False)
    pairs: Ints = field(init=False)
    stretches: list[shifts.Stretch] = field(default_factory=list)
    is_compared: bool = False  # with the whole text

    def read(self, what: str, *, is_first: bool = False) -> Iterator[Block]:
        """Yield the blocks of the split, with progress."""
        total = None if is_first else len(self.bits)
        with tqdm(total=total, desc=f"{self.name}: {what}", unit=" pairs", disable=None, leave=False) as bar:
            for block in read_blocks(self.files, self.languages, skip_bad=self.skip_bad, is_first=is_first):
                yield block
                bar.update(len(block.rows))

    def mark(self, name: str, which: Bools) -> None:
        """Note a problem of pairs that are not empty."""
        self.bits[which & ~has(self.bits, "empty")] |= BIT[name]


class Sample:
    """Pairs that are not empty, drawn evenly from all that were added (reservoir sampling), in two halves of blocks."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._seen, self._num_blocks = [0, 0], 0
        self.blocks: list[tuple[Sequence[str], Sequence[str]]] = []  # some, of lines in a row
        self.halves: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []

    def add(self, block: Block) -> None:
        half = _half_of(block)
        chances = self._draw.random(len(block.rows)).tolist()
        self._num_blocks += 1
        if (place := len(self.blocks)) < _BLOCKS or (place := int(chances[0] * self._num_blocks)) < _BLOCKS:
            self.blocks[place : place + 1] = [(block.src[:_LINES], block.tgt[:_LINES])]
        for src, tgt, chance in zip(block.src, block.tgt, chances, strict=True):
            if src.strip() and tgt.strip():
                self._seen[half] += 1
                if len(self.halves[half]) < _SAMPLED:
                    self.halves[half].append((src, tgt))
                elif (place := int(chance * self._seen[half])) < _SAMPLED:
                    self.halves[half][place] = src, tgt


def _half_of(block: Block) -> int:
    return block.first // pairs_at_once(block.first) % 2


def look(split: Split, sample: Sample, near: Keys, bounds: Mapping[str, float]) -> None:
    """The first reading: counts, the problems of single pairs, and repeated pairs. near: `all_keys`, sorted."""
    bits, pairs, sources = array("I"), array("q"), array("q")
    forms = array("b")
    for block in split.read("reading", is_first=True):
        found = np.fromiter(map(find_problems, block.src, block.tgt), np.uint32, len(block.rows))
        found[split.counts.add(block.src, block.tgt) > bounds["long"]] |= BIT["long"]
        if len(near):
            found[are_near(block.src, near)] |= BIT["near"]
        sample.add(block)
        bits.frombytes(found.tobytes())
        forms.extend(form_of(f"{src}\n{tgt}") for src, tgt in zip(block.src, block.tgt, strict=True))
        sources.extend(hash(src.strip()) for src in block.src)
        pairs.extend(hash((src.strip(), tgt.strip())) for src, tgt in zip(block.src, block.tgt, strict=True))
    split.bits, split.pairs = np.frombuffer(bits, np.uint32).copy(), np.frombuffer(pairs, np.int64)
    split.mark("duplicate", _stand_above(split.pairs, 1))
    different = np.flatnonzero(~has(split.bits, "empty", "duplicate"))
    has_others = np.zeros(len(split.bits), bool)
    has_others[different] = _stand_above(np.frombuffer(sources, np.int64)[different], int(bounds["targets"]))
    split.mark("targets", has_others)
    signs = np.frombuffer(forms, np.int8)
    rarer = 1 if (signs > 0).sum() <= (signs < 0).sum() else -1
    split.mark("forms", signs == rarer)


def _stand_above(hashes: Ints, times: int) -> Bools:
    """True for the values that stand at least `times` times further up."""
    order = np.argsort(hashes, kind="stable")
    in_order, found = hashes[order], np.zeros(len(hashes), bool)
    found[order[times:][in_order[times:] == in_order[:-times]]] = True
    return found


@dataclass(frozen=True)
class Usual:
    """The scripts of each side, and the log of the usual ratio of the sides' characters (`length_ratios`)."""

    scripts: tuple[Bools, Bools]
    ratio: float

    @classmethod
    def of(cls, counts: Counts, pairs: Sequence[tuple[str, str]]) -> "Usual":
        letters = counts.scripts
        share = letters / np.maximum(letters[:, 1:].sum(axis=1, keepdims=True), 1)
        src, tgt = zip(*pairs, strict=True)
        return cls(
            (share[0] >= _SCRIPT_SHARE, share[1] >= _SCRIPT_SHARE),
            float(np.median(length_ratios(Codes(src), Codes(tgt)))),
        )


@dataclass(frozen=True)
class Knowledge:
    """What was learned from a sample. words: from each of its halves, to judge pairs of the other half's blocks."""

    languages: LanguageOdds
    words: list[WordPairs]
    mismatches: Mismatches
    usual: float  # evidence per word that a line and its translation belong together, in nats

    @classmethod
    def learn(cls, sample: Sample, usual: Usual, seed: int) -> "Knowledge | None":
        """Learn from the different pairs of a sample; None if they are too few."""
        first = dict.fromkeys(sample.halves[0])
        halves = list(first), [pair for pair in dict.fromkeys(sample.halves[1]) if pair not in first]
        if min(map(len, halves)) < _LEAST_SAMPLE:
            return None
        sides = [([src for src, _ in half], [tgt for _, tgt in half]) for half in halves]
        codes = [(Codes(src), Codes(tgt)) for src, tgt in sides]
        unequal = [np.flatnonzero([src.strip() != tgt.strip() for src, tgt in half]) for half in halves]
        languages = LanguageOdds.learn(
            *(
                Words.join([each[side].trigrams.at(some) for each, some in zip(codes, unequal, strict=True)])
                for side in (0, 1)
            )
        )
        words = [WordPairs.learn(src.words, tgt.words) for src, tgt in codes]
        some = [
            (src[:_OF_CLASSIFIER], tgt[:_OF_CLASSIFIER], words[1 - half])
            for half, (src, tgt) in enumerate(sides)
        ]
        known = words[1].known(*(each.words for each in codes[0]))
        evidence = shifts.line_scores(*known, words[1]) / np.maximum(known[0].lengths + known[1].lengths, 1)
        mismatches = Mismatches.learn(some, usual.ratio, seed)
        return cls(languages, words, mismatches, float(np.median(evidence)))


def compare_sides(split: Split, usual: Usual, known: Knowledge | None, bounds: Mapping[str, float]) -> None:
    """The second reading: problems that show in comparison with the rest of the text.

    Of little text (`known` is None), these are only scripts and ratios.
    """
    low: dict[int, NDArray[np.int8]] = {}
    split.is_compared = known is not None
    foreign = (None, None) if known is None else known.languages.foreign
    checks = [_checks_of_a_side(*each, bounds) for each in zip(usual.scripts, foreign, strict=True)]
    for block in split.read("comparing"):
        codes = Codes(block.src), Codes(block.tgt)
        lengths = np.maximum(codes[0].lengths, codes[1].lengths)
        found = np.zeros(len(block.rows), np.uint32)
        for side, (line, other) in enumerate(((block.src, block.tgt), (block.tgt, block.src))):
            for name, is_found in checks[side].items():
                if len(places := np.flatnonzero(is_found(codes[side]))):
                    own = Codes([own_words(line[place], other[place]) for place in places])
                    found[places[is_found(own)]] |= BIT[name]
        is_odd = np.abs(length_ratios(*codes) - usual.ratio) > np.log(bounds["ratio"])
        found[is_odd & (lengths > _LEAST_CHARACTERS)] |= BIT["ratio"]
        if known is not None:
            words = known.words[1 - _half_of(block)]
            is_long = np.maximum(codes[0].num_words, codes[1].num_words) >= _LEAST_WORDS
            found |= _wrong_sides(codes, known, bounds)
            odds = known.mismatches.log_odds(*codes, words)
            for kind, name in enumerate(KINDS[1:], 1):
                is_worst = (odds[:, kind] > bounds[name]) & (odds[:, kind] >= odds.max(axis=1))
                found[is_worst & is_long] |= BIT[name]
            sides = words.known(codes[0].words, codes[1].words)
            if (scores := shifts.shifted_scores(*sides, words, known.usual)) is not None:
                low[block.first] = scores
        bits = split.bits[block.first : block.first + len(block.rows)]
        bits |= np.where(has(bits, "empty"), np.uint32(0), found)
        bits[has(bits, "equal", "swapped", "untranslated")] &= ~BIT["foreign"]
    for stretch in shifts.find_stretches(low):
        split.stretches.append(stretch)
        split.bits[stretch.first : stretch.last + 1] |= BIT["shifted"]


def _checks_of_a_side(
    scripts: Bools, foreign: Floats | None, bounds: Mapping[str, float]
) -> dict[str, Callable[[Codes], Bools]]:
    """Checks by the name of the problem. A line has it only if its own words have it: names stand on both sides."""
    checks: dict[str, Callable[[Codes], Bools]] = {
        "script": partial(_is_strange, scripts=scripts, bound=bounds["script"])
    }
    if foreign is not None and not scripts[SCRIPTS.index("Han or Kana")]:  # whose trigrams tell subjects
        checks["foreign"] = partial(_is_foreign, table=foreign, bound=bounds["foreign"])
    return checks


def _is_strange(codes: Codes, *, scripts: Bools, bound: float) -> Bools:
    """True for lines of which more than a share of the letters is in none of these scripts."""
    letters = codes.scripts[:, 1:].sum(axis=1)
    strange = codes.scripts[:, 1:][:, ~scripts[1:]].sum(axis=1)
    return (letters >= _LEAST_LETTERS) & (strange > bound * letters)


def _is_foreign(codes: Codes, *, table: Floats, bound: float) -> Bools:
    """True for lines that are long enough to judge, and whose log-odds of another language are above a bound."""
    return (codes.trigrams.lengths >= LEAST_LENGTH) & (log_odds(codes.trigrams, table) > bound)


def _wrong_sides(
    codes: tuple[Codes, Codes], known: Knowledge, bounds: Mapping[str, float]
) -> NDArray[np.uint32]:
    """The bits of sides in each other's language."""
    src, tgt = (  # numbers are in no language
        log_odds(each.trigrams, known.languages.sides) * (each.scripts[:, 1:].sum(axis=1) > 0)
        for each in codes
    )
    is_swapped = (src < 0) & (tgt > 0) & (tgt - src > bounds["swapped"])
    is_of_other = ~is_swapped & ((src < -bounds["untranslated"]) | (tgt > bounds["untranslated"]))
    found = np.where(is_swapped, BIT["swapped"], 0) | np.where(is_of_other, BIT["untranslated"], 0)
    return found.astype(np.uint32)
