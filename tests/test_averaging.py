"""Averaged weights: by NumPy's float64, wherever a model is used, and after any end of a run."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from torch import nn

from nmt.checkpoint import KEYS, kept_file, kept_files
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.run.aligning import AligningModel
from nmt.run.run import Run, open_run
from nmt.training import changes
from nmt.training.callbacks import ExponentialMovingAverage, validation_scores
from nmt.training.callbacks.ema import decay_after, update
from nmt.training.module import TranslationModule
from tests import test_ddp
from tests.commands import run_composed
from tests.test_resume import (
    EVEN,
    SMALL,
    UNEVEN,
    after,
    assert_identical,
    assert_same_run,
    die_at_batch,
    die_in_validation,
    go_on,
    log_of,
    some_slow,
    train,
)

EMA = ["averaging=ema", "averaging.decay=0.8"]
KEEP = ["callbacks.checkpoint.keep=4"]


def test_saving_before_the_first_update_changes_nothing():
    found = []
    for saves in (False, True):
        module, trainer = nn.Linear(2, 2, bias=False), SimpleNamespace(global_step=0)
        nn.init.ones_(module.weight)
        averaging = ExponentialMovingAverage(decay=0.9, warmup=False, every_n_steps=2)
        averaging.on_fit_start(trainer, module)
        for trainer.global_step in (1, 2, 3, 4):
            with torch.no_grad():
                module.weight += trainer.global_step
            averaging.on_train_batch_end(trainer, module, None, None, 0)
            if saves:
                averaging.on_save_checkpoint(trainer, module, {"state_dict": {}})
        found.append(averaging._averages[0][0, 0].item())
    assert found == pytest.approx([0.9 * 4 + 0.1 * 11] * 2)  # the weights are 1, 2, 4, 7, 11


def load(file: Path) -> dict[str, Any]:
    return torch.load(file, map_location="cpu", weights_only=True)


def checkpoint(run_dir: Path, name: str = "last") -> dict[str, Any]:
    return load(run_dir / "checkpoints" / f"{name}.ckpt")


def kept(run_dir: Path) -> dict[int, Any]:
    return {step: load(file) for step, file in kept_files(run_dir / "checkpoints").items()}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("averaging")


# The average itself


def test_the_decay_warms_up_to_what_was_chosen():
    assert [decay_after(t, 0.9, warmup=True) for t in (0, 1, 8, 80, 81)] == [0.1, 2 / 11, 0.5, 0.9, 0.9]
    assert decay_after(0, 0.9, warmup=False) == 0.9


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6), ("bfloat16", 1e-6)])
def test_an_update_is_the_moving_average(dtype, tolerance):
    """Also of weights in half precision, in which most updates of a long average would be rounded away."""
    weights = [torch.randn(3, 4).to(getattr(torch, dtype)), torch.randn(5).to(getattr(torch, dtype))]
    averages = [each.to(torch.promote_types(each.dtype, torch.float32), copy=True) for each in weights]
    expected = [each.double().numpy().copy() for each in weights]
    for t in range(50):
        weights = [each + torch.randn_like(each) for each in weights]
        update(averages, weights, decay_after(t, 0.999, warmup=t % 2 == 0))
        d = min(0.999, (1 + t) / (10 + t)) if t % 2 == 0 else 0.999
        expected = [
            d * one + (1 - d) * other.double().numpy() for one, other in zip(expected, weights, strict=True)
        ]
    for found, reference in zip(averages, expected, strict=True):
        np.testing.assert_allclose(found.double().numpy(), reference, rtol=0, atol=tolerance * 10)


def module_with_a_tie() -> nn.Module:
    module = nn.Module()
    module.one = nn.Linear(3, 3, bias=False)
    module.other = nn.Linear(3, 3, bias=False)
    module.other.weight = module.one.weight
    module.register_buffer("constant", torch.arange(3))
    return module


def test_a_tied_weight_is_averaged_once_and_saved_under_both_names():
    module, trainer = module_with_a_tie(), SimpleNamespace(global_step=0)
    start = module.one.weight.detach().clone()
    ema = ExponentialMovingAverage(decay=0.5, warmup=False, every_n_steps=1)
    ema.on_fit_start(trainer, module)
    with torch.no_grad():
        module.one.weight += 1
    trainer.global_step = 1
    ema.on_train_batch_end(trainer, module, None, None, 0)
    ema.on_train_batch_end(trainer, module, None, None, 1)  # a batch that ends without a step
    saved: dict[str, Any] = {"state_dict": module.state_dict()}
    ema.on_save_checkpoint(trainer, module, saved)
    assert ema.num_updates == 1
    assert list(saved["state_dict"]) == list(module.state_dict())
    for name in ("one.weight", "other.weight"):
        torch.testing.assert_close(saved["state_dict"][name], start + 0.5)
        torch.testing.assert_close(saved["current_model_state"][name], start + 1)
    assert torch.equal(saved["state_dict"]["constant"], torch.arange(3))


def test_before_the_first_update_the_weights_of_training_are_validated_and_saved():
    module, trainer = module_with_a_tie(), SimpleNamespace(global_step=0)
    ema = ExponentialMovingAverage(decay=0.5, warmup=False, every_n_steps=100)
    ema.on_fit_start(trainer, module)
    with torch.no_grad():
        module.one.weight += 1
    trained = module.one.weight.detach().clone()
    ema.on_validation_start(trainer, module)
    assert torch.equal(module.one.weight, trained)
    ema.on_validation_end(trainer, module)
    with torch.no_grad():
        module.one.weight += 1
    saved: dict[str, Any] = {"state_dict": module.state_dict()}
    ema.on_save_checkpoint(trainer, module, saved)
    assert torch.equal(saved["state_dict"]["one.weight"], trained + 1)


def test_a_checkpoint_without_averages_is_refused():
    with pytest.raises(UserError, match="saved without averaging=ema"):
        ExponentialMovingAverage(decay=0.9, warmup=True, every_n_steps=1).on_load_checkpoint(
            None, module_with_a_tie(), {"state_dict": {}}
        )


# A run


def weights_of(module: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def record(file: Path) -> Callable[[], None]:
    """Write down the weights at the start, after each optimizer step, and whenever validation uses them."""

    def sabotage() -> None:
        steps: list[Any] = []
        used: list[Any] = []

        def note_step(self: Any, *_: Any) -> None:
            if self.trainer.global_step == len(steps):
                steps.append(weights_of(self))

        def note_use(self: Any) -> None:
            used.append((self.trainer.global_step, weights_of(self)))

        def before(owner: Any, name: str, note: Callable[..., None], argument: Callable[..., Any]) -> None:
            method = getattr(owner, name)

            def noted(*arguments: Any, **keywords: Any) -> Any:
                note(argument(*arguments))
                return method(*arguments, **keywords)

            setattr(owner, name, noted)

        module: list[Any] = []

        def remember(self: Any) -> None:
            module.append(self)
            note_step(self)

        before(TranslationModule, "on_train_start", remember, lambda self: self)
        before(TranslationModule, "on_train_batch_end", note_step, lambda self, *_: self)
        before(TranslationModule, "validation_step", note_use, lambda self, *_: self)
        before(validation_scores, "greedy_search", note_use, lambda *_: module[0])
        before(AligningModel, "attentions", note_use, lambda *_: module[0])
        before(
            TranslationModule,
            "on_fit_end",
            lambda _: torch.save({"steps": steps, "used": used}, file),
            lambda _: None,
        )

    return sabotage


def moving_averages(weights: list[Any], *, decay: float, every_n_steps: int) -> list[Any]:
    """The average after each optimizer step, by NumPy, out of the weights before the first and after each."""
    average = {name: value.double().numpy() for name, value in weights[0].items()}
    found, updates = [average], 0
    for step, current in enumerate(weights[1:], 1):
        if step % every_n_steps == 0:
            d = min(decay, (1 + updates) / (10 + updates)) if updates or every_n_steps == 1 else 0.0
            average = {name: d * average[name] + (1 - d) * current[name].double().numpy() for name in average}
            updates += 1
        found.append(average)
    return found


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == torch.float64
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_what_a_run_validates_and_keeps_is_the_average(workspace):
    directory, file, every_n_steps = workspace / "recorded", workspace / "recorded.pt", 3
    settings = [
        *SMALL,
        *EVEN,
        *EMA,
        f"averaging.every_n_steps={every_n_steps}",
        "trainer.accumulate_grad_batches=2",
        "trainer.precision=64-true",
        "callbacks.checkpoint.keep=99",
        "callbacks.checkpoint.every_n_steps=5",
    ]
    assert train(directory, settings, record(file)) == 0, log_of(directory)
    recorded = load(file)
    averages = moving_averages(recorded["steps"], decay=0.8, every_n_steps=every_n_steps)
    last, files = checkpoint(directory), kept(directory)
    num_steps = last["global_step"]
    assert num_steps == len(averages) - 1
    assert_close(last["state_dict"], averages[num_steps])
    assert_identical(dict(last["current_model_state"]), recorded["steps"][num_steps], "training")
    state = last["callbacks"]["ExponentialMovingAverage"]
    assert state == {"num_updates": num_steps // every_n_steps}
    # Losses, translations and pictures of each of three validations are those of the averaged weights …
    assert len({step for step, _ in recorded["used"]}) == 3
    for step, weights in recorded["used"]:
        assert_close(weights, averages[step])
    # … and so are the checkpoints that are kept for their scores.
    best = checkpoint(directory, "best")
    assert_close(best["state_dict"], averages[best["global_step"]])
    validated = {step for step, _ in recorded["used"]}
    assert set(files) == validated | set(range(5, num_steps + 1, 5))
    for step, each in files.items():
        assert set(each) == {"format", "state_dict", "global_step"}
        assert each["global_step"] == step
        assert_close(each["state_dict"], averages[step])


@pytest.fixture(scope="module")
def whole(workspace) -> Path:
    directory = workspace / "whole"
    assert train(directory, [*SMALL, *EVEN, *EMA, *KEEP]) == 0, log_of(directory)
    return directory


@pytest.fixture(scope="module")
def plain(workspace) -> Path:
    """Without the moving average."""
    directory = workspace / "plain"
    assert train(directory, [*SMALL, *EVEN, *KEEP]) == 0, log_of(directory)
    return directory


def test_averaging_leaves_training_as_it_is(whole, plain):
    averaged, alone = checkpoint(whole), checkpoint(plain)
    assert_identical(dict(averaged["current_model_state"]), dict(alone["state_dict"]), "weights")
    assert_identical(averaged["optimizer_states"], alone["optimizer_states"], "optimizer")
    assert_identical(averaged["random"], alone["random"], "random")
    assert "current_model_state" not in alone
    assert not torch.equal(
        averaged["state_dict"]["translator.output.weight"], alone["state_dict"]["translator.output.weight"]
    )


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_run_is_loaded_with_its_averaged_weights(name, whole):
    loaded = Run.load(whole, checkpoint=name).translator.state_dict()
    saved = checkpoint(whole, name)
    for key, value in loaded.items():
        assert torch.equal(value, saved["state_dict"][f"translator.{key}"])
        assert saved["current_model_state"][f"translator.{key}"].shape == value.shape


def assert_same_averages(found: Path, expected: Path) -> None:
    assert_same_run(found, expected)
    for name in ("last", "best"):
        one, other = checkpoint(found, name), checkpoint(expected, name)
        for key in ("state_dict", "current_model_state"):
            assert_identical(one[key], other[key], f"{name}.{key}")
    assert_identical(kept(found), kept(expected), "kept")


ENDS = {
    "killed in validation": (die_in_validation(2), -signal.SIGKILL),
    "interrupted where a checkpoint is due": (die_at_batch(8, signal.SIGTERM), 128 + signal.SIGTERM),
    "interrupted in validation": (die_in_validation(2, signal.SIGINT), 128 + signal.SIGINT),
}


@pytest.mark.parametrize("end", some_slow(ENDS, "killed in validation"))
def test_a_run_that_goes_on_has_the_average_of_the_run_that_never_stopped(end, workspace, whole):
    sabotage, status = ENDS[end]
    directory = workspace / end.replace(" ", "_")
    assert train(directory, [*SMALL, *EVEN, *EMA, *KEEP], sabotage) == status, log_of(directory)
    assert go_on(directory) == 0, log_of(directory)
    assert_same_averages(directory, whole)


@pytest.mark.slow
def test_killed_before_the_kept_is_followed_by_the_last(workspace, whole):
    """With `step_000020.ckpt` written and `last.ckpt` still of before."""
    directory = workspace / "between"

    def sabotage() -> None:
        save = L.Trainer.save_checkpoint

        def one(self: Any, file: Path) -> None:
            save(self, file)
            if self.global_step == 20:
                os.kill(os.getpid(), signal.SIGKILL)

        L.Trainer.save_checkpoint = one

    assert train(directory, [*SMALL, *EVEN, *EMA, *KEEP], sabotage) == -signal.SIGKILL
    assert 20 in kept(directory)
    assert checkpoint(directory)["global_step"] == 16
    assert go_on(directory) == 0, log_of(directory)
    assert_same_averages(directory, whole)


@pytest.mark.slow
def test_so_it_is_with_accumulation_and_validation_inside_epochs(workspace):
    settings = [*SMALL, *UNEVEN, *EMA, *KEEP, "averaging.every_n_steps=2"]
    directory, expected = workspace / "uneven", workspace / "uneven_whole"
    assert train(expected, settings) == 0, log_of(expected)
    assert train(directory, settings, die_in_validation(4, signal.SIGINT)) == 128 + signal.SIGINT
    assert go_on(directory) == 0, log_of(directory)
    assert_same_averages(directory, expected)


@pytest.mark.slow
def test_a_finished_run_that_is_given_more_epochs_is_the_longer_run(workspace):
    short, long = workspace / "short", workspace / "long"
    settings = [*SMALL, *EMA, *KEEP, "scheduler=constant"]
    assert train(short, [*settings, "trainer.max_epochs=1"]) == 0, log_of(short)
    assert go_on(short, "trainer.max_epochs=2") == 0, log_of(short)
    assert train(long, [*settings, "trainer.max_epochs=2"]) == 0, log_of(long)
    assert_same_averages(short, long)


def test_what_is_averaged_cannot_change_in_a_run_that_goes_on():
    chosen = {"_target_": "nmt.training.callbacks.ExponentialMovingAverage", "decay": 0.9}
    for stored, wanted, key, message in (
        ({"averaging": chosen}, {"averaging": chosen | {"decay": 0.5}}, "averaging.decay", "0.9 -> 0.5"),
        ({"averaging": chosen}, {"averaging": None}, "averaging", "ExponentialMovingAverage -> nothing"),
        ({"averaging": None}, {"averaging": chosen}, "averaging", "nothing -> nmt.*ExponentialMovingAverage"),
        ({}, {"averaging": chosen}, "averaging", "nothing -> nmt.*ExponentialMovingAverage"),
    ):
        with pytest.raises(
            UserError, match=rf"averaging\.\w+ cannot change in a run that goes on: .*{message}"
        ):
            changes.apply_changes(stored, wanted, [key], written={})
    assert changes.apply_changes({}, {"averaging": None}, ["averaging"], written={})[1] == []


@pytest.mark.slow
def test_two_processes_keep_one_average(workspace):
    small = [*test_ddp.COMMON, *test_ddp.DDP, *EMA, *KEEP, "model.dropout=0.2", "trainer.max_epochs=2"]
    small += ["trainer.log_every_n_steps=3", "callbacks.checkpoint.every_n_steps=2"]
    expected, ended = workspace / "two", workspace / "two_ended"

    def note() -> None:
        rank = os.environ["RANK"]
        end = ExponentialMovingAverage.on_validation_end

        def noted(self: Any, trainer: Any, module: Any) -> None:
            torch.save([weights_of(module), self._training], workspace / f"rank_{rank}.pt")
            end(self, trainer, module)

        ExponentialMovingAverage.on_validation_end = noted

    log = test_ddp.log_file
    assert test_ddp.train(expected, small, number=2, before=note) == [0, 0], log(expected).read_text()
    assert_identical(load(workspace / "rank_0.pt"), load(workspace / "rank_1.pt"), "ranks")
    state = checkpoint(expected)
    assert state["callbacks"]["ExponentialMovingAverage"]["num_updates"] == state["global_step"] > 8

    def sabotage() -> None:
        if os.environ["RANK"] == "1":
            after(TranslationModule, "training_step", 8, lambda: os.kill(os.getpid(), signal.SIGTERM))

    assert test_ddp.train(ended, small, number=2, before=sabotage) == [128 + signal.SIGTERM] * 2
    assert test_ddp.go_on(ended, number=2) == [0, 0], log(ended).read_text()
    assert_same_averages(ended, expected)


# Checkpoints that are kept


def test_the_names_of_kept_checkpoints(tmp_path):
    for name in (
        "step_000002.ckpt",
        "step_1000000.ckpt",
        "step_000030.ckpt",
        "step_x.ckpt",
        ".step_000004.ckpt.tmp",
    ):
        (tmp_path / name).touch()
    assert list(kept_files(tmp_path)) == [2, 30, 1000000]
    assert kept_file(tmp_path, 2).name == "step_000002.ckpt"
    assert kept_files(tmp_path / "nowhere") == {}


def test_the_last_are_kept(plain):
    """Of those after each validation (of 12 batches) and every 4 steps."""
    files = kept(plain)
    num_steps = checkpoint(plain)["global_step"]
    validated = [num_steps // 3, 2 * num_steps // 3, num_steps]
    assert list(files) == sorted({*range(4, num_steps + 1, 4), *validated})[-4:]
    assert_identical(files[num_steps]["state_dict"], checkpoint(plain)["state_dict"], "last")
    assert not list((plain / "checkpoints").glob(".*"))


def test_every_key_of_a_checkpoint_is_declared(whole, plain):
    found = checkpoint(whole).keys() | checkpoint(plain).keys()
    assert found == KEYS.keys() - {"MixedPrecision", "StreamingDataModule"}


def test_the_step_that_ends_a_run_is_kept_too(workspace):
    directory = workspace / "ends_there"
    settings = [*SMALL, *KEEP, "callbacks.checkpoint.every_n_steps=2", "trainer.max_steps=4"]
    assert train(directory, settings) == 0, log_of(directory)
    assert [*kept(directory)] == [2, 4]


def test_none_is_kept_unless_asked_for(workspace):
    directory = workspace / "again"
    assert train(directory, [*SMALL, *EVEN, "trainer.max_epochs=1"]) == 0, log_of(directory)
    files = sorted(file.name for file in (directory / "checkpoints").iterdir())
    assert files == ["best.ckpt", "last.ckpt", "previous.ckpt"]


@pytest.mark.parametrize("number", [1, 3])
def test_a_run_is_loaded_with_the_mean_of_the_last(number, plain):
    files = list(kept(plain).values())[-number:]
    found = Run.load(plain, average=number).translator.state_dict()
    for name, value in found.items():
        each = [file["state_dict"][f"translator.{name}"].double().numpy() for file in files]
        expected = np.mean(each, axis=0).astype(np.float32)
        np.testing.assert_array_equal(value.numpy(), expected)


def test_what_cannot_be_averaged_is_refused_in_one_line(plain, workspace):
    directory = workspace / "unaverageable"
    shutil.copytree(plain, directory)
    files = list(kept_files(directory / "checkpoints").values())
    with pytest.raises(UserError, match=r"average=5: .* has kept 4 checkpoints to average; give average=4"):
        Run.load(directory, average=5)
    with pytest.raises(UserError, match="average=2 is in place of checkpoint=last: give one of the two"):
        Run.load(directory, average=2, checkpoint="last")
    for number in (0, 1.5, "x", True):
        with pytest.raises(UserError, match="give a number of at least 1, or null"):
            Run.load(directory, average=number)
    other = load(files[-2])
    name = "translator.output.weight"
    torch.save(other | {"state_dict": {**other["state_dict"], name: torch.zeros(3, 4)}}, files[-2])
    with pytest.raises(
        UserError, match=rf"{files[-1].name} and {files[-2].name} differ in the shape of output.weight"
    ):
        Run.load(directory, average=2)
    files[-1].write_bytes(files[-1].read_bytes()[:1000])
    with pytest.raises(UserError, match=rf"{files[-1].name} is broken"):
        Run.load(directory, average=1)
    for file in files:
        file.unlink()
    with pytest.raises(
        UserError, match=r"has kept no checkpoints .*; train with callbacks\.checkpoint\.keep=2"
    ):
        Run.load(directory, average=2)


def test_the_commands_take_the_average(plain, workspace):
    lines = b"the cat sleeps .\n"
    (workspace / "src").write_bytes(lines)
    (workspace / "tgt").write_bytes(lines)
    output = workspace / "average"
    greedy = "decoding=greedy"
    ended = run_composed(
        "evaluate", f"run={plain}", "average=3", greedy, f"output={output}", "num_bootstrap=0"
    )
    assert ended.status == 0, ended.err
    assert "mean of the last 3 checkpoints" in ended.out
    assert '"average": 3' in (output / "metrics.json").read_text()
    run = Run.load(plain, average=3)
    expected = run.translate(run.split("test")["src"], DecodingSettings(beam_size=1))
    assert (output / "hypotheses.txt").read_text("utf-8") == "".join(f"{each.text}\n" for each in expected)
    [both] = open_run([plain, plain], average=3, checkpoint="best", device="cpu").translate(
        ["the cat sleeps ."]
    )
    assert both.text == run.translate(["the cat sleeps ."])[0].text
    pair = [f"src={workspace / 'src'}", f"tgt={workspace / 'tgt'}"]
    ended = run_composed("align", f"run={plain}", "average=2", *pair)
    assert ended.status == 0, ended.err
