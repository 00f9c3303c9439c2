"""Scores equal sacreBLEU's own command line; the interval and the signature are its own."""

import json
import random
import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU

from nmt import metrics
from nmt.errors import UserError


@pytest.fixture(scope="module")
def corpus():
    rng = random.Random(5)
    words = "the a small old cat dog sees reads , book . don't U.S. 3.5 Straße nhà".split()  # noqa: SIM905
    references = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(120)]
    hypotheses = [" ".join(w for w in line.split() if rng.random() < 0.8) for line in references]
    return hypotheses, references


def test_scores_signatures_and_intervals_equal_sacrebleus_command_line(corpus, tmp_path):
    for name, lines in zip(("hyp", "ref"), corpus, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp")]
    command += ["-m", "bleu", "chrf", "ter", "--confidence", "-f", "json", "-w", "4"]
    theirs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    ours = metrics.score(*corpus)
    for (name, own), other in zip(ours.items(), theirs, strict=True):
        assert own["score"] == pytest.approx(other["score"], abs=5e-5), name
        assert own["ci"] == pytest.approx(other["confidence_var"], abs=5e-5), name
        assert own["signature"] == f"{other['signature']}", name


def test_without_resamples_there_is_no_interval(corpus):
    [result] = metrics.score(*corpus, names=["bleu"], num_bootstrap=0).values()
    assert result["ci"] is None
    assert "bs:" not in result["signature"]


def test_the_references_themselves_are_perfect(corpus):
    _, references = corpus
    scores = metrics.score(references, references, num_bootstrap=0)
    assert scores["bleu"]["score"] == pytest.approx(100)
    assert scores["chrf"]["score"] == pytest.approx(100)
    assert scores["ter"]["score"] == 0


def test_unequal_counts_and_nothing_are_refused():
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        metrics.score(["a", "b"], ["a"])
    with pytest.raises(UserError, match="0 sentences"):
        metrics.score([], [])


def test_resamples_without_any_match_still_give_an_interval():
    hypotheses, references = ["x y", *["a b c d e"] * 2], ["f g", *["a b c d e"] * 2]
    for lines in (hypotheses, ["x"] * 3, [*["x"] * 9, "a b c d"]):
        scores = metrics.score(lines, [*references, *["a b c d e"] * 7][: len(lines)], num_bootstrap=200)
        assert all(0 <= result["ci"] <= 100 for result in scores.values())


def test_lowercase_and_tokenisation_equal_sacrebleus(corpus):
    hypotheses, references = corpus
    settings = {"lowercase": True, "tokenize": "intl"}
    [ours] = metrics.score(hypotheses, references, names=["bleu"], num_bootstrap=0, **settings).values()
    theirs = BLEU(**settings)
    assert ours["score"] == pytest.approx(theirs.corpus_score(hypotheses, [references]).score)
    assert ours["signature"] == str(theirs.get_signature())


def test_a_metric_or_tokenisation_that_is_none_is_refused():
    with pytest.raises(UserError, match="no metric 'bleux': choose from bleu, chrf, ter"):
        metrics.score(["a"], ["a"], names=["bleux"])
    with pytest.raises(UserError, match="no tokenisation '14a'"):
        metrics.score(["a"], ["a"], tokenize="14a")
