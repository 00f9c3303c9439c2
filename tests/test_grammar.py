"""The built-in corpus: its translations and links are right, its splits apart, its files read back."""

import csv
import json
import os
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nmt.alignment import format_pharaoh
from nmt.data import grammar
from nmt.data.grammar import (
    EMPTY,
    Act,
    Pair,
    Phrase,
    clauses,
    lexicon,
    predicate,
    questions,
    rule,
    word,
)
from nmt.data.grammar.nominals import article, count_noun
from nmt.data.grammar.predicates import verb_with
from nmt.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"num_train": 200, "num_val": 30, "num_test": 40, "max_words": 20, "seed": 4}


@pytest.fixture(scope="module")
def sample() -> list[Pair]:
    rng = random.Random(17)
    return [grammar.sentence(rng, max_words=50) for _ in range(20_000)]


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Pair]]:
    return grammar.corpus(**SMALL)


# ------------------------------------------------------------------------------- the rules, by hand


def noun(name: str) -> lexicon.Noun:
    return next(each for each in lexicon.NOUNS if each.singular == name)


def the(name: str, *, plural: bool = False) -> Phrase:
    return rule("the N", "N", N=count_noun(noun(name), plural=plural, marker=plural))


def act(base: str, sense: str, thing: Phrase = EMPTY) -> Act:
    verbs = (*lexicon.TRANSITIVES, *lexicon.INTRANSITIVES)
    verb = next(each for each in verbs if each.base == base and sense in each.senses.values())
    return Act(verb, partial(verb_with, verb, sense, thing))


HE = word("he", "anh ấy")
READ = act("read", "đọc", the("book"))


def he(tense: str, doing: Act = READ, *, negative: bool = False) -> Phrase:
    return rule("S V", "S V", S=HE, V=predicate(doing, tense, "3", negative=negative))


def old(phrase: Phrase) -> Phrase:
    return rule("A N", "N A", A=word("old", "cũ"), N=phrase)


DERIVATIONS = {
    "article without counterpart, classifier one to many": (the("book"), "the book", "quyển sách", "1-0 1-1"),
    "word of several syllables": (the("teacher"), "the teacher", "giáo viên", "1-0 1-1"),
    "plural with classifier": (the("dog", plural=True), "the dogs", "những con chó", "1-0 1-1 1-2"),
    "plural without classifier": (the("doctor", plural=True), "the doctors", "các bác sĩ", "1-0 1-1 1-2"),
    "an before a vowel": (
        article(old(count_noun(noun("book"), plural=False))),
        "an old book",
        "một quyển sách cũ",
        "0-0 1-3 2-1 2-2",
    ),
    "adjective crosses, demonstrative last": (
        rule("D N", "N D", D=word("this", "này"), N=old(count_noun(noun("book"), plural=False))),
        "this old book",
        "quyển sách cũ này",
        "0-3 1-2 2-0 2-1",
    ),
    "present": (he("present"), "he reads the book", "anh ấy đọc quyển sách", "0-0 0-1 1-2 3-3 3-4"),
    "past": (he("past"), "he read the book", "anh ấy đã đọc quyển sách", "0-0 0-1 1-2 1-3 3-4 3-5"),
    "future": (he("future"), "he will read the book", "anh ấy sẽ đọc quyển sách", "0-0 0-1 1-2 2-3 4-4 4-5"),
    "progressive": (
        he("progressive"),
        "he is reading the book",
        "anh ấy đang đọc quyển sách",
        "0-0 0-1 1-2 2-3 4-4 4-5",
    ),
    "already stands last": (
        he("already"),
        "he has already read the book",
        "anh ấy đã đọc quyển sách rồi",
        "0-0 0-1 1-2 2-6 3-3 5-4 5-5",
    ),
    "negation drops does": (
        he("present", negative=True),
        "he does not read the book",
        "anh ấy không đọc quyển sách",
        "0-0 0-1 2-2 3-3 5-4 5-5",
    ),
    "negation of the past": (
        he("past", negative=True),
        "he did not read the book",
        "anh ấy đã không đọc quyển sách",
        "0-0 0-1 1-2 2-3 3-4 5-5 5-6",
    ),
    "not yet": (
        he("perfect", negative=True),
        "he has not read the book",
        "anh ấy chưa đọc quyển sách",
        "0-0 0-1 2-2 3-3 5-4 5-5",
    ),
    "can not turns round": (
        he("can", negative=True),
        "he can not read the book",
        "anh ấy không thể đọc quyển sách",
        "0-0 0-1 1-3 2-2 3-4 5-5 5-6",
    ),
    "a verb around its object": (
        he("past", act("feed", "cho … ăn", the("cat"))),
        "he fed the cat",
        "anh ấy đã cho con mèo ăn",
        "0-0 0-1 1-2 1-3 1-6 3-4 3-5",
    ),
    "wear depends on what is worn": (
        he("present", act("wear", "đội", the("hat"))),
        "he wears the hat",
        "anh ấy đội chiếc mũ",
        "0-0 0-1 1-2 3-3 3-4",
    ),
    "they read in the past is never said": (
        rule("S V", "S V", S=word("they", "họ"), V=predicate(READ, "past", "p")),
        "they did not read the book",
        "họ đã không đọc quyển sách",
        "0-0 1-1 2-2 3-3 5-4 5-5",
    ),
}


