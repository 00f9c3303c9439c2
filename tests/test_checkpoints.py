"""A state that could not be read back from a checkpoint is found before the first batch."""

import csv
import io
import pickle
import warnings
import zipfile
from collections import OrderedDict
from fractions import Fraction
from types import SimpleNamespace

import hydra
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, Timer
from lightning.pytorch.loggers import CSVLogger
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch.utils.data import DataLoader

from nmt.checkpoint import FORMAT, check_names, check_plain, read_checkpoint, read_weights, write_checkpoint
from nmt.config.build import build
from nmt.errors import UserError
from nmt.training.callbacks import Checkpoints
from nmt.training.callbacks.summary import why_ended
from nmt.training.resume import load_checkpoint
from tests.test_module import make_module


class KeepsItsSettings(torch.optim.SGD):
    """A person's own optimizer, which keeps its settings as they come."""

    def __init__(self, parameters, lr, betas):
        super().__init__(parameters, lr=lr)
        self.param_groups[0]["betas"] = betas


class Counter(L.Callback):
    """A person's own callback."""

    def state_dict(self):
        return {"seen": Fraction(1, 2)}


def settings():
    target = f"{__name__}.{KeepsItsSettings.__name__}"
    return OmegaConf.create(
        {"_target_": target, "_partial_": True, "lr": 0.1, "betas": [0.9, {"beta": 0.98}]}
    )


def begin(tmp_path, optimizer, *callbacks) -> None:
    """Start a training; the test fails if it reaches a batch."""
    module = make_module()
    module.optimizer_factory = optimizer
    checkpoints = Checkpoints(
        directory=str(tmp_path), monitor="val/loss", mode="min", every_n_steps=None, every_n_minutes=None
    )
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=1,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[checkpoints, *callbacks],
    )
    module.training_step = lambda *_: pytest.fail("a batch was trained on")
    trainer.fit(module, train_dataloaders=DataLoader([0]))


def test_lists_and_dicts_come_to_a_constructor_as_plain_ones():
    group = build(settings(), "optimizer", trusted=[__name__])(make_module().parameters()).param_groups[0]
    assert group["betas"] == [0.9, {"beta": 0.98}]
    assert [type(group["betas"]), type(group["betas"][1])] == [list, dict]
    check_plain([group["betas"]])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_run_whose_checkpoints_could_not_be_read_ends_before_its_first_batch(tmp_path):
    with pytest.raises(UserError, match=r"^optimizer\.0\.0\.betas is a ListConfig, "):
        begin(tmp_path, hydra.utils.instantiate(settings()))
    with pytest.raises(UserError, match=r"^callbacks\.Counter\.seen is a Fraction, "):
        begin(tmp_path, build(settings(), "optimizer", trusted=[__name__]), Counter())


@pytest.mark.parametrize(
    "state",
    [
        {"a": [1, 2.5, None, True, "x", b"y", (torch.ones(2), torch.float16)]},
        OrderedDict(a=torch.device("cpu"), b={1, 2}),
    ],
)
def test_plain_states_pass(state):
    check_plain(state)


@pytest.mark.parametrize(
    "name", ["builtins\nbytearray", "torch\nTensor", "torch._utils\n_rebuild_sparse_tensor"]
)
def test_what_could_take_any_memory_is_not_named(name):
    """torch would call these with a size that the pickle gives."""
    with pytest.raises(pickle.UnpicklingError, match="it names "):
        check_names(f"c{name}\n".encode() + b"J\xff\xff\xff\x7f\x85R.")


