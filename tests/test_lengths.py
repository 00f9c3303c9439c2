"""The length penalty that is chosen on the validation set."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from omegaconf import OmegaConf

from nmt.decoding import DecodingSettings
from nmt.run.run import Run
from nmt.training import lengths
from nmt.training.lengths import ALPHAS, choose_length_alpha, nearest_to_one
from tests.commands import run_composed
from tests.small import SMALL, SOURCES, TARGETS, TINY, make_run

ROWS = Dataset.from_dict({"src": SOURCES * 5, "tgt": TARGETS * 5})
BEAM = DecodingSettings(beam_size=4, max_length_ratio=3.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run whose translations end early or late, as the exponent has it."""
    run = Run.load(make_run(tmp_path_factory.mktemp("run"), "attention=bahdanau", *SMALL))
    with torch.no_grad():
        run.translator.output.bias[run.translator.eos_id] = 0.3
    return run


@pytest.fixture
def judge(monkeypatch) -> SimpleNamespace:
    """In place of the bootstrap: scores of about as many characters as `wanted`, which differ by `spread`."""
    found = SimpleNamespace(wanted=0, spread=0.0, names=[], systems=[])

    def judged(chosen, systems, references, **how):
        [name] = chosen
        assert references == [TARGETS * 5]
        found.names.append(name)
        found.systems = systems
        sign = 1 if chosen[name].higher_is_better else -1
        misses = [-sign * abs(sum(map(len, texts)) - found.wanted) for texts in systems]
        rng = np.random.default_rng(1)
        drawn = rng.normal(0, found.spread, (len(systems), 1000))
        return [
            {name: {"score": miss, "resampled": miss + each}}
            for miss, each in zip(misses, drawn, strict=True)
        ]

    monkeypatch.setattr(lengths, "paired_tests", judged)
    return found


def scorer(*, higher_is_better: bool = True) -> SimpleNamespace:
    return SimpleNamespace(higher_is_better=higher_is_better)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_one_search_serves_every_exponent(run, higher_is_better, judge):
    searches = {
        alpha: [each.text for each in run.translate(ROWS["src"][:], replace(BEAM, length_alpha=alpha))]
        for alpha in ALPHAS
    }
    sizes = {alpha: sum(map(len, texts)) for alpha, texts in searches.items()}
    assert sizes[0.0] < sizes[2.0], "the exponent matters for this model"
    for judge.wanted in (sizes[0.0], sizes[2.0]):
        scorers = {"bleu": scorer(higher_is_better=higher_is_better)}
        chosen = choose_length_alpha(run, ROWS, replace(BEAM, length_alpha=0.4), scorers)
        assert judge.systems == [*searches.values()]
        equal = [alpha for alpha in ALPHAS if sizes[alpha] == judge.wanted]
        assert chosen == min(equal, key=lambda alpha: abs(alpha - 1))
    judge.spread = 10.0**6
    assert choose_length_alpha(run, ROWS, BEAM, {"bleu": scorer()}) == 1, (
        "no exponent is beyond chance better"
    )


@pytest.mark.parametrize(
    ("scores", "spread", "chosen"),
    [
        ({0.8: 20.1, 1.0: 19.0, 1.2: 20.2, 2.0: 20.3}, 0.3, 1.2),
        ({0.8: 20.1, 1.0: 20.1, 1.2: 20.2, 2.0: 20.3}, 0.3, 1.0),
        ({0.8: 20.1, 1.0: 20.1, 1.2: 20.2, 2.0: 20.3}, 0.05, 2.0),
        ({0.8: 20.3, 1.0: 20.3, 2.0: 20.3}, 0.0, 1.0),
    ],
)
def test_the_exponent_nearest_to_one_of_those_as_good_as_the_best(scores, spread, chosen):
    noise = (
        np.random.default_rng(1).normal(0, spread, (len(scores), 5000)) / 2**0.5
    )  # of each, so of differences
    resampled = {alpha: score + each for (alpha, score), each in zip(scores.items(), noise, strict=True)}
    assert nearest_to_one(scores, resampled, max(scores, key=lambda alpha: scores[alpha])) == chosen


def test_of_two_as_near_to_one_the_better_is_taken():
    noise = np.array([-0.2, 0.2])
    for better, other in ((ALPHAS[3], ALPHAS[7]), (ALPHAS[7], ALPHAS[3])):
        scores = {better: 30.0, other: 29.9, 1.0: 20.0}
        assert nearest_to_one(scores, {better: 0 * noise, other: noise, 1.0: 0 * noise}, better) == better


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"coverage_beta": 0.1}, {}])
def test_nothing_is_chosen_if_the_exponent_ranks_nothing_or_not_alone(run, settings):
    given = replace(BEAM, length_alpha=0.7, **settings)
    scorers = {"bleu": scorer()} if settings else {}
    assert choose_length_alpha(run, ROWS, given, scorers) == 0.7


def test_the_score_of_the_best_checkpoint_chooses(run, monkeypatch, judge):
    scorers, judge.wanted = {name: scorer() for name in ("bleu", "chrf")}, 10**9
    config = OmegaConf.create({"callbacks": {"checkpoint": {"monitor": "val/chrf"}}})
    monkeypatch.setattr(run, "config", config)
    assert choose_length_alpha(run, ROWS, BEAM, scorers) > 1  # the longest
    assert judge.names == ["chrf"]


def test_the_choice_is_kept_in_the_run(tmp_path, caplog):
    caplog.set_level("INFO")
    given = [each for each in TINY if each != "decoding=greedy"]
    run_composed("train", *given, "decoding=tuned", "trainer.max_epochs=1", f"run_dir={tmp_path / 'run'}")
    kept = OmegaConf.load(tmp_path / "run" / "config.yaml")
    chosen = kept.decoding.length_alpha
    assert chosen in ALPHAS
    assert kept.choices.decoding == "tuned"
    assert f"decoding.length_alpha={chosen}: BLEU of validation" in caplog.text
    assert Run.load(tmp_path / "run").decoding.length_alpha == chosen
    again = ["decoding=tuned", "num_bootstrap=0", f"run={tmp_path / 'run'}", f"output={tmp_path / 'again'}"]
    run_composed("evaluate", *again)
    scored = json.loads((tmp_path / "again" / "metrics.json").read_text())
    assert scored["decoding"]["length_alpha"] == chosen
    # A run that is killed while it is scored chooses when it is resumed
    (tmp_path / "run" / "metrics.json").unlink()
    kept.decoding.length_alpha, kept.choices.decoding = None, "beam"
    OmegaConf.save(kept, tmp_path / "run" / "config.yaml")
    run_composed("train", f"resume={tmp_path / 'run'}")
    kept = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert (kept.decoding.length_alpha, kept.choices.decoding) == (chosen, "tuned")
