"""Observations on a training and on translations: each on a small case of its kind, and none on sound ones."""

import json
import random

import pytest

from nmt.errors import UserError
from nmt.run.observations import (
    familiar_share,
    kept_share,
    note_validation,
    observe_training,
    observe_translations,
    read_validations,
    repeated_share,
)

SCORE = {"monitor": "val/bleu", "mode": "max"}
WORDS = [
    f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "re") for b in ("ban", "dor", "fel", "gis", "hut", "jam")
]


def history(bleu, loss=None, train=None):
    """Validations every 100 steps."""
    loss, train = loss or [2.0] * len(bleu), train or [1.0] * len(bleu)
    rows = zip(bleu, loss, train, strict=True)
    return [
        {"step": 100 * n, "val/bleu": a, "val/loss": b, "train/loss": c}
        for n, (a, b, c) in enumerate(rows, 1)
    ]


def names(observations):
    return [each["name"] for each in observations]


def text(seed, lines=400, words=8):
    draw = random.Random(seed)
    return [" ".join(draw.sample(WORDS, words)) for _ in range(lines)]


def seen(sources, translations, references, **more):
    return {each["name"]: each for each in observe_translations(sources, translations, references, **more)}


def test_a_rise_in_the_second_half_is_told_with_half_of_it_as_the_gain():
    [found] = observe_training(history([10, 20, 27, 30]), **SCORE)
    assert (found["name"], found["value"]) == ("still_rising", 5)
    assert "BLEU" in found["text"]
    assert "by 10 in" in found["text"]
    assert "trainer.max_epochs" in found["text"]


@pytest.mark.parametrize(
    "bleu",
    [
        [31.9, 78.3, 85.7, 90.8, 92.0, 92.5],  # little in the second half
        [10, 20, 30, 29, 29, 29, 28, 29],  # none in the last quarter
        [20],  # nothing to compare with
        [],
    ],
)
def test_a_training_at_its_end_gives_no_observation(bleu):
    assert observe_training(history(bleu), **SCORE) == []


def test_a_training_that_has_only_begun_predicts_no_gain():
    loss = [6.9, 5.5, 5.1, 4.8]
    assert names(observe_training(history([0, 0.1, 0.4, 1.0], loss), **SCORE)) == ["only_begun"]
    for score in (SCORE, {"monitor": "val/loss", "mode": "min"}):
        [found] = observe_training(history([0, 0, 0, 0], loss), **score)
        assert (found["name"], found["value"]) == ("only_begun", pytest.approx(0.7))


def test_overfitting_is_told_since_the_least_loss_and_apart_from_divergence():
    bleu, loss = [30, 31, 31, 31], [2.0, 1.8, 1.9, 2.1]
    [found] = observe_training(history(bleu, loss, [2.0, 1.5, 1.2, 0.9]), **SCORE)
    assert (found["name"], found["value"]) == ("overfitting", 200)
    assert "1.800 rises to 2.100" in found["text"]
    assert "model.dropout" in found["text"]
    [found] = observe_training(history(bleu, loss, [2.0, 1.5, 1.7, 2.0]), **SCORE)
    assert found["name"] == "diverging"
    assert "optimizer.lr" in found["text"]
    assert observe_training(history(bleu, [2.0, 1.8, 1.85, 1.85], [2.0, 1.5, 1.2, 0.9]), **SCORE) == []


def test_a_run_that_overfits_is_not_told_to_train_longer():
    """BLEU may rise still, by little and by chance."""
    loss, train = [3.0, 2.0, 2.1, 2.2], [3.0, 2.0, 1.5, 1.0]
    assert names(observe_training(history([2, 7, 8, 9], loss, train), **SCORE)) == ["overfitting"]


def test_sound_translations_give_no_observation():
    src, ref = text(1), text(2)
    almost = [line.rsplit(" ", 1)[0] + " kaban" for line in ref]
    assert seen(src, ref, ref) == seen(src, almost, ref) == {}
    assert observe_translations([""], ["x"], ["y"]) == []  # nothing to compare


