"""Learning rates over time, against their formulas in plain Python."""

import itertools
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

from nmt.config.build import build
from nmt.data.batching import collate
from nmt.errors import UserError
from nmt.training import schedules
from nmt.training.callbacks import EndScheduleWithTime
from nmt.training.callbacks.randomness import random_state
from nmt.training.checks import check_warmup, num_steps
from nmt.training.states import check_optimizers, checkpoint_errors
from tests.test_module import examples, make_module


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
def test_a_warm_up_beyond_the_run_is_warned_of(name, caplog):
    factory = partial(getattr(schedules, name), warmup_steps=200)
    schedules.warn_of_warmup(factory, 201)
    assert not caplog.text
    schedules.warn_of_warmup(factory, 200)
    assert "scheduler.warmup_steps=200 of 200 steps" in caplog.text


def limited(**limits):
    limits = {
        "max_epochs": 6,
        "max_steps": -1,
        "accumulate_grad_batches": 1,
        "limit_train_batches": 1.0,
    } | limits
    return OmegaConf.create({"trainer": limits, "scheduler": {"warmup_steps": 60}})


def test_a_warm_up_that_a_person_gives_beyond_the_run_is_refused():
    check_warmup(limited(), lambda: 1, ["trainer.max_steps=1"])
    check_warmup(limited(), lambda: 11, ["scheduler.warmup_steps=60"])
    with pytest.raises(UserError, match=r"scheduler.warmup_steps=60 of 60 steps: .* give fewer"):
        check_warmup(limited(), lambda: 10, ["scheduler.warmup_steps=60"])


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"accumulate_grad_batches": 3},
        {"max_steps": 5},
        {"max_steps": 500},
        {"limit_train_batches": 0.35},
        {"limit_train_batches": 4, "accumulate_grad_batches": 3},
        {"limit_train_batches": 40},
        {"limit_train_batches": None},
        {"max_epochs": -1, "max_steps": 70},
        {"max_epochs": -1},
    ],
    ids=str,
)
def test_the_number_of_steps_is_that_of_lightning(limits):
    seen = []

    class Asked(L.LightningModule):
        def configure_optimizers(self):
            seen.append(self.trainer.estimated_stepping_batches)
            raise KeyError

        def training_step(self, *_):
            pass

    cfg = limited(**limits).trainer
    trainer = L.Trainer(**cfg, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(KeyError):
        trainer.fit(Asked(), DataLoader(torch.zeros(10)))
    assert [num_steps(cfg, 10)] == seen


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


def test_the_state_of_another_plateau_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = schedules.plateau(optimizer, factor=0.5, patience=1)["scheduler"]
    trainer: Any = SimpleNamespace(lr_scheduler_configs=[SimpleNamespace(scheduler=scheduler)], optimizers=[])
    states = [{"lr_schedulers": [scheduler.state_dict() | {"mode": each}]} for each in ("max", "x")]
    check_optimizers(states[0] | {"optimizer_states": []}, trainer)
    with pytest.raises(UserError, match="mode x is unknown"), checkpoint_errors("the checkpoint"):
        check_optimizers(states[1] | {"optimizer_states": []}, trainer)


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
        ("cosine", {"warmup_steps": 0, "total_steps": 0}, "^scheduler.total_steps=0: .* greater than 0"),
        (
            "constant",
            {"warmup_steps": 0, "total_steps": 9},
            "^scheduler.total_steps: constant has no such setting",
        ),
        ("plateau", {"factor": 1.0, "patience": 1}, r"^scheduler.factor=1\.0: .* less than 1"),
        ("plateau", {"factor": 0.5, "patience": 1, "mode": "up"}, r"^scheduler\.mode=up: .* 'min' or 'max'"),
    ],
)
def test_what_makes_no_schedule_is_refused(name, settings, message):
    target = {"_target_": f"nmt.training.schedules.{name}", "_partial_": True}
    with pytest.raises(UserError, match=message):
        build(OmegaConf.create({"scheduler": target | settings}).scheduler, "scheduler")


def test_a_schedule_is_told_of_the_runs_steps_where_it_takes_them_and_has_none():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    for given, told in ((None, 7), (5, 5)):
        factory = partial(lambda optimizer, *, total_steps: {"steps": total_steps}, total_steps=given)
        assert schedules.schedule(factory, optimizer, 7) == {"steps": told}
    assert schedules.schedule(lambda optimizer: {}, optimizer, 7) == {}


class Clock(Callback):
    """A clock that only training moves: a second per batch, and 5 seconds per validation. It notes each step's rate.

    The first `num_slow` batches take 10 seconds each.
    """

    def __init__(self, num_slow=0):
        self.now, self.rates, self.num_slow = 0.0, [], num_slow

    def monotonic(self):
        return self.now

    def on_train_batch_start(self, trainer, pl_module, batch, number):
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.now += 10.0 if len(self.rates) <= self.num_slow else 1.0

    def on_validation_start(self, trainer, pl_module):
        self.now += 5.0

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        checkpoint["random"] = [random_state(pl_module.device)]  # without which no run is resumed


