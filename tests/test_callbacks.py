"""Callbacks: losses that are no numbers or jump, batches and disks that are too large or full, progress, trackers."""

import ctypes
import html
import json
import math
import operator
import re
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Timer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.checkpoint import read_weights
from nmt.data.batching import TokenBatchSampler, collate
from nmt.errors import UserError
from nmt.run.run import Run
from nmt.training.callbacks import (
    AtomicCheckpointIO,
    Checkpoints,
    LogMemory,
    ScoreValidation,
    StopOnNonfinite,
    TryLargestBatch,
)
from nmt.training.callbacks.largest_batch import OFTEN
from nmt.training.callbacks.progress import describe_validation, seconds_left
from nmt.training.callbacks.randomness import random_state
from nmt.training.callbacks.trackers import as_it_is
from nmt.training.checks import check_explainer
from nmt.training.memory import held_memory, is_out_of_memory
from nmt.training.module import TranslationModule
from nmt.training.precision import _seconds_of_both
from tests.commands import refused, run_composed
from tests.small import SMALL, TINY, make_run
from tests.test_module import examples, make_module


def batch() -> Any:
    return collate(examples(), pad_id=0, bos_id=2)


def trainer(**values: Any) -> Any:
    """A trainer that has just taken step 8."""
    defaults = {
        "global_step": 8,
        "current_epoch": 1,
        "loggers": [],
        "precision_plugin": SimpleNamespace(scaler=None),
        "fit_loop": SimpleNamespace(_should_accumulate=lambda: False),
    }
    return SimpleNamespace(**{**defaults, **values})


@pytest.mark.parametrize(
    ("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)]
)
def test_a_loss_that_is_no_number_ends_the_run_and_names_its_rows(loss, norm, tmp_path):
    callback = StopOnNonfinite(directory=str(tmp_path))
    module = SimpleNamespace(grad_norm=torch.tensor(1.0))
    callback.on_train_batch_end(trainer(), module, {"loss": torch.tensor(2.0)}, batch(), 0)
    module.grad_norm = torch.tensor(norm)
    with pytest.raises(UserError, match=r"is (nan|inf) at step 8: lower optimizer.lr") as error:
        callback.on_train_batch_end(trainer(), module, {"loss": torch.tensor(loss)}, batch(), 1)
    assert "\n" not in str(error.value)
    found = json.loads((tmp_path / "nonfinite_batch.json").read_text())
    assert found["rows"] == [0, 1, 2, 3]
    assert found["step"] == 8


def test_gradients_that_overflow_are_left_to_a_scaler(tmp_path):
    callback = StopOnNonfinite(directory=str(tmp_path))
    module = SimpleNamespace(grad_norm=torch.tensor(math.inf))
    scaled = trainer(precision_plugin=SimpleNamespace(scaler=object()))
    callback.on_train_batch_end(scaled, module, {"loss": torch.tensor(2.0)}, batch(), 0)


def test_the_rows_of_the_whole_window_are_named(tmp_path):
    callback = StopOnNonfinite(directory=str(tmp_path))
    module = SimpleNamespace(grad_norm=torch.tensor(math.nan))
    first, second = batch(), batch()._replace(indices=torch.tensor([7, 8]))
    open_window = trainer(fit_loop=SimpleNamespace(_should_accumulate=lambda: True))
    callback.on_train_batch_end(open_window, module, {"loss": torch.tensor(2.0)}, first, 0)
    with pytest.raises(UserError, match="gradient norm is nan"):
        callback.on_train_batch_end(trainer(), module, {"loss": torch.tensor(2.0)}, second, 1)
    assert json.loads((tmp_path / "nonfinite_batch.json").read_text())["rows"] == [0, 1, 2, 3, 7, 8]


def test_the_largest_batches_have_the_most_cells_and_the_most_pairs_of_positions():
    rng = np.random.default_rng(1)
    src, tgt = rng.integers(2, 40, 300), rng.integers(2, 40, 300)
    sampler = TokenBatchSampler(src, tgt, max_tokens=160, shuffle=True, seed=3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        cells, pairs = (
            [len(rows) * size(src[rows].max(), tgt[rows].max()) for rows in batches]
            for size in (operator.add, operator.mul)
        )
        found = [batches.index(rows) for rows in sampler.largest_batches()]
        assert [cells[found[0]], pairs[found[-1]]] == [max(cells), max(pairs)]
        assert len(found) == len(set(found))


class Plain:
    """A strategy and a precision that leave everything where it is."""

    def batch_to_device(self, batch: Any) -> Any:
        return batch

    def train_step_context(self) -> Any:
        return torch.enable_grad()


def with_data() -> Any:
    data = SimpleNamespace(largest_batches=lambda epoch: [batch(), batch()], max_tokens=1024)
    return trainer(datamodule=data, strategy=Plain(), precision_plugin=Plain())


def test_trying_the_largest_batch_leaves_no_trace():
    module = make_module()
    module.translator.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = random_state(module.device)
    called = []
    module.translator.encoder.register_forward_hook(lambda *_: called.append(torch.rand(3)))
    TryLargestBatch().on_train_start(with_data(), module)
    assert len(called) == 2
    assert all(p.grad is None for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    after = random_state(module.device)
    assert torch.equal(after.pop("torch"), state.pop("torch"))
    assert after == state
    assert not module.meter.since_count
    assert not module._window_tokens


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"),
        RuntimeError("std::bad_alloc"),
        MemoryError(),
    ],
)
def test_a_batch_that_cannot_fit_names_the_setting(error, monkeypatch):
    module = make_module()

    def fail(batch: Any) -> None:
        raise error

    monkeypatch.setattr(module, "loss_of", fail)
    run = with_data()
    advice = r"4 pairs of 8 source and 10 target pieces.*data.max_tokens=1024"
    with pytest.raises(UserError, match=advice):
        TryLargestBatch().on_train_start(run, module)
    with pytest.raises(UserError, match=advice):  # trainer.precision=auto reads them first
        _seconds_of_both(module, run.datamodule)


def test_the_allocators_own_words_are_known():
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 50)
    assert is_out_of_memory(error.value)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_what_a_process_holds_is_measured_and_logged():
    logged: list[tuple[dict[str, float], int]] = []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((metrics, step)))
    callback, module = LogMemory(), SimpleNamespace(device=torch.device("cpu"))
    callback.on_validation_end(trainer(loggers=[logger]), module)
    block = np.ones(100 * 2**17)  # 100 MiB
    callback.on_validation_end(trainer(loggers=[logger], global_step=16), module)
    del block
    [(before, _), (after, step)] = logged
    assert step == 16
    assert after["train/memory"] - before["train/memory"] == pytest.approx(100, abs=5)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
