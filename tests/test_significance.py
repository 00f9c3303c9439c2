"""Paired tests equal sacreBLEU's own command line and their definitions, and reject as often as they say."""

import math
import random
import re
import subprocess
import sys

import numpy as np
import pytest

from nmt import metrics
from nmt.comparison.significance import paired_tests


@pytest.fixture(scope="module")
def corpus():
    rng = random.Random(5)
    words = "the a small old cat dog sees reads , book . don't U.S. 3.5 Straße nhà".split()  # noqa: SIM905
    references = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(120)]
    hypotheses = [" ".join(w for w in line.split() if rng.random() < 0.8) for line in references]
    return hypotheses, references


@pytest.fixture(scope="module")
def systems(corpus):
    """Beside the corpus's own hypotheses, one a little better and one a little worse, in many sentences."""
    hypotheses, references = corpus
    rng = random.Random(6)
    better, worse = (
        [" ".join(w for w in line.split() if rng.random() < kept) for line in references]
        for kept in (0.84, 0.78)
    )
    return [hypotheses, better, worse]


def paired_by_sacrebleus_command_line(option, num_samples, files):
    """{"score": …, "p": …, "ci": …} as [systems, metrics] of strings, read off its table: its JSON breaks on chrF."""
    command = [sys.executable, "-m", "sacrebleu", str(files[0]), "-i", *map(str, files[1:])]
    command += ["-m", "bleu", "chrf", "ter", option, f"{option}-n", str(num_samples), "-f", "text", "-w", "6"]
    table = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    cells = [line.split("│")[2:5] for line in table.splitlines() if line.startswith("│")][1:]
    patterns = {"score": r"^\s*([\d.]+)", "ci": r"± ([\d.]+)", "p": r"p = ([\d.]+)"}
    found = {
        key: [[re.findall(pattern, cell) for cell in row] for row in cells]
        for key, pattern in patterns.items()
    }
    return {
        key: [[float(cell[0]) for cell in row] for row in rows if all(row)] for key, rows in found.items()
    }


def test_paired_tests_equal_sacrebleus_command_line(corpus, systems, tmp_path):
    files = [tmp_path / name for name in ("ref", "first", "better", "worse")]
    for file, lines in zip(files, (corpus[1], *systems), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    chosen = {
        "bleu": metrics.Bleu(tokenize="13a", lowercase=False),
        "chrf": metrics.Chrf(lowercase=False),
        "ter": metrics.Ter(),
    }
    ours = paired_tests(chosen, systems, corpus[1], num_bootstrap=60, num_trials=80)

    def own(key, first=0):
        return [[result[name][key] for name in chosen] for result in ours[first:]]

    bootstrap = paired_by_sacrebleus_command_line("--paired-bs", 60, files)
    randomization = paired_by_sacrebleus_command_line("--paired-ar", 80, files)
    np.testing.assert_allclose(own("score"), bootstrap["score"], atol=1e-6)
    np.testing.assert_allclose(own("ci"), bootstrap["ci"], atol=2e-5)  # theirs are means of float32
    ours, theirs = np.array(own("p_randomization", 1)), np.array(randomization["p"])
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], atol=5e-5)
    # They leave out trials with exactly as many edits as observed
    assert (ours[:, 2] > theirs[:, 2] - 5e-5).all()
    assert len({*theirs.flat}) > 3  # or the comparison would say little


def test_a_paired_bootstrap_of_a_mean_over_sentences_is_its_definition(corpus, systems):
    _, references = corpus
    result = paired_tests(
        {"exact_match": metrics.ExactMatch()}, systems, references, num_bootstrap=200, num_trials=10
    )
    right = np.array([[h == r for h, r in zip(each, references, strict=True)] for each in systems])
    rows = np.random.default_rng(12345).choice(len(references), size=(200, len(references)))
    for number in (1, 2):
        difference = abs(100 * right[number].mean() - 100 * right[0].mean())
        resampled = 100 * right[number][rows].mean(axis=1) - 100 * right[0][rows].mean(axis=1)
        exceeding = (np.abs(resampled - resampled.mean()) >= difference - 1e-9).sum()
        assert result[number]["exact_match"]["p_bootstrap"] == pytest.approx((exceeding + 1) / 201)


@pytest.mark.slow
def test_each_test_rejects_as_often_as_it_says_where_there_is_no_difference():
    """Of pairs of systems that are right as often as each other, a twentieth have p < 0.05, a fifth p < 0.2."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        systems = [np.where(rng.random(150) < 0.6, "yes", "no").tolist() for _ in range(2)]
        _, result = paired_tests(
            {"exact_match": metrics.ExactMatch()},
            systems,
            ["yes"] * 150,
            num_bootstrap=100,
            num_trials=100,
        )
        found.append([result["exact_match"][key] for key in ("p_bootstrap", "p_randomization")])
    for level, margin in ((0.05, 0.03), (0.2, 0.08)):  # of chance, and of differences that are equal
        np.testing.assert_allclose((np.array(found) < level).mean(axis=0), level, atol=margin)
    assert np.max(found, axis=0).min() == 1.0


def test_both_systems_are_resampled_alike_whatever_the_seed(monkeypatch):
    """Else what both find hard would be taken for a difference."""
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    references = ["yes"] * 200
    first, second = (["yes"] * right + ["no"] * (200 - right) for right in (100, 112))
    _, result = paired_tests(
        {"exact_match": metrics.ExactMatch()}, [first, second], references, num_bootstrap=400, num_trials=400
    )
    assert max(result["exact_match"][key] for key in ("p_bootstrap", "p_randomization")) < 0.03


@pytest.mark.parametrize(("num_better", "num_worse"), [(1, 0), (2, 0), (3, 1), (5, 3)])
def test_the_randomisation_of_a_few_differing_sentences_is_the_exact_test(num_better, num_worse):
    """Each sentence of N that differ is won by the one or the other: the two-sided sign test."""
    references = [f"sentence {number}" for number in range(50)]
    first, second = list(references), list(references)
    for number in range(num_better):
        first[number] = "wrong"
    for number in range(num_better, num_better + num_worse):
        second[number] = "wrong"
    _, result = paired_tests(
        {"exact_match": metrics.ExactMatch()}, [first, second], references, num_bootstrap=2, num_trials=4000
    )
    num_differing = num_better + num_worse
    exact = (
        sum(
            math.comb(num_differing, won)
            for won in range(num_differing + 1)
            if abs(2 * won - num_differing) >= num_better - num_worse
        )
        / 2**num_differing
    )
    assert result["exact_match"]["p_randomization"] == pytest.approx(exact, abs=0.03)


def test_systems_that_score_the_same_differ_by_chance(corpus):
    hypotheses, references = corpus
    chosen = {"bleu": metrics.Bleu(tokenize="13a", lowercase=False)}
    first, second = paired_tests(
        chosen, [hypotheses, list(hypotheses)], references, num_bootstrap=10, num_trials=10
    )
    _, third = paired_tests(chosen, [["x"] * 2, ["y"] * 2], ["a b"] * 2, num_bootstrap=9, num_trials=9)
    assert third["bleu"]["p_bootstrap"] == third["bleu"]["p_randomization"] == 1.0  # 0 BLEU each
    assert first["bleu"]["p_bootstrap"] is None
    assert second["bleu"]["p_bootstrap"] == second["bleu"]["p_randomization"] == 1.0