def test_numbers_that_few_operations_know_are_no_weights(tmp_path):
    save_file({"x": torch.zeros(2).to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="x is no plain tensor of numbers"):
        read_weights(tmp_path / "model.safetensors")


@pytest.fixture
def whole() -> bytes:
    file = io.BytesIO()
    torch.save({"format": FORMAT, "state_dict": {"translator.x": torch.arange(4.0)}}, file)
    return file.getvalue()


def test_a_second_record_of_a_name_is_counted(whole, tmp_path):
    torn = tmp_path / "torn.ckpt"
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(torn, "w") as archive:
        archive.writestr("archive/data/0", bytes(10**6), zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(io.BytesIO(whole)) as records:
            for each in records.namelist():
                archive.writestr(each, records.read(each))
    with pytest.raises(ValueError, match="unpacks to more than it is"):
        read_checkpoint(torn)


def test_torch_reads_the_records_that_were_checked(whole, tmp_path):
    """Python finds the list of records from the end of a file, torch by an offset, which may lead to another list."""
    torn = tmp_path / "torn.ckpt"
    torn.write_bytes(b"another archive" + whole)
    assert read_checkpoint(torn)["state_dict"]["translator.x"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"a": [0, {"b": Fraction(1)}]}, "a.1.b is a Fraction"),
        ({"a": {"b": (1, lambda: None)}}, "a.b.1 is a function"),
        ({3: {"b": OmegaConf.create({"c": 1})}}, "3.b is a DictConfig"),
        ({"a": DataLoader([0])}, "a is a DataLoader"),
    ],
)
def test_what_is_not_plain_is_named(state, said):
    with pytest.raises(UserError) as found:
        check_plain(state)
    assert str(found.value).startswith(f"{said}, ")


@pytest.mark.parametrize(
    ("number", "words"),
    [({}, "no format number"), ({"format": FORMAT + 1}, f"format {FORMAT + 1}"), ({"format": "1"}, "no ")],
)
def test_another_format_is_refused(tmp_path, number, words):
    """In one line with the file and both numbers; the file is not taken for broken."""
    (tmp_path / "checkpoints").mkdir()
    file = tmp_path / "checkpoints" / "last.ckpt"
    torch.save({"state_dict": {}, **number}, file)
    for read in (read_checkpoint, read_weights, lambda file: load_checkpoint(tmp_path)):
        with pytest.raises(UserError, match=rf"^{file} has {words}.* reads format {FORMAT}: use .*train"):
            read(file)
    assert file.is_file()


def test_a_checkpoint_is_written_with_the_number_of_its_format(tmp_path):
    write_checkpoint({"global_step": 3, "state_dict": {}, "random": []}, tmp_path / "best.ckpt")
    write_checkpoint({"global_step": 3, "state_dict": {}, "random": []}, tmp_path / "step_000003.ckpt")
    found = [read_checkpoint(tmp_path / name) for name in ("best.ckpt", "step_000003.ckpt")]
    assert found == [
        {"global_step": 3, "state_dict": {}, "random": [], "format": FORMAT},
        {"global_step": 3, "state_dict": {}, "format": FORMAT},
    ]


def validate(checkpoints: Checkpoints, scores) -> None:
    """Tell the callback of a validation with each score, at steps 1, 2, …"""
    for step, score in enumerate(scores, 1):
        trainer = SimpleNamespace(
            callback_metrics={"val/bleu": torch.tensor(score)},
            global_step=step,
            fit_loop=SimpleNamespace(_should_accumulate=lambda: False),
        )
        checkpoints.on_validation_end(trainer, None)


@pytest.mark.parametrize(
    ("mode", "scores", "best"),
    [("max", [0.0, 0.0, 0.0], 3), ("max", [1.0, 5.0, 5.0, 2.0], 3), ("min", [3.0, 2.0, 2.0, 4.0], 3)],
)
def test_the_later_of_equal_checkpoints_is_best(mode, scores, best, tmp_path):
    checkpoints = Checkpoints(
        directory=str(tmp_path), monitor="val/bleu", mode=mode, every_n_steps=None, every_n_minutes=None
    )
    validate(checkpoints, scores)
    assert checkpoints.best_step == best
    assert checkpoints.best_score == scores[best - 1]


class Mean(L.LightningModule):
    """Learns one number. `validated` has the batches of this epoch, and the steps, before each validation."""

    def __init__(self):
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(()))
        self.validated = []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, number):
        for logger in self.loggers:
            logger.log_metrics({"loss": 1.0}, step=self.trainer.global_step)
        return (self.number - batch).square().mean()

    def validation_step(self, batch, number):
        self.log("val/loss", self.number)

    def on_validation_end(self):
        self.validated.append((self.trainer.fit_loop.batch_idx + 1, self.trainer.global_step))


class Act(L.Callback):
    """Does something after a batch, counted from 1 over epochs."""

    def __init__(self, number, act):
        self.number, self.act = number, act

    def on_train_batch_end(self, trainer, *unused):
        if trainer.fit_loop.total_batch_idx + 1 == self.number:
            self.act(trainer)