@pytest.mark.parametrize("name", DERIVATIONS)
def test_derivation_gives_the_translation_and_the_links_written_by_hand(name):
    phrase, en, vi, links = DERIVATIONS[name]
    assert (" ".join(phrase.en), " ".join(phrase.vi)) == (en, vi)
    assert format_pharaoh(phrase.links) == links


# Whole sentences by hand: source, English, Vietnamese, links. Each is looked for among what its source gives, which is
# one rule, or the clauses of an era and a size.
SENTENCES = [
    ("polar_question", "can you swim ?", "bạn có thể bơi không ?", "0-1 0-2 0-4 1-0 2-3 3-5"),
    ("polar_question", "does he sleep ?", "anh ấy có ngủ không ?", "0-2 0-4 1-0 1-1 2-3 3-5"),
    ("object_question", "what did he read ?", "anh ấy đã đọc cái gì ?", "0-4 0-5 1-2 2-0 2-1 3-3 4-6"),
    ("object_question", "who does she help ?", "cô ấy giúp ai ?", "0-3 2-0 2-1 3-2 4-4"),
    ("adverb_question", "where does she sleep ?", "cô ấy ngủ ở đâu ?", "0-3 0-4 2-0 2-1 3-2 4-5"),
    ("adverb_question", "when did they sleep ?", "họ đã ngủ khi nào ?", "0-3 0-4 1-1 2-0 3-2 4-5"),
    ("adverb_question", "when will they sleep ?", "khi nào họ sẽ ngủ ?", "0-0 0-1 1-3 2-2 3-4 4-5"),
    ("naming_question", "who is that teacher ?", "giáo viên đó là ai ?", "0-4 1-3 2-2 3-0 3-1 4-5"),
    ("naming_question", "whose book is this ?", "đây là quyển sách của ai ?", "0-4 0-5 1-2 1-3 2-1 3-0 4-6"),
    ("stative_clause", "she is a teacher", "cô ấy là một giáo viên", "0-0 0-1 1-2 2-3 3-4 3-5"),
    ("stative_clause", "I am not hungry", "tôi không đói", "0-0 2-1 3-2"),
    ("past 5", "my mother slept", "mẹ tôi đã ngủ", "0-1 1-0 2-2 2-3"),
    ("past 7", "he slept yesterday", "hôm qua anh ấy đã ngủ", "0-2 0-3 1-4 1-5 2-0 2-1"),
    ("present 9", "she lives in Hanoi", "cô ấy sống ở Hà Nội", "0-0 0-1 1-2 2-3 3-4 3-5"),
    ("present 4", "they want to sleep", "họ muốn ngủ", "0-0 1-1 3-2"),
]


SOURCES = {**vars(questions), **vars(clauses)}


@pytest.mark.parametrize(("source", "en", "vi", "links"), SENTENCES, ids=[each[1] for each in SENTENCES])
def test_a_whole_sentence_is_translated_and_linked_as_by_hand(source, en, vi, links):
    rng = random.Random(0)
    era, _, room = source.partition(" ")
    for _ in range(40_000):
        phrase = clauses.clause(rng, int(room), era) if room else SOURCES[source](rng, 8)
        if " ".join(phrase.en) == en:
            break
    else:
        pytest.fail(f"never said: {en}")
    assert " ".join(phrase.vi) == vi
    assert format_pharaoh(phrase.links) == links


def test_a_rule_that_loses_a_constituent_on_one_side_is_a_bug():
    with pytest.raises(AssertionError):
        rule("A N", "N", A=word("old", "cũ"), N=word("book", "sách"))


# -------------------------------------------------------------------------------- the sentences at large


def test_every_link_is_in_range_and_every_vietnamese_word_has_one(sample):
    for pair in sample:
        num_en, num_vi = len(pair.en.split()), len(pair.vi.split())
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(0 <= i < num_en and 0 <= j < num_vi for i, j in pair.alignment)
        assert {j for _, j in pair.alignment} == set(range(num_vi)), pair


def test_only_words_without_counterpart_have_no_link(sample):
    free = Counter(
        word
        for pair in sample
        for i, word in enumerate(pair.en.split())
        if i not in {link for link, _ in pair.alignment}
    )
    no_counterpart = {"the", "a", "is", "am", "are", "do", "does", "have", "has", "to", "for", "of", "there"}
    assert set(free) <= no_counterpart, free