@pytest.mark.parametrize("when", ["validation", "batch"])
def test_what_nobody_holds_is_given_back(when):
    callback, module = LogMemory(), SimpleNamespace(device=torch.device("cpu"))
    blocks = [b"x" * 100_000 for _ in range(1000)]  # small ones, which the allocator keeps
    last = b"y" * 100_000  # behind them, so that they are a gap
    del blocks
    before = held_memory()
    if when == "validation":
        callback.on_validation_end(trainer(loggers=[]), module)
    else:
        callback.on_train_batch_end(trainer(), module, None, None, OFTEN - 2)
        assert held_memory() > before - 2**20
        callback.on_train_batch_end(trainer(), module, None, None, OFTEN - 1)
    assert held_memory() < before - 60 * 2**20
    assert len(last) == 100_000


def test_the_checkpoint_before_the_last_is_kept(tmp_path):
    for number in range(3):
        AtomicCheckpointIO().save_checkpoint({"number": number}, tmp_path / "last.ckpt")
    numbers = {path.name: torch.load(path, weights_only=True)["number"] for path in tmp_path.iterdir()}
    assert numbers == {"last.ckpt": 2, "previous.ckpt": 1}


def test_a_model_that_gives_no_numbers_ends_validation_in_one_line():
    """As half precision does where it overflows."""
    module = make_module()
    with torch.no_grad():
        module.translator.decoder.embedding.weight.fill_(torch.nan)
    validating = trainer(datamodule=None, val_dataloaders=[batch()], num_val_batches=[1], global_step=12)
    with pytest.raises(UserError, match=r"validation after step 12: the model gives .* lower optimizer\.lr"):
        ScoreValidation(num_samples=0).on_validation_epoch_end(validating, module.eval())


