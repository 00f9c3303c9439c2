"""Probes: changed sources, with references and original translations to compare with."""

import random
import re
from types import SimpleNamespace

import pytest

from nmt import metrics
from nmt.run.probes import (
    make_probes,
    misspell,
    probe_notes,
    probe_rows,
    run_probes,
    without_stop,
    word_pairs,
)

SOURCES = ["A Big dog sleeps here.", "Two cats run", "", "He said: Sleep well."]
REFERENCES = ["Ein Großer Hund schläft hier.", "Zwei Katzen laufen.", "", "Er sagte: Schlaf gut."]
ORIGINALS = ["Ein Hund schläft.", "Zwei Katzen", "", "Er sagte gut"]


def test_each_probe_changes_its_sources_and_compares_alike():
    found = make_probes(list(zip(SOURCES, REFERENCES, ORIGINALS, strict=True)))
    assert found["lower_case"][0] == (
        *("a big dog sleeps here.", "ein großer hund schläft hier.", "ein hund schläft."),
    )
    assert found["upper_case"][1] == ("TWO CATS RUN", "zwei katzen laufen.", "zwei katzen")
    assert found["no_full_stop"] == [
        ("A Big dog sleeps here", "Ein Großer Hund schläft hier", "Ein Hund schläft"),
        ("He said: Sleep well", "Er sagte: Schlaf gut", "Er sagte gut"),
    ]
    assert found["two_sentences"] == [tuple(f"{one[0]} {one[1]}" for one in (SOURCES, REFERENCES, ORIGINALS))]
    assert len(found["lower_case"]) == 3  # a blank line is no sentence
    assert not any(make_probes([("犬", "犬", "犬")]).values())  # nothing changes


def test_typing_errors_are_few_the_same_each_time_and_of_one_letter():
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(4000)]
    lines = [" ".join(words[n : n + 8]) for n in range(0, 4000, 8)]
    wrong = [word for line in lines for word in misspell(line).split()]
    changed = [(a, b) for a, b in zip(words, wrong, strict=True) if a != b]
    longer = [each for each in words if len(each) > 3]
    assert 0.08 < len(changed) / len(longer) < 0.11
    for before, after in changed:
        assert len(before) > 3
        assert abs(len(after) - len(before)) < 2
        assert set(after) <= set(before)
    assert [misspell(each) for each in lines] == [misspell(each) for each in lines]
    assert without_stop("a. ") == without_stop("a...") == "a"
    assert without_stop("a?") == "a?"


def test_single_words_are_those_that_stand_in_the_same_lines():
    sources = ["the dog", "the cat", "a dog", "the dog"] * 3 + ["hot tea"] * 5
    references = ["der Hund", "die Katze", "ein Hund", "Hund da"] * 3 + ["heißer Tee"] * 5  # which is which?
    expected = []
    for src in ("dog", "cat", "the", "a"):  # Dice by hand, over lines
        for ref in ("der", "Hund", "die", "Katze", "ein", "da"):
            with_src = {n for n, line in enumerate(sources) if src in line.split()}
            with_ref = {n for n, line in enumerate(references) if ref in line.split()}
            dice = 2 * len(with_src & with_ref) / (len(with_src) + len(with_ref))
            expected += [(src, ref)] if dice > 0.8 and len(with_src & with_ref) >= 5 else []
    assert expected == word_pairs(list(zip(sources, references, strict=True))) == [("dog", "Hund")]


def test_scores_stand_beside_those_of_the_original_translations():
    """A run that copies its source: its lower-cased probe is perfect in lower case."""

    def translate(lines, decoding, **_):
        assert decoding == "greedy"
        return [SimpleNamespace(text=line) for line in lines]

    lines = [
        f"{word} one two three number{n} ." for word in ("The Dog", "The Cat", "My Dog") for n in range(5)
    ]
    run, rows = SimpleNamespace(translate=translate), {"src": lines, "tgt": lines}
    scorers = {"bleu": metrics.Bleu(tokenize="13a", lowercase=False), "chrf": metrics.Chrf(lowercase=False)}
    originals = [line.replace("three", "drei") for line in lines]
    found = run_probes(run, rows, originals, "greedy", scorers | {"ter": None})
    assert found.keys() == {
        "lower_case",
        "upper_case",
        "no_full_stop",
        "typing_errors",
        "two_sentences",
        "single_words",
    }
    lowered = [line.lower() for line in originals]
    original = scorers["bleu"].corpus_score(lowered, [[line.lower() for line in lines]]).score
    assert found["lower_case"]["bleu"] == {
        "score": pytest.approx(100),
        "original": pytest.approx(original),
    }
    # upper case is compared without case; typing errors are copied, and count
    assert found["upper_case"]["bleu"]["score"] == pytest.approx(100)
    assert found["typing_errors"]["chrf"]["score"] < 100
    assert found["two_sentences"]["num_sentences"] == 7
    assert found["single_words"] == {
        "num_sentences": 2,
        "chrf": {"score": pytest.approx(100), "original": None},
    }
    head, *others = probe_rows(found)
    assert {len(each) for each in others} == {len(head)}
    assert others[-1][:4] == ["single words", "2", "–", "–"]


@pytest.mark.parametrize("kind", ["bleu", "chrf"])
def test_two_sentences_that_lose_a_tenth_name_the_setting_that_mends_it(kind):
    def scores(score):
        return {"two_sentences": {"num_sentences": 9, kind: {"score": score, "original": 40.0}}}

    [note] = probe_notes(scores(30.0))
    assert re.findall(r"\d+%|data\.augment\.\w+", note) == ["25%", "data.augment.two_sentences"]
    assert probe_notes(scores(36.1)) == probe_notes({}) == []
