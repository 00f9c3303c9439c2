"""Learning rates over time, against their formulas in plain Python."""

import itertools
import math
from functools import partial

import pytest
import torch
from omegaconf import OmegaConf

from nmt.errors import UserError
from nmt.run.building import build
from nmt.training import schedules


def rates(make, num_steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = make(optimizer)["scheduler"]
    seen = []
    for _ in range(num_steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_inverse_sqrt_is_equation_3_of_vaswani_rescaled_to_peak_at_lr():
    seen = rates(lambda o: schedules.inverse_sqrt(o, warmup_steps=4), 20)
    expected = [2.0 * min(step / 4, math.sqrt(4 / step)) for step in range(1, 21)]
    assert seen == pytest.approx(expected, abs=1e-12)
    assert max(seen) == seen[3] == 2.0


def test_cosine_warms_up_then_falls_to_nothing_after_the_last_step():
    seen = rates(lambda o: schedules.cosine(o, total_steps=12, warmup_steps=2), 14)
    assert seen[:2] == [1.0, 2.0]
    assert seen[7] == pytest.approx(1.0)  # half way
    assert seen[11] == pytest.approx(1 + math.cos(math.pi * 9 / 10))  # of two at most, in the last step
    assert seen[12:] == pytest.approx([0.0, 0.0])
    assert all(a >= b for a, b in itertools.pairwise(seen[1:]))


@pytest.mark.parametrize("name", ["cosine", "constant", "inverse_sqrt"])
def test_a_warm_up_beyond_the_run_is_refused_if_it_is_given_and_else_warned_of(name, caplog):
    factory = partial(getattr(schedules, name), warmup_steps=200)
    schedules.check_warmup(factory, 201, overrides=["scheduler.warmup_steps=200"])
    assert not caplog.text
    schedules.check_warmup(factory, 200, overrides=["scheduler=constant"])
    assert "scheduler.warmup_steps=200 of 200 steps" in caplog.text
    with pytest.raises(UserError, match=r"scheduler.warmup_steps=200 of 9 steps: give fewer"):
        schedules.check_warmup(factory, 9, overrides=["scheduler.warmup_steps=200"])


def test_constant_only_warms_up():
    assert rates(lambda o: schedules.constant(o, warmup_steps=4), 6) == [0.5, 1, 1.5, 2, 2, 2]
    assert rates(lambda o: schedules.constant(o, warmup_steps=0), 2) == [2, 2]


def test_plateau_halves_the_rate_when_bleu_stands_still():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    described = schedules.plateau(optimizer, factor=0.5, patience=1)
    for bleu in (10.0, 20.0, 15.0, 15.0):
        optimizer.step()
        described["scheduler"].step(bleu)
    assert optimizer.param_groups[0]["lr"] == 1.0
    assert described["monitor"] == "val/bleu"


def test_a_plateau_of_a_loss_is_one_that_does_not_fall():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    described = schedules.plateau(optimizer, factor=0.5, patience=0, monitor="val/loss", mode="min")
    for loss, rate in ((3.0, 2.0), (2.0, 2.0), (2.5, 1.0)):
        optimizer.step()
        described["scheduler"].step(loss)
        assert optimizer.param_groups[0]["lr"] == rate


@pytest.mark.parametrize(
    ("mode", "scores"), [("max", (36.5, 36.501, 36.502)), ("min", (1.4, 1.3999, 1.3998))]
)
def test_a_plateau_does_not_overlook_what_is_a_little_better(mode, scores):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    described = schedules.plateau(optimizer, factor=0.5, patience=0, mode=mode)
    for score, rate in ((scores[0], 2.0), (scores[1], 2.0), (scores[2], 2.0), (scores[2], 1.0)):
        optimizer.step()
        described["scheduler"].step(score)
        assert optimizer.param_groups[0]["lr"] == rate


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("inverse_sqrt", {"warmup_steps": 0}, "^scheduler.warmup_steps=0: .* greater than or equal to 1"),
        ("constant", {"warmup_steps": -1}, "^scheduler.warmup_steps=-1: .* greater than or equal to 0"),
        ("cosine", {"warmup_steps": 2.5}, "^scheduler.warmup_steps=2.5: .* valid integer"),
        ("cosine", {"warmup_steps": 0, "total_steps": 0}, "^scheduler.total_steps=0: .* greater than 0"),
        (
            "constant",
            {"warmup_steps": 0, "total_steps": 9},
            "^scheduler.total_steps: constant has no such setting",
        ),
        ("plateau", {"factor": 1.0, "patience": 1}, r"^scheduler.factor=1\.0: .* less than 1"),
        ("plateau", {"factor": 0.5, "patience": -1}, "^scheduler.patience=-1: .* equal to 0"),
        ("plateau", {"factor": 0.5, "patience": 1, "mode": "up"}, r"^scheduler\.mode=up: .* 'min' or 'max'"),
    ],
)
def test_what_makes_no_schedule_is_refused(name, settings, message):
    target = {"_target_": f"nmt.training.schedules.{name}", "_partial_": True}
    with pytest.raises(UserError, match=message):
        build(OmegaConf.create({"scheduler": target | settings}).scheduler)


def test_a_schedule_is_told_of_the_runs_steps_where_it_takes_them_and_has_none():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    for given, told in ((None, 7), (5, 5)):
        factory = partial(lambda optimizer, *, total_steps: {"steps": total_steps}, total_steps=given)
        assert schedules.schedule(factory, optimizer, 7) == {"steps": told}
    assert schedules.schedule(lambda optimizer: {}, optimizer, 7) == {}


def test_a_cosine_needs_an_end():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    with pytest.raises(UserError, match="scheduler=constant"):
        schedules.cosine(optimizer, warmup_steps=0, total_steps=math.inf)