@pytest.mark.parametrize(
    "text", ["a | b", r"a \| b", "__init__ *x* `y` ~z~", "[a](b)", "![a](b)", "<b>a</b> &amp; & #1"]
)
def test_a_sample_translation_is_shown_as_it_is(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from tensorboard.plugin_util import markdown_to_safe_html  # TensorBoard's own

    table = f"| | source | reference |\n|---|---|---|\n| 0 | {as_it_is(text)} | c |"
    shown = markdown_to_safe_html(table)
    cells = [html.unescape(each) for each in re.findall(r"<td>(.*?)</td>", shown)]
    assert cells == ["0", text, "c"]


def described(scores: dict, *, monitor="val/bleu", mode="max", best=None, left=None) -> str:
    kept = Checkpoints(directory="", monitor=monitor, mode=mode, every_n_steps=None, every_n_minutes=None)
    kept.best_score, kept.best_step = best or (None, 0)
    trainer = SimpleNamespace(
        checkpoint_callback=kept,
        callback_metrics=scores,
        current_epoch=1,
        fit_loop=SimpleNamespace(batch_idx=136),
        num_training_batches=274,
        global_step=1411,
    )
    return describe_validation(trainer, speed=5210.4, left=left)


def test_a_validation_is_described_in_one_line():
    scores = {"val/loss": 1.2139, "val/bleu": 86.306, "val/chrf": 90.0, "val/aer": 0.0714}
    assert described(scores, best=(86.2, 274), left=250.0) == (
        "epoch 1.5, step 1,411: loss 1.214, BLEU 86.31, AER 0.071; best BLEU 86.31 at step 1,411; "
        "5,210 pieces/s, 4 min left"
    )
    line = described(
        {"val/loss": 2.0, "val/macro_f1": 0.5}, monitor="val/macro_f1", best=(0.75, 1096), left=9.0
    )
    assert line == (
        "epoch 1.5, step 1,411: loss 2.000, macro_f1 0.5; best macro_f1 0.75 at step 1,096; "
        "5,210 pieces/s, less than a minute left"
    )
    line = described({"val/loss": 2.0}, monitor="val/loss", mode="min", best=(2.5, 3))
    assert line.endswith("loss 2.000; best loss 2.000 at step 1,411; 5,210 pieces/s")


def test_the_time_left_is_that_of_the_first_limit():
    timer = Timer("00:00:01:00")
    trainer = SimpleNamespace(callbacks=[], estimated_stepping_batches=float("inf"), global_step=10)
    assert seconds_left(trainer, 0, time.perf_counter()) is None
    trainer.callbacks = [timer]
    assert seconds_left(trainer, 0, time.perf_counter() - 1) == pytest.approx(60, abs=1)
    trainer.estimated_stepping_batches = 110
    assert seconds_left(trainer, 0, time.perf_counter() - 2) == pytest.approx(20, abs=1)


def test_memory_that_runs_out_in_training_is_told_from_a_batch_that_cannot_fit(
    tmp_path, small_cache, monkeypatch
):
    step, calls = TranslationModule.training_step, iter(range(1, 10_000))

    def starved(*arguments):
        if next(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return step(*arguments)

    monkeypatch.setattr(TranslationModule, "training_step", starved)
    run = tmp_path / "run"
    ended = run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={run}")
    refused(
        ended,
        "memory ran out at step 3, though the largest batch had fitted",
        "train/memory",
        f"resume={run}",
    )


# --------------------------------------------------------------------------------------------- explanations in training


def trained_with(directory: Path, cache: Path, *overrides: str) -> tuple[dict[str, torch.Tensor], set[str]]:
    """The weights at the end of a training with dropout, and the pictures in TensorBoard."""
    given = [*TINY, "model.dropout=0.3", f"data.cache_dir={cache}", f"run_dir={directory}"]
    ended = run_composed("train", *given, *overrides)
    assert ended.status == 0, ended.err
    events = EventAccumulator(str(directory), size_guidance={"images": 0}).Reload()
    pictures = {tag for tag in events.Tags()["images"] if tag.startswith("val/")}
    assert all(len(events.Images(tag)) == 2 for tag in pictures)
    return read_weights(directory / "checkpoints" / "last.ckpt"), pictures


@pytest.mark.slow
def test_sample_sentences_are_explained_without_a_trace_in_training(tmp_path, small_cache):
    plain, [drawn] = trained_with(tmp_path / "plain", small_cache)
    row = drawn.rpartition("/")[2]
    assert drawn == f"val/alignment/{row}"
    method = "integrated_gradients"
    found, pictures = trained_with(tmp_path / "it", small_cache, f"callbacks.alignments.method={method}")
    assert pictures == {drawn, f"val/{method}/{row}"}
    assert all(torch.equal(value, plain[name]) for name, value in found.items())
    files = sorted(each.name for each in (tmp_path / "it" / "alignments").glob(f"val_{method}_*"))
    assert len(files) == 2
    assert all(each.startswith(f"val_{method}_{int(row):04d}_step_") for each in files)
    without = ["attention=none", "callbacks.alignments.method=occlusion"]
    assert trained_with(tmp_path / "none", small_cache, *without)[1] == {f"val/occlusion/{row}"}


def test_a_method_that_does_not_fit_the_model_is_refused_and_another_leaves_its_mode(tmp_path):
    run = Run.load(make_run(tmp_path, *SMALL, "attention=none"))
    translator, tokenizer = run.translator.train(), run.tokenizer
    with pytest.raises(UserError, match=r"callbacks\.alignments\.method=rollout: .*Transformer"):
        check_explainer("rollout", translator, tokenizer)
    check_explainer("occlusion", translator, tokenizer)
    assert all(each.training for each in translator.modules())
    check_explainer("attention", translator, tokenizer)  # nothing is drawn of a model without attention