def test_an_english_sentence_has_one_translation_core_and_kind(sample):
    known: dict[str, Pair] = {}
    for pair in sample:
        assert known.setdefault(pair.en, pair) == pair


def test_text_is_composed_and_tokenised(sample):
    names = {"I"} | {en for en, _ in (*lexicon.NAMES, *lexicon.CITIES, *lexicon.SUBJECTS)}
    for pair in sample:
        assert unicodedata.is_normalized("NFC", pair.en + pair.vi)
        assert pair.en == " ".join(pair.en.split())
        assert pair.vi == " ".join(pair.vi.split())
        assert pair.en[-2:] in (" .", " ?")
        assert pair.en[-1] == pair.vi[-1]
        assert all(token in names for token in pair.en.split() if token != token.lower())


def test_english_agrees(sample):
    wrong = {
        "he": {"read", "drink", "walk", "are", "have", "do", "want", "were"},
        "they": {"reads", "drinks", "walks", "is", "has", "does", "wants", "was"},
        "I": {"reads", "is", "are", "has", "does", "wants", "were"},
    }
    for pair in sample:
        words = pair.en.split()
        for token, following in pairwise(words):
            if token in ("a", "an"):
                assert (token == "an") == (following[0] in "aeiou"), pair.en
            # In a question the auxiliary agrees, and `he read` may be a past.
            if token in wrong and words[-1] == "." and following != "read":
                assert following not in wrong[token], pair.en


PHENOMENA = {
    "classifier": lambda pair: " con " in f" {pair.vi}",
    "demonstrative after the noun": lambda pair: {"này", "đó"} & set(pair.vi.split()),
    "past": lambda pair: "đã" in pair.vi.split(),
    "progressive": lambda pair: "đang" in pair.vi.split(),
    "future": lambda pair: "sẽ" in pair.vi.split(),
    "negation": lambda pair: "not" in pair.en.split(),
    "not yet": lambda pair: "chưa" in pair.vi.split(),
    "plural": lambda pair: {"những", "các"} & set(pair.vi.split()),
    "possessive": lambda pair: "của" in pair.vi.split(),
    "genitive": lambda pair: "'s" in pair.en.split(),
    "polar question": lambda pair: pair.vi.endswith("không ?"),
    "question word in place": lambda pair: pair.vi.endswith(("cái gì ?", "ai ?", "ở đâu ?")),
    "relative clause": lambda pair: "mà" in pair.vi.split(),
    "coordination": lambda pair: {"và", "nhưng"} & set(pair.vi.split()),
    "reason": lambda pair: "because" in pair.en.split(),
    "condition": lambda pair: "nếu" in pair.vi.split() and "thì" in pair.vi.split(),
    "comparative": lambda pair: "hơn" in pair.vi.split(),
    "superlative": lambda pair: "nhất" in pair.vi.split(),
    "modal": lambda pair: "có thể" in pair.vi,
    "passive": lambda pair: "được" in pair.vi.split() and "bởi" in pair.vi.split(),
    "manner": lambda pair: "một cách" in pair.vi,
    "time moves to the front": lambda pair: pair.en.endswith("yesterday .") and "hôm qua" in pair.vi,
    "place": lambda pair: "trong" in pair.vi.split(),
    "number": lambda pair: "three" in pair.en.split(),
    "reported speech": lambda pair: "rằng" in pair.vi.split(),
    "two senses of old": lambda pair: "old" in pair.en.split() and "già" in pair.vi.split(),
}


@pytest.mark.parametrize("name", PHENOMENA)
def test_phenomenon_occurs_often_enough_to_be_learnt(sample, name):
    assert sum(bool(PHENOMENA[name](pair)) for pair in sample) >= 40


def test_vocabulary_is_rich_on_either_side(sample):
    for side in ("en", "vi"):
        assert len({word for pair in sample for word in getattr(pair, side).split()}) >= 400


def test_there_are_over_a_million_distinct_pairs(sample):
    """Were there at most N = 1e6 sentences of 12 words or more, k random ones would hold k^2 / 2N repeats or more."""
    long = [pair.en for pair in sample if len(pair.en.split()) >= 12]
    repeats = len(long) - len(set(long))
    assert len(long) ** 2 / 2e6 > 10, "too few to tell"
    assert repeats <= 1


# ---------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize("max_words", [3, 4, 5, 8, 50])
def test_lengths_stay_within_bounds_on_both_sides(max_words):
    rng = random.Random(max_words)
    for _ in range(500):
        pair = grammar.sentence(rng, max_words=max_words)
        for side in (pair.en, pair.vi):
            assert 3 <= len(side.split()) <= max_words, pair


