"""Ctrl-C during training leaves a last checkpoint from which the run goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest

from nmt.training.callbacks import Interrupted, SaveOnInterrupt
from tests.commands import ROOT, last_of_each, refused, run, run_composed
from tests.small import TINY


@pytest.fixture
def watching():
    """A trainer between two batches, under the callback."""
    trainer = SimpleNamespace(
        accumulate_grad_batches=1,
        checkpoint_callback=None,
        strategy=SimpleNamespace(reduce_boolean_decision=lambda asked, **_: asked),
    )
    callback = SaveOnInterrupt()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    yield callback, trainer
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_ends_the_run_between_batches_with_its_number(number, watching):
    callback, trainer = watching
    callback.on_train_start(trainer, None)
    os.kill(os.getpid(), number)
    with pytest.raises(Interrupted) as ended:
        callback.on_train_batch_start(trainer, None, None, 0)
    assert ended.value.number == number


def test_a_run_under_nohup_outlives_its_terminal(watching):
    callback, trainer = watching
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    callback.on_train_start(trainer, None)
    os.kill(os.getpid(), signal.SIGHUP)
    callback.on_train_batch_start(trainer, None, None, 0)


@pytest.mark.slow
def test_ctrl_c_saves_the_last_checkpoint(tmp_path: Path):
    directory = tmp_path / "run"
    settings = [*TINY, "trainer.max_epochs=1000", "callbacks.early_stopping.patience=1000"]
    settings += [f"run_dir={directory}", f"data.cache_dir={tmp_path / 'cache'}"]
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), *last_of_each(settings)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 120
            while not (directory / "checkpoints" / "best.ckpt").exists() and time.monotonic() < deadline:
                time.sleep(0.2)
            (directory / "checkpoints" / "last.ckpt").unlink(missing_ok=True)
            process.send_signal(signal.SIGINT)
            status = process.wait(timeout=300)
        finally:
            process.kill()
    assert status == 128 + signal.SIGINT
    text = (tmp_path / "log").read_text()
    found = re.search(r"interrupted at step (\d+): saved", text)
    assert found, text
    assert f"train.py: interrupted: go on with resume={directory}\n" in text
    step = int(found.group(1))
    stop = [f"trainer.max_steps={step + 3}", "decoding.beam_size=1"]
    refused(run("train", f"resume={directory}", "model.dropout=0.5", *stop), "model.dropout cannot", "-> 0.5")
    ended = run("train", f"resume={directory}", *stop)
    message = ended.out + ended.err
    assert ended.status == 0, message
    assert f"trainer.max_steps: -1 -> {step + 3}" in message
    assert f"going on from {directory}/checkpoints/last.ckpt, step {step}" in message
    assert "BLEU" in message
    ended = run("translate", f"run={directory}", "checkpoint=last", stdin=b"the cat sleeps .\n")
    assert ended.status == 0, ended.err
    assert ended.out.count("\n") == 1


def test_an_interrupt_that_lightning_takes_for_its_own_is_an_interrupt_still(
    tmp_path, small_cache, monkeypatch
):
    def fit(*arguments, **settings):
        (tmp_path / "run" / "checkpoints").mkdir()
        (tmp_path / "run" / "checkpoints" / "last.ckpt").touch()
        sys.exit(1)  # its answer to KeyboardInterrupt

    monkeypatch.setattr(L.Trainer, "fit", fit)
    ended = run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={tmp_path / 'run'}")
    assert ended.status == 130
    assert ended.err.endswith(f"train.py: interrupted: go on with resume={tmp_path / 'run'}\n")