def fit(directory, *callbacks, every_n_steps=None, **settings) -> Mean:
    module = Mean()
    checkpoints = Checkpoints(
        **{"directory": str(directory), "monitor": "val/loss", "mode": "min"},
        **{"every_n_steps": every_n_steps, "every_n_minutes": None},
    )
    trainer = L.Trainer(
        accelerator="cpu",
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, checkpoints],
        **{"max_epochs": 1, "logger": False, "log_every_n_steps": 1} | settings,
    )
    trainer.fit(module, DataLoader(torch.arange(10.0)), DataLoader(torch.zeros(1)))
    return module


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"val_check_interval": 3}, [(4, 1), (8, 2), (10, 3)]),  # after 3, 6 and 9
        ({"val_check_interval": 0.5}, [(8, 2), (10, 3)]),  # after 5 and 10
        ({}, [(10, 3)]),
        ({"check_val_every_n_epoch": 2, "max_epochs": 2}, [(10, 6)]),
        # over epochs: after 7, 14, 21 and 28, and at the end
        (
            {"check_val_every_n_epoch": None, "val_check_interval": 7, "max_epochs": 3},
            [(8, 2), (4, 4), (4, 7), (8, 8), (10, 9)],
        ),
    ],
)
def test_a_validation_inside_an_accumulation_window_waits_for_its_end(settings, expected, tmp_path):
    assert fit(tmp_path, accumulate_grad_batches=4, **settings).validated == expected


def test_without_accumulation_validations_come_when_they_are_due_and_at_the_end(tmp_path):
    by_steps = {"check_val_every_n_epoch": None, "max_epochs": -1}
    for settings, expected in (
        ({"val_check_interval": 3}, [3, 6, 9, 10]),
        ({"val_check_interval": 5, "max_steps": 7}, [5, 7]),
        ({"val_check_interval": 20, **by_steps, "max_steps": 7}, [7]),
        ({"val_check_interval": 8, **by_steps, "max_epochs": 2}, [8, 6, 10]),
        ({"check_val_every_n_epoch": 2, "max_epochs": 3}, [10]),
    ):
        assert [done for done, _ in fit(tmp_path, **settings).validated] == expected, settings


def test_a_run_that_is_stopped_inside_an_accumulation_window_ends_with_its_step(tmp_path):
    stop = Act(6, lambda trainer: setattr(trainer, "should_stop", True))
    assert fit(tmp_path, stop, accumulate_grad_batches=4).validated == [(8, 2)]
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["global_step"] == 2


def test_rows_up_to_a_checkpoint_are_in_the_table_when_it_is_written(tmp_path):
    """A table is else written every 100 rows, and those in between end with a process that is killed."""
    seen = []
    logger = CSVLogger(tmp_path, name="", version="")
    act = Act(8, lambda trainer: seen.extend((tmp_path / "metrics.csv").read_text().splitlines()))
    fit(tmp_path, act, logger=logger, every_n_steps=5)
    assert [int(row["step"]) for row in csv.DictReader(seen)] == [0, 1, 2, 3, 4]


def ended(max_epochs=-1, epochs=3, max_steps=-1, step=10, callbacks=()) -> str:
    stopping = [each for each in callbacks if isinstance(each, EarlyStopping)]
    trainer = SimpleNamespace(
        max_epochs=max_epochs,
        current_epoch=epochs,
        max_steps=max_steps,
        global_step=step,
        callbacks=list(callbacks),
        early_stopping_callbacks=stopping,
    )
    return why_ended(trainer)


def test_the_summary_says_why_a_run_ended():
    assert ended(max_epochs=3) == "trainer.max_epochs=3 is reached"
    assert ended(max_steps=10) == "trainer.max_steps=10 is reached"
    assert ended(max_epochs=4, callbacks=[Timer("00:00:00:00")]) == "trainer.max_time is spent"
    stopping = EarlyStopping("val/bleu", mode="max", patience=2)
    for score in (0.0, 0.0, 0.0):  # equal is no better
        stopped, _ = stopping._evaluate_stopping_criteria(torch.tensor(score))
    assert stopped
    assert ended(max_epochs=9, callbacks=[stopping]) == "early stopping: no better val/bleu in 2 validations"