def test_lengths_reach_both_ends_and_mostly_lie_between(sample):
    lengths = [max(len(pair.en.split()), len(pair.vi.split())) for pair in sample]
    assert min(len(pair.en.split()) for pair in sample) == 3
    assert sum(length > 40 for length in lengths) >= 50
    assert sum(5 <= length <= 20 for length in lengths) > 0.7 * len(lengths)


def test_min_words_holds_on_both_sides():
    pairs = grammar.corpus(num_train=40, num_val=1, num_test=1, min_words=25, max_words=40, seed=0)["train"]
    assert all(25 <= len(side.split()) <= 40 for pair in pairs for side in (pair.en, pair.vi))


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"max_words": 2}, ("max_words=2", "3")),
        ({"num_val": -1}, ("num_val=-1", "0")),
        ({"min_words": 9, "max_words": 8}, ("min_words=9", "max_words=8")),
        ({"max_words": 3, "num_train": 5000}, ("5,070", "distinct")),
    ],
)
def test_what_is_impossible_is_refused_with_both_numbers(change, numbers):
    with pytest.raises(UserError) as caught:
        grammar.corpus(**{**SMALL, **change})
    assert all(number in str(caught.value) for number in numbers)


# ---------------------------------------------------------------------------------------------- the splits


def test_splits_have_their_sizes_and_share_no_sentence(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 200, "val": 30, "test": 40}
    for side in ("en", "vi"):
        texts = [getattr(pair, side) for pairs in splits.values() for pair in pairs]
        assert len(set(texts)) == len(texts)


def test_test_and_validation_do_not_change_with_the_size_of_train(splits):
    more = grammar.corpus(**{**SMALL, "num_train": 300})
    assert (more["val"], more["test"]) == (splits["val"], splits["test"])
    assert more["train"][:200] == splits["train"]


def test_seed_decides_in_another_process_too(splits, tmp_path):
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items()]
    subprocess.run(
        [sys.executable, "-m", "nmt.data.grammar", str(tmp_path), *arguments],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
    )
    for split, pairs in splits.items():
        assert (tmp_path / f"{split}.en").read_text("utf-8") == "".join(f"{pair.en}\n" for pair in pairs)
        assert (tmp_path / f"{split}.vi").read_text("utf-8") == "".join(f"{pair.vi}\n" for pair in pairs)


# ----------------------------------------------------------------------------------------------- the files


def read_back(directory: Path, split: str, form: str) -> list[tuple[str, ...]]:
    """Rows of (en, vi, alignment), read without the package."""
    path = directory / f"{split}.{form}"
    if form == "text":
        sides = [
            (directory / f"{split}.{end}").read_text("utf-8").splitlines() for end in ("en", "vi", "align")
        ]
        return list(zip(*sides, strict=True))
    if form == "parquet":
        rows = pq.read_table(path).to_pylist()
    elif form == "jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    elif form == "csv":
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
    else:
        return [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]
    return [(row["en"], row["vi"], row["alignment"]) for row in rows]


@pytest.mark.parametrize("form", grammar.FORMATS)
def test_files_hold_what_was_generated_and_nothing_else_is_left(splits, tmp_path, form):
    written = grammar.write_files(tmp_path / "new", splits, format=form)
    assert sorted(written) == sorted((tmp_path / "new").iterdir())
    for split, pairs in splits.items():
        expected = [(pair.en, pair.vi, format_pharaoh(pair.alignment)) for pair in pairs]
        assert read_back(tmp_path / "new", split, form) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--max-words=2"], 1, "max_words=2"),
        (["--max-words=3"], 1, "distinct"),
        (["--format=xml"], 2, "invalid choice"),
    ],
)
def test_command_line_names_what_is_wrong_in_one_line(tmp_path, capsys, arguments, code, message):
    try:
        got = grammar.write_grammar([str(tmp_path / "out"), *arguments])
    except SystemExit as stop:
        got = stop.code
    assert got == code
    errors = capsys.readouterr().err.strip().splitlines()
    assert message in errors[-1]
    assert sum("error:" in line for line in errors) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_can_not_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    small = ["--num-train=2", "--num-val=1", "--num-test=1"]
    assert grammar.write_grammar([str(tmp_path / "file"), *small]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "jsonl", "tsv", "csv"])
def test_the_examples_are_ten_sentences_of_this_grammar(form):
    rows = read_back(ROOT / "data" / "examples" / form, "train", form)
    assert len(rows) == 10
    assert rows == read_back(ROOT / "data" / "examples" / "text", "train", "text")
    expected = grammar.corpus(num_train=10, num_val=0, num_test=0, min_words=5, max_words=16, seed=3)["train"]
    assert [row[:2] for row in rows] == [(pair.en, pair.vi) for pair in expected]