def test_each_fault_of_translations_is_told_alone():
    src, ref = text(1), text(2)
    short = [" ".join(line.split()[:6]) for line in ref]
    assert list(seen(src, short, ref)) == ["too_short"]
    assert seen(src, short, ref)["too_short"]["value"] == pytest.approx(0.75, abs=0.01)
    long = [f"{line} {other}" for line, other in zip(ref, text(3, words=2), strict=True)]
    assert list(seen(src, long, ref)) == ["too_long"]
    loops = [" ".join(line.split()[:3] * 3)[: len(line)] for line in ref]
    assert list(seen(src, loops, ref)) == ["repetitions"]
    assert seen(src, loops, loops) == {}  # as the references
    assert list(seen(src, ["", *ref[1:]], ref)) == ["empty"]
    assert list(seen(["", *src[1:]], ["", *ref[1:]], ref)) == []  # an empty line has an empty translation
    assert list(seen(src, [src[0].title(), *src[1:20], *ref[20:]], ref)) == ["copies"]
    assert list(seen(src, src, src)) == []  # names, perhaps: the references are copies too
    foreign = [line.replace("a", "æ").replace("u", "å").replace("i", "y").replace("o", "ø") for line in ref]
    assert list(seen(src, foreign, ref)) == ["other_language"]
    unknown = [f"{line[:-3]} ⁇" for line in ref[:10]] + ref[10:]
    assert seen(src, unknown, ref)["unknown_pieces"]["value"] == 10 / 400
    assert seen(src, unknown, unknown) == {}
    assert list(seen(src, ref, ref, num_unknown=40)) == ["unknown_pieces"]


def test_numbers_and_names_that_are_lost_are_told_if_nothing_worse_is():
    ref = text(2)
    src = [f"{line} Berlin 1,250" for line in text(1)]
    wanted = [f"{line} Berlin 1,250" for line in ref]
    lost = [f"{line} Bernau 1,520" for line in ref]
    assert list(seen(src, lost, wanted)) == ["numbers", "names"]
    assert seen(src, lost, wanted)["names"]["value"] == 0
    assert seen(src, [line.lower() for line in wanted], wanted) == {}  # a model of lower-cased text
    assert seen(src[:19], lost[:19], wanted[:19]) == {}  # too few to tell
    rare = [line.replace(" Berlin 1,250", "") for line in src[:361]] + src[361:]
    assert seen(rare, lost, wanted) == {}  # in 39 of 400 sentences


def test_shares_by_hand():
    assert repeated_share(["a b c a b c", "a b"]) == 1 / 4  # abc bca cab abc
    assert repeated_share(["", "a"]) == 0
    assert repeated_share(["我们我们我们"]) == 1 / 2
    assert familiar_share(["a b", "c"], ["A"] * 2000) == 1 / 3
    assert familiar_share(["a b", "c"], ["A"] * 1999) == 1
    row = ("In 7 or 8 Rome", "7 Rome 7", "9 8 7 Rome")
    assert kept_share([row] * 10, "numbers") == 1 / 2
    assert kept_share([row] * 20, "names") == 1


def test_validations_are_noted_and_repeated_steps_replace_the_later_ones(tmp_path):
    assert read_validations(tmp_path) == []
    for step in (10, 20, 30, 20):
        note_validation(tmp_path, {"step": step, "val/loss": step / 7, "train/loss": float("nan")})
    assert read_validations(tmp_path) == [
        {"step": step, "val/loss": step / 7, "train/loss": None} for step in (10, 20)
    ]
    for content in ("[", '[{"val/loss": 1}]', '[{"step": "x"}]', '{"step": 1}'):
        (tmp_path / "validations.json").write_text(content)
        with pytest.raises(UserError, match=r"validations\.json is broken"):
            read_validations(tmp_path)
    (tmp_path / "validations.json").write_text(json.dumps([{"step": 2}, {"step": 1}]))
    assert [each["step"] for each in read_validations(tmp_path)] == [1, 2]