COSINE = partial(schedules.cosine, total_steps=None, warmup_steps=2)


class Rows(L.LightningDataModule):
    """The same batches for training and validation, with the state of the text that resuming checks."""

    def __init__(self, rows: DataLoader) -> None:
        super().__init__()
        self.train_dataloader = self.val_dataloader = lambda: rows

    def state_dict(self) -> dict[str, str]:
        return {"text": "", "validation": ""}


def by_the_clock(tmp_path, *, resume=None, factory=COSINE, num_slow=0, **settings):
    """The rates of a run of 12 batches per epoch, each followed by a validation; its last checkpoint is in tmp_path."""
    clock, module = Clock(num_slow), make_module()
    module.scheduler_factory = factory
    module.to(torch.float32)
    rows = DataLoader(examples() * 3, collate_fn=partial(collate, pad_id=0, bos_id=2))
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock, EndScheduleWithTime()],
        **{"max_epochs": -1, "max_time": "00:00:01:40"} | settings,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning.pytorch.callbacks.timer.time", clock)
        trainer.fit(module, datamodule=Rows(rows), ckpt_path=resume, weights_only=True)
        trainer.save_checkpoint(tmp_path / "last.ckpt")
    return clock.rates


def cosine_rates(total_steps, num_steps):
    """Warm-up of two steps to 0.5, then a cosine to 0."""
    progress = [min(1.0, max(0, step - 2) / (total_steps - 2)) for step in range(num_steps)]
    warmup = [min(1.0, (step + 1) / 2) for step in range(num_steps)]
    return [0.25 * w * (1 + math.cos(math.pi * p)) for w, p in zip(warmup, progress, strict=True)]


def test_a_schedule_ends_with_the_time(tmp_path, caplog):
    """12 batches and a validation take 17 s: 100 s are 71 batches, and 73 when the last one is done."""
    with caplog.at_level("INFO"):
        rates = by_the_clock(tmp_path)
    assert len(rates) == 73
    assert rates[:12] == pytest.approx(cosine_rates(10**9, 12))  # before the first validation
    assert rates[12:] == pytest.approx(cosine_rates(71, 73)[12:])
    assert "1.42 s per step: trainer.max_time is spent after about 71 steps" in caplog.text


def test_slow_first_steps_do_not_shorten_a_schedule(tmp_path):
    """6 of the first 12 batches take 10 s, as where a GPU records: validations are at 71, 88 and 105 s of 400."""
    rates = by_the_clock(tmp_path, num_slow=6, max_time="00:00:06:40")
    assert len(rates) == pytest.approx(244, abs=3)
    assert rates[36:] == pytest.approx(cosine_rates(36 + round(295 / (17 / 12)), len(rates))[36:])


def test_without_a_validation_the_time_is_measured_after_a_quarter(tmp_path):
    rates = by_the_clock(tmp_path, limit_val_batches=0)
    assert len(rates) == 100
    assert rates[26:] == pytest.approx(cosine_rates(100, 100)[26:])


def test_a_schedule_that_ends_before_the_time_is_left_as_it_is(tmp_path):
    assert by_the_clock(tmp_path, max_epochs=2) == pytest.approx(cosine_rates(24, 24))
    given = partial(schedules.cosine, total_steps=30, warmup_steps=2)
    assert by_the_clock(tmp_path, max_epochs=4, factory=given) == pytest.approx(cosine_rates(30, 48))
    constant = partial(schedules.constant, warmup_steps=0)
    assert by_the_clock(tmp_path, factory=constant) == [0.5] * 73


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
def test_a_resumed_run_has_the_rates_that_were_measured(tmp_path):
    """Though this process would measure other times: its epoch begins in the middle."""
    whole = by_the_clock(tmp_path)
    first = by_the_clock(tmp_path, max_steps=24)
    rest = by_the_clock(tmp_path, resume=tmp_path / "last.ckpt")
    assert first == pytest.approx(cosine_rates(24, 24))  # an end by steps was nearer
    assert rest[:40] == pytest.approx(whole[24:64])
    first = by_the_clock(tmp_path, max_steps=24)
    longer = by_the_clock(tmp_path, resume=tmp_path / "last.ckpt", max_time="00:00:03:20")
    assert longer[:40] == pytest.approx(cosine_rates(141, 64)[24:])  # 70.59 steps and 100 s / 1.417 s


def test_a_cosine_needs_an_end():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    with pytest.raises(UserError, match="scheduler=constant"):
        schedules.cosine(optimizer, warmup_steps=0, total_steps=math.inf)
