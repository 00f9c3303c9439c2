"""Paired tests equal sacreBLEU's own command line and their definitions, and reject as often as they say."""

import itertools
import math
import random
import re
import statistics
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import ttest_ind

from nmt import metrics
from nmt.comparison.significance import compare_systems, holm, paired_tests


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


def crossed(rng, num_seeds, num_sentences, *, seed, both, difference=0.0):
    """Scores [R] and resampled scores [R, B] of two systems, and their rows: means over sentences of

        sentence + sentence of the system + seed + sentence of the run

    `seed` and `both` are the standard deviations of a run's mean by its seed and by its sentences."""
    size = both * num_sentences**0.5
    sentences = rng.normal(size=num_sentences) + rng.normal(0, size / 2, (2, num_sentences))
    values = np.concatenate(
        [
            each + rng.normal(0, seed, (num_seeds, 1)) + rng.normal(0, size, (num_seeds, num_sentences))
            for each in sentences
        ]
    )
    values[num_seeds:] += difference
    resamples = rng.multinomial(num_sentences, np.full(num_sentences, 1 / num_sentences), size=200)
    systems = {"a": range(num_seeds), "b": range(num_seeds, 2 * num_seeds)}
    return values.mean(axis=1), values @ resamples.T / num_sentences, systems


@pytest.mark.parametrize(("seed", "both"), [(0.0, 0.1), (0.1, 0.1), (0.3, 0.1), (0.3, 0.001)])
def test_two_systems_of_three_seeds_without_a_difference_are_told_apart_in_a_twentieth_of_cases(seed, both):
    rng = np.random.default_rng(0)
    p_values = np.array(
        [compare_systems(*crossed(rng, 3, 100, seed=seed, both=both))[0]["p"] for _ in range(400)]
    )
    assert 0.02 <= (p_values < 0.05).mean() <= 0.08
    assert 0.1 <= (p_values < 0.2).mean() <= 0.26


def test_a_difference_beyond_seeds_and_sentences_is_found():
    rng = np.random.default_rng(0)
    found = [compare_systems(*crossed(rng, 3, 100, seed=0.1, both=0.1, difference=0.8))[0] for _ in range(50)]
    assert np.mean([each["p"] < 0.05 for each in found]) > 0.9
    covered = [abs(each["difference"] + 0.8) < each["ci"] for each in found]
    assert np.mean(covered) > 0.85


def test_the_test_of_systems_is_its_definition():
    """Term by term, in plain Python, with the distribution of Student's t by numerical integration."""
    rng = np.random.default_rng(1)
    scores, resampled, _ = crossed(rng, 4, 50, seed=0.1, both=0.2)
    ours, theirs = [0, 1, 2], [3, 4, 5, 6, 7]
    [found] = compare_systems(scores, resampled, {"a": ours, "b": theirs})

    def covariance(first, second):
        return sum(
            (x - resampled[first].mean()) * (y - resampled[second].mean())
            for x, y in zip(resampled[first], resampled[second], strict=True)
        ) / (resampled.shape[1] - 1)

    def mean(values):
        values = list(values)
        return sum(values) / len(values)

    of_seeds = [statistics.variance(scores[rows].tolist()) / len(rows) for rows in (ours, theirs)]
    within = [mean(covariance(i, j) for i in rows for j in rows if i != j) for rows in (ours, theirs)]
    between = mean(covariance(i, j) for i in ours for j in theirs)
    variance = sum(of_seeds) + max(sum(within) - 2 * between, 0)
    freedom = variance**2 / (of_seeds[0] ** 2 / 2 + of_seeds[1] ** 2 / 4)
    difference = mean(scores[ours]) - mean(scores[theirs])
    grid = np.linspace(0, abs(difference) / variance**0.5, 200_001)
    density = (
        (1 + grid**2 / freedom) ** (-(freedom + 1) / 2)
        * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
        / math.sqrt(freedom * math.pi)
    )
    assert found["difference"] == pytest.approx(difference)
    assert found["p"] == pytest.approx(1 - 2 * np.trapezoid(density, grid), abs=1e-6)
    assert found["of"] == "systems"


def test_where_sentences_do_not_matter_the_test_is_welchs():
    scores = np.array([30.1, 30.9, 31.3, 29.0, 29.8, 29.1, 30.2])
    resampled = np.repeat(scores[:, None], 10, axis=1)
    [found] = compare_systems(scores, resampled, {"a": [0, 1, 2], "b": [3, 4, 5, 6]})
    welch = ttest_ind(scores[:3], scores[3:], equal_var=False)
    assert found["p"] == pytest.approx(welch.pvalue)
    interval = welch.confidence_interval()
    assert found["ci"] == pytest.approx((interval.high - interval.low) / 2)


def test_systems_that_tie_over_seeds_are_not_told_apart_by_their_first_runs():
    """Two runs differ surely over sentences, one way for the first seed and the other way for the second."""
    references = ["yes"] * 300
    right = {"a": [150, 210, 180], "b": [210, 150, 180]}
    texts = [["yes"] * each + ["no"] * (300 - each) for each in right["a"] + right["b"]]
    results = paired_tests(
        {"exact_match": metrics.ExactMatch()}, texts, references, num_bootstrap=200, num_trials=200
    )
    assert results[3]["exact_match"]["p_randomization"] < 0.01
    scores = np.array([each["exact_match"]["score"] for each in results])
    resampled = np.stack([each["exact_match"]["resampled"] for each in results])
    [found] = compare_systems(scores, resampled, {"a": [0, 1, 2], "b": [3, 4, 5]})
    assert found["p"] == found["p_holm"] == 1.0
    assert found["difference"] == 0.0
    for rows in ({"a": [0], "b": [3]}, {"a": [0], "b": [3, 4]}):  # seeds of one are unknown: of these runs
        [alone] = compare_systems(scores, resampled, rows)
        assert alone["of"] == "runs"
    [alone] = compare_systems(scores, resampled, {"b": [3], "a": [0]})
    assert alone["p"] == results[3]["exact_match"]["p_bootstrap"]


def test_every_two_systems_or_each_and_the_baseline_are_compared_with_holms_correction():
    rng = np.random.default_rng(3)
    scores = rng.normal(30, 1, 4)
    resampled = scores[:, None] + rng.normal(0, 0.5, (4, 100))
    systems = {name: [row] for row, name in enumerate("abcd")}
    pairs = compare_systems(scores, resampled, systems)
    assert [(each["system"], each["other"]) for each in pairs] == list(itertools.combinations("abcd", 2))
    assert [each["p_holm"] for each in pairs] == holm([each["p"] for each in pairs])
    some = compare_systems(scores, resampled, systems, "c")
    assert [(each["system"], each["other"]) for each in some] == [("a", "c"), ("b", "c"), ("d", "c")]
    assert compare_systems(scores, resampled, {"a": [0]}) == []


def test_holms_correction_of_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def test_runs_that_are_all_the_same_do_not_differ():
    [found] = compare_systems(np.full(4, 9.0), np.full((4, 20), 9.0), {"a": [0, 1], "b": [2, 3]})
    assert (found["difference"], found["ci"], found["p"]) == (0.0, 0.0, 1.0)
