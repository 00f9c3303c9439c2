"""A run that was killed anywhere and goes on is, to the last bit, the run that was not."""

import errno
import json
import logging
import math
import multiprocessing
import os
import shutil
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import OmegaConf

from nmt.commands.arguments import quote_argument
from nmt.commands.run_names import arguments_for_training
from nmt.data import grammar
from nmt.errors import UserError
from nmt.run.observations import read_validations
from nmt.run.paths import load_config
from nmt.run.provenance import commands_of, note_command
from nmt.training import changes, resume
from nmt.training import train as train_module
from nmt.training.callbacks import Checkpoints, Interrupted, ScoreValidation
from nmt.training.module import TranslationModule
from tests import commands
from tests.commands import refused, run_composed

SMALL = [
    "name=small",
    "data.num_train=200",
    "data.num_val=6",
    "data.num_test=6",
    "data.max_words=8",
    "data.max_tokens=256",
    "data.tokenizer.vocab_size=250",
    "model.size=16",
    "model.dropout=0.2",  # so that the random generators matter
    "trainer.accelerator=cpu",
    "trainer.max_epochs=3",
    "trainer.log_every_n_steps=2",
    "trainer.enable_progress_bar=false",
    "callbacks.alignments.num_sentences=1",
    "callbacks.checkpoint.every_n_steps=4",
    "callbacks.checkpoint.monitor=val/loss",  # BLEU is 0 throughout
    "callbacks.checkpoint.mode=min",
]
EVEN = ["scheduler.warmup_steps=5"]  # a cosine
# Epochs whose windows of accumulation, validations and logged losses all end at different batches
UNEVEN = [
    "trainer.accumulate_grad_batches=2",
    "trainer.val_check_interval=5",
    "trainer.log_every_n_steps=3",
    "scheduler=plateau",
    "scheduler.patience=0",
]


# All that draws by chance, at once
REGULARISED = [
    *UNEVEN,
    "trainer.max_epochs=2",
    "data.augment.two_sentences=0.1",
    "data.tokenizer.sampling=0.2",
    "r_drop=2",
    "guided_alignment=0.5",
    "model.word_dropout=0.1",
    "decoder.attention_dropout=0.1",
]
SIZES = {
    "gru": [
        "model=gru_layer_norm",
    ],
    "transformer": [
        "model=transformer",
        "model.size=16",
        "encoder.feedforward_size=16",
        "decoder.feedforward_size=16",
        "encoder.num_heads=2",
        "decoder.num_heads=2",
        "encoder.num_layers=1",
        "decoder.num_layers=1",
    ],
}


def compose(overrides: list[str]) -> Any:
    return commands.compose("train", *overrides)


def in_child(function: Callable[[], None], log: Path) -> int:
    """Exit status of `function` in a process of its own; minus the signal's number where one killed it."""

    def task() -> None:
        # A library that an earlier test loaded may have given OpenMP more threads, which do not live on in a fork.
        torch.set_num_threads(1)
        file = log.open("a", buffering=1)
        sys.stdout = sys.stderr = file
        logging.basicConfig(level=logging.INFO, stream=file, force=True)
        train_module.silence_warnings()
        # What is scored is another test's matter
        train_module.score = resume.score = lambda *_, **__: ("test", {"training": {}})
        try:
            function()
        except Interrupted as interrupted:
            sys.exit(128 + interrupted.number)

    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join()
    return process.exitcode


def train(run_dir: Path, overrides: list[str], sabotage: Callable[[], None] = lambda: None) -> int:
    def function() -> None:
        sabotage()
        train_module.train(
            compose([*overrides, f"run_dir={run_dir}", f"data.cache_dir={run_dir.parent / 'cache'}"])
        )

    run_dir.parent.mkdir(exist_ok=True, parents=True)
    return in_child(function, run_dir.parent / f"{run_dir.name}.log")


def go_on(run_dir: Path, *overrides: str) -> int:
    def function() -> None:
        given = [f"resume={run_dir}", f"data.cache_dir={run_dir.parent / 'cache'}", *overrides]
        resume.resume_run(compose(["name=other", *given]), load_config(run_dir), given)

    return in_child(function, run_dir.parent / f"{run_dir.name}.log")


def log_of(run_dir: Path) -> str:
    return (run_dir.parent / f"{run_dir.name}.log").read_text()


def scalars(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows, but for what the machine decides: time and memory."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if tag not in ("train/tokens_per_second", "train/memory")
    }


def assert_same_run(found: Path, expected: Path) -> None:
    assert scalars(found) == scalars(expected)
    noted = [[row | {"train/loss": None} for row in read_validations(run)] for run in (found, expected)]
    assert noted[0] == noted[1] != []  # the logged loss is unknown until a resumed run logs again
    states = [
        torch.load(run / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
        for run in (found, expected)
    ]
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "random", "global_step", "epoch"):
        assert_identical(states[0][key], states[1][key], key)
    for name, state in states[1]["callbacks"].items():
        assert_identical(states[0]["callbacks"][name], state, name)


def assert_identical(found: Any, expected: Any, where: str) -> None:
    assert type(found) is type(expected), where
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_identical(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_identical(one, other, f"{where}.{number}")
    else:
        assert found == expected, where


# Where a run ends: each is called in the process that is to end.


def die_at_batch(number: int, with_signal: int = signal.SIGKILL) -> Callable[[], None]:
    """Inside training, in the middle of the batch of this number, counted over epochs."""

    def sabotage() -> None:
        after(TranslationModule, "training_step", number, lambda: os.kill(os.getpid(), with_signal))

    return sabotage


def die_in_validation(number: int, with_signal: int = signal.SIGKILL) -> Callable[[], None]:
    def sabotage() -> None:
        after(TranslationModule, "validation_step", number, lambda: os.kill(os.getpid(), with_signal))

    return sabotage


def die_writing(number: int) -> Callable[[], None]:
    """With half a checkpoint written."""

    def sabotage() -> None:
        write = torch.save
        calls = iter(range(1, 10_000))

        def half(checkpoint: Any, file: Any) -> None:
            write(checkpoint, file)
            if next(calls) == number:
                file.truncate(file.tell() // 2)
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)

        torch.save = half

    return sabotage


def die_renaming(number: int) -> Callable[[], None]:
    """With the last checkpoint called the one before it, and the new one not yet called the last."""

    def sabotage() -> None:
        rename = Path.replace
        calls = iter(range(1, 10_000))

        def replace(self: Path, target: Path) -> Path:
            renamed = rename(self, target)
            if Path(target).name == "previous.ckpt" and next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return renamed

        Path.replace = replace

    return sabotage


def die_before_last() -> None:
    """With the first best.ckpt written, and last.ckpt not yet."""
    save = L.Trainer.save_checkpoint

    def one(self: Any, file: Path) -> None:
        if Path(file).name == "last.ckpt":
            os.kill(os.getpid(), signal.SIGKILL)
        save(self, file)

    L.Trainer.save_checkpoint = one


def after(owner: Any, name: str, number: int, act: Callable[[], None]) -> None:
    """Act once, when the method has been called this many times."""
    method = getattr(owner, name)
    calls = iter(range(1, 10_000))

    def counted(*arguments: Any, **keywords: Any) -> Any:
        result = method(*arguments, **keywords)
        if next(calls) == number:
            act()
        return result

    setattr(owner, name, counted)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def whole(workspace) -> Path:
    directory = workspace / "whole"
    assert train(directory, SMALL + EVEN) == 0, log_of(directory)
    return directory


@pytest.fixture(scope="module")
def whole_uneven(workspace) -> Path:
    directory = workspace / "whole_uneven"
    assert train(directory, SMALL + UNEVEN) == 0, log_of(directory)
    return directory


def some_slow(ends: dict[str, Any], *quick: str) -> list[Any]:
    """Names of ends as parameters: all but the `quick` ones are run in the slow tier."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in ends]


ENDS = {
    "inside the first epoch": (die_at_batch(7), -signal.SIGKILL),
    "in validation": (die_in_validation(2), -signal.SIGKILL),
    "writing a checkpoint": (die_writing(4), -signal.SIGKILL),
    "renaming a checkpoint": (die_renaming(3), -signal.SIGKILL),
    "terminated between two logged steps": (die_at_batch(17, signal.SIGTERM), 128 + signal.SIGTERM),
}


@pytest.mark.parametrize("end", some_slow(ENDS, "renaming a checkpoint"))
def test_a_run_that_goes_on_is_the_run_that_never_stopped(end, workspace, whole):
    sabotage, status = ENDS[end]
    directory = workspace / end.replace(" ", "_")
    assert train(directory, SMALL + EVEN, sabotage) == status, log_of(directory)
    assert go_on(directory) == 0, log_of(directory)
    assert_same_run(directory, whole)


def test_the_checkpoint_that_is_resumed_does_not_stay_in_memory(whole, monkeypatch):
    class Held(dict):
        """A dict that can be watched."""

    watched = []

    def load(run_dir):
        file, checkpoint = load_checkpoint(run_dir)
        held = Held(checkpoint)
        watched.append(weakref.ref(held))
        return file, held

    load_checkpoint = resume.load_checkpoint
    monkeypatch.setattr(resume, "load_checkpoint", load)
    monkeypatch.setattr(resume, "train", lambda *_, **__: watched.append(watched[0]()))
    overrides = [f"resume={whole}", "trainer.max_epochs=9"]
    resume.resume_run(compose([*overrides, "name=other"]), load_config(whole), overrides)
    assert watched[1:] == [None]


UNEVEN_ENDS = {
    "killed": (die_at_batch(17), -signal.SIGKILL),
    "killed when only best.ckpt is there": (die_before_last, -signal.SIGKILL),
    "killed after the last validation of an epoch": (die_at_batch(12), -signal.SIGKILL),
    "terminated inside a window": (die_at_batch(18, signal.SIGTERM), 128 + signal.SIGTERM),
    "interrupted in validation": (die_in_validation(4, signal.SIGINT), 128 + signal.SIGINT),
}


@pytest.mark.parametrize("end", some_slow(UNEVEN_ENDS, "killed when only best.ckpt is there"))
def test_so_it_is_with_accumulation_validation_inside_epochs_and_a_plateau(end, workspace, whole_uneven):
    sabotage, status = UNEVEN_ENDS[end]
    directory = workspace / f"uneven_{end.replace(' ', '_')}"
    assert train(directory, SMALL + UNEVEN, sabotage) == status, log_of(directory)
    assert go_on(directory) == 0, log_of(directory)
    assert_same_run(directory, whole_uneven)


@pytest.mark.parametrize("averaging", ["none", "ema"])
def test_the_best_checkpoint_has_the_weights_that_were_scored(averaging, workspace):
    """A validation after 7 batches of windows of 2 waits for the 8th, and is that of step 4."""
    directory = workspace / f"best_{averaging}"
    overrides = [*SMALL, *EVEN, "trainer.accumulate_grad_batches=2", "trainer.val_check_interval=7"]
    overrides += ["trainer.max_epochs=1", f"averaging={averaging}"]
    scored = directory.with_suffix(".pt")

    def sabotage() -> None:
        start = ScoreValidation.on_validation_epoch_end
        Checkpoints.is_best = lambda self, score: self.best_score is None  # the validation at the end is not

        def noted(self: Any, trainer: Any, pl_module: Any) -> None:
            if not scored.exists():
                torch.save(dict(pl_module.state_dict()), scored)
            start(self, trainer, pl_module)

        ScoreValidation.on_validation_epoch_end = noted

    assert train(directory, overrides, sabotage) == 0, log_of(directory)
    best = torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 4
    assert_identical(dict(best["state_dict"]), torch.load(scored, weights_only=True), "weights")
    last = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["callbacks"]["Checkpoints"]["best_step"] == 4
    for name in ("last", "previous"):
        (directory / "checkpoints" / f"{name}.ckpt").unlink()
    assert go_on(directory) == 0, log_of(directory)
    assert "going on from" in log_of(directory)
    assert "best.ckpt, step 4" in log_of(directory)


@pytest.fixture(scope="module")
def text(workspace) -> Path:
    """Training text in three shards."""
    directory = workspace / "text"
    splits = grammar.corpus(num_train=200, num_val=6, num_test=6, max_words=8, seed=1)
    shards = {f"train-0000{n}-of-00003": splits["train"][n::3] for n in range(3)}
    directory.mkdir()
    for name, pairs in (shards | {"val": splits["val"], "test": splits["test"]}).items():
        rows = (json.dumps({"en": pair.en, "vi": pair.vi}) + "\n" for pair in pairs)
        (directory / f"{name}.jsonl").write_text("".join(rows))
    return directory


def streamed(text: Path) -> list[str]:
    """Blocks, passes and epochs that all end at different batches."""
    kept = [each for each in SMALL if not each.startswith(("data.num", "data.max_words"))]
    files = ["data=files", f"data.path={text}", "data.src_lang=en", "data.tgt_lang=vi"]
    return [*kept, *EVEN, *files, "data.max_length=60", "data.streaming=11", "data.buffer_pairs=70"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [7])
def test_so_it_is_with_text_that_is_read_as_it_goes(batch, workspace, text):
    whole, killed = workspace / f"streamed{batch}", workspace / f"killed{batch}"
    assert train(whole, streamed(text)) == 0, log_of(whole)
    assert train(killed, streamed(text), die_at_batch(batch)) == -signal.SIGKILL, log_of(killed)
    assert go_on(killed) == 0, log_of(killed)
    assert_same_run(killed, whole)
    assert log_of(whole).count("pass 1 reads") == 3  # the text was begun anew


@pytest.mark.slow
def test_other_text_is_refused_also_where_it_is_read_as_it_goes(workspace, text):
    directory, other = workspace / "other_text", workspace / "text_changed"
    assert train(directory, [*streamed(text), "trainer.max_epochs=1"]) == 0, log_of(directory)
    shutil.copytree(text, other)
    assert go_on(directory, f"++data.path={other}", "trainer.max_epochs=2") == 0, log_of(directory)
    limited = workspace / "limited"
    assert train(limited, [*streamed(text), "trainer.limit_train_batches=5"]) != 0
    assert "data.streaming=11 says how many batches an epoch has" in log_of(limited)
    shard = other / "train-00001-of-00003.jsonl"
    shard.write_text(shard.read_text().replace("the", "teh", 1))
    assert go_on(directory, f"++data.path={other}", "trainer.max_epochs=3") != 0
    assert "the training text is not the one that the run was trained on" in log_of(directory)


@pytest.mark.slow
def test_the_best_by_another_score_is_not_compared_with_the_best_before(workspace):
    directory = workspace / "another_score"
    assert train(directory, [*SMALL, *EVEN, "trainer.max_epochs=1"]) == 0, log_of(directory)
    changes = [
        "callbacks.checkpoint.monitor=val/chrf",
        "callbacks.checkpoint.mode=max",
        "trainer.max_epochs=2",
    ]
    assert go_on(directory, *changes) == 0, log_of(directory)
    last = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]
    best = torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)
    assert last["Checkpoints"]["monitor"] == "val/chrf"
    assert last["Checkpoints"]["best_step"] == best["global_step"] > 12
    assert "best.ckpt goes by val/chrf from here on" in log_of(directory)
    assert any("'val/chrf'" in name for name in last if name.startswith("EarlyStopping"))


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "optimizer"), [("64-true", "adam"), ("bf16-mixed", "muon")])
def test_so_it_is_in_other_precisions_and_by_muon(precision, optimizer, workspace):
    settings = [*SMALL, *EVEN, f"trainer.precision={precision}", f"optimizer={optimizer}"]
    settings += ["trainer.max_epochs=2"]
    name = precision
    directory, expected = workspace / name, workspace / f"{name}_whole"
    assert train(expected, settings) == 0, log_of(expected)
    assert train(directory, settings, die_at_batch(20)) == -signal.SIGKILL, log_of(directory)
    assert go_on(directory) == 0, log_of(directory)
    assert_same_run(directory, expected)


@pytest.mark.slow
@pytest.mark.parametrize("model", SIZES)
def test_so_it_is_with_every_regulariser(model, workspace):
    """Pieces, dropped units, words and weights, and R-Drop's two readings are drawn as if nothing had happened."""
    small = [each for each in SMALL if model != "transformer" or "_size=16" not in each]
    overrides = [*small, *REGULARISED, *SIZES[model]]
    whole, directory = workspace / f"whole_{model}", workspace / f"killed_{model}"
    assert train(whole, overrides) == 0, log_of(whole)
    assert train(directory, overrides, die_at_batch(17)) == -signal.SIGKILL, log_of(directory)
    assert go_on(directory) == 0, log_of(directory)
    assert_same_run(directory, whole)


@pytest.mark.slow
def test_a_finished_run_that_is_given_more_epochs_is_the_longer_run(workspace):
    short, long = workspace / "short", workspace / "long"
    constant = [*SMALL, "scheduler=constant"]
    assert train(short, [*constant, "trainer.max_epochs=1"]) == 0, log_of(short)
    (short / "metrics.json").write_text("{}")
    moved_to = workspace / "moved"
    short.rename(moved_to)
    assert go_on(moved_to) == 0, log_of(moved_to)
    assert "trainer.max_epochs=1 is reached" in log_of(moved_to)
    (moved_to / "metrics.json").write_text(json.dumps({"training": {"steps": 12}}))
    assert go_on(moved_to, "callbacks.checkpoint.every_n_minutes=5") == 0, log_of(moved_to)
    assert go_on(moved_to, "decoding.beam_size=2") != 0
    assert "decoding.beam_size: 5 -> 2 would change nothing" in log_of(moved_to)
    assert go_on(moved_to, "trainer.max_epochs=2") == 0, log_of(moved_to)
    assert "trainer.max_epochs: 1 -> 2" in log_of(moved_to)
    assert "trainer.max_epochs=2" in (moved_to / "commands.json").read_text()
    assert train(long, [*constant, "trainer.max_epochs=2"]) == 0, log_of(long)
    assert_same_run(moved_to, long)
    assert not short.exists()


def test_the_logged_rate_is_that_of_its_step_and_follows_a_new_end_from_the_first(workspace):
    """That of a run that had come to its end was nothing."""
    directory = workspace / "longer"
    each_step = ["trainer.max_epochs=1", "trainer.log_every_n_steps=1", "optimizer.lr=0.002"]
    assert train(directory, [*SMALL, *EVEN, *each_step]) == 0, log_of(directory)
    num_steps = len(scalars(directory)["train/lr"])
    assert go_on(directory, "trainer.max_epochs=2") == 0, log_of(directory)

    def rate(step: int, total: int) -> float:
        progress = max(0, step - 1 - 5) / (total - 5)
        return 0.002 * min(1, step / 5) * (1 + math.cos(math.pi * progress)) / 2

    rates = scalars(directory)["train/lr"]
    assert [step for step, _ in rates] == [*range(1, len(rates) + 1)]
    ends = [num_steps if step <= num_steps else len(rates) for step, _ in rates]
    expected = [rate(step, end) for (step, _), end in zip(rates, ends, strict=True)]
    assert [value for _, value in rates] == pytest.approx(expected, rel=1e-5)


def test_a_broken_checkpoint_is_set_aside_for_the_one_before_it(workspace, whole, caplog):
    directory = workspace / "broken"
    shutil.copytree(whole, directory)
    last = directory / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    file, checkpoint = resume.load_checkpoint(directory)
    assert file.name == "previous.ckpt"
    assert 0 < checkpoint["global_step"] < 36
    [message] = [record.getMessage() for record in caplog.records]
    assert "last.ckpt is broken" in message
    assert "\n" not in message
    assert go_on(directory) == 0, log_of(directory)
    assert_same_run(directory, whole)
    for each in (directory / "checkpoints").iterdir():
        each.write_bytes(b"nothing")
    with pytest.raises(UserError, match="no whole checkpoint to go on from: start the run anew"):
        resume.load_checkpoint(directory)
    shutil.rmtree(directory / "checkpoints")
    assert go_on(directory) == 1
    assert f"has no checkpoint to go on from: start_from={directory}" in log_of(directory)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EIO, "Input/output error"), r"last.ckpt: cannot read \(Input/output error\)"),
        (PermissionError(errno.EACCES, "Permission denied"), r"last.ckpt: cannot read \(Permission denied\)"),
        (MemoryError(), "last.ckpt: there is not enough memory to read it"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory to read it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_read_now_is_not_taken_for_broken(tmp_path, monkeypatch, error, words):
    (tmp_path / "checkpoints").mkdir()
    files = [tmp_path / "checkpoints" / name for name in ("last.ckpt", "previous.ckpt", "best.ckpt")]
    for file in files:
        file.write_bytes(b"whole")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(resume, "read_checkpoint", fail)
    with pytest.raises(UserError, match=words):
        resume.load_checkpoint(tmp_path)
    assert sorted((tmp_path / "checkpoints").iterdir()) == sorted(files)


STORED: dict[str, Any] = {
    "run_dir": "/a/run",
    "seed": 1,
    "data": {"path": "/d", "max_tokens": 10},
    "trainer": {"max_epochs": 6, "max_steps": -1},
    "callbacks": {"pictures": {"directory": "/a/run/alignments"}, "early_stopping": {"patience": 3}},
    "scheduler": {"total_steps": None},
}


def test_what_may_change_is_said():
    wanted = {"trainer": {"max_epochs": 12}, "data": {"path": "/e"}, "callbacks": {}}
    keys = ["trainer.max_epochs", "data.path", "callbacks.early_stopping"]
    config, lines = changes.apply_changes(STORED, wanted, keys, written=wanted)
    assert lines == [
        "callbacks.early_stopping.patience: 3 -> nothing",
        "data.path: /d -> /e",
        "trainer.max_epochs: 6 -> 12",
    ]
    assert config["data"]["path"] == "/e"
    assert changes.stretches_schedule(STORED, config)
    assert STORED["trainer"]["max_epochs"] == 6


def test_the_command_of_a_run_says_how_it_was_resumed(tmp_path):
    assert commands_of(tmp_path) is None
    typed = [
        "trainer.max_epochs=2",
        "data.columns=[a,b]",
        "data.path='/a/b-1.c'",
        "data.src_lang='no'",
        "name='1e5'",
    ]
    note_command(tmp_path, typed, resumes=False)
    for epochs in (3, 4):
        note_command(tmp_path, ["resume=RUN_DIR", f"++trainer.max_epochs={epochs}"], resumes=True)
    assert commands_of(tmp_path) == (
        "python scripts/train.py trainer.max_epochs=2 'data.columns=[a,b]' data.path=/a/b-1.c data.src_lang=no "
        "'name='\"'\"'1e5'\"'\"''; "
        "python scripts/train.py resume=RUN_DIR trainer.max_epochs=3; "
        "python scripts/train.py resume=RUN_DIR trainer.max_epochs=4"
    )


def test_a_logger_that_is_no_section_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config.yaml is broken: .*logger"):
        changes.check_stored(OmegaConf.create({"logger": "abc"}), tmp_path)


def test_what_validation_searches_by_cannot_change():
    with pytest.raises(
        UserError, match=r"decoding\.max_length cannot change in a run that goes on: null -> 5"
    ):
        changes.apply_changes(
            {"decoding": {"max_length": None}},
            {"decoding": {"max_length": 5}},
            ["decoding.max_length"],
            written={},
        )


@pytest.mark.parametrize(
    ("wanted", "key", "message"),
    [
        ({"seed": 2}, "seed", "seed cannot change in a run that goes on: 1 -> 2"),
        ({"data": {"max_tokens": 99}}, "data.max_tokens", "data.max_tokens cannot change"),
        ({"callbacks": {}}, "callbacks", "cannot choose callbacks anew as a whole"),
        ({"data": {"path": "/d"}}, "data", "cannot choose data anew as a whole"),
        ({}, "attention", "attention cannot change"),
        ({"trainer": {"max_epoch": 9}}, "trainer.max_epoch", "did you mean trainer.max_epochs"),
        ({"trainer": {"max_epochs": 9, "max_steps": -1}}, "trainer", "cannot choose trainer anew as a whole"),
    ],
)
def test_what_would_make_another_run_is_refused(wanted, key, message):
    with pytest.raises(UserError, match=message):
        changes.apply_changes(STORED, wanted, [key], written=wanted)


def test_what_refers_to_a_changed_setting_follows_it_unless_it_went_its_own_way():
    written = {
        "metrics": {"bleu": {"lowercase": True}},
        "callbacks": {
            "checkpoint": {"monitor": "val/chrf"},
            "early_stopping": {"monitor": "${callbacks.checkpoint.monitor}"},
            "score": {"metrics": {"bleu": "${oc.select:metrics.bleu,null}"}},
        },
    }
    wanted = {"metrics": written["metrics"], "callbacks": {"checkpoint": {"monitor": "val/chrf"}}}
    keys = ["callbacks.checkpoint.monitor", "metrics.bleu.lowercase"]

    def stored(stopping):
        callbacks = {"checkpoint": {"monitor": "val/bleu"}, "early_stopping": {"monitor": stopping}}
        callbacks["score"] = {"metrics": {"bleu": {"lowercase": False}}}
        return {"metrics": {"bleu": {"lowercase": False}}, "callbacks": callbacks}

    config, lines = changes.apply_changes(stored("val/bleu"), wanted, keys, written=written)
    assert config["callbacks"]["early_stopping"]["monitor"] == "val/chrf"
    assert "callbacks.early_stopping.monitor: val/bleu -> val/chrf" in lines
    # What validations are compared by stays.
    assert config["callbacks"]["score"]["metrics"]["bleu"]["lowercase"] is False
    assert config["metrics"]["bleu"]["lowercase"] is True
    own = {"callbacks": {"score": {"metrics": written["metrics"]}}}
    with pytest.raises(UserError, match=r"callbacks\.score\.metrics\.bleu\.lowercase cannot change"):
        changes.apply_changes(stored("x"), own, ["callbacks.score.metrics.bleu.lowercase"], written={})
    with pytest.raises(UserError, match=r"callbacks\.score\.metrics\.macro_f1 cannot change"):
        changes.apply_changes(
            stored("x"),
            {"callbacks": {"score": {"metrics": {"macro_f1": 1}}}},
            ["callbacks.score.metrics.macro_f1"],
            written={},
        )
    config, _ = changes.apply_changes(stored("val/loss"), wanted, keys, written=written)
    assert config["callbacks"]["early_stopping"]["monitor"] == "val/loss"


def ended(wait_count=0, seconds=0.0, monitor="val/bleu"):
    progress = {"epoch_progress": {"current": {"completed": 1}}}
    progress["epoch_loop.batch_progress"] = {"current": {"completed": 0}}
    progress["epoch_loop.val_loop.batch_progress"] = {"total": {"ready": 0}}
    stopping = {f"EarlyStopping{ {'monitor': monitor, 'mode': 'max'} }": {"wait_count": wait_count}}
    timer = {"Timer": {"time_elapsed": {"train": seconds}}}
    return {"loops": {"fit_loop": progress}, "global_step": 5, "callbacks": stopping | timer}


def test_a_group_that_is_chosen_anew_takes_its_defaults_from_the_stored_run():
    stored = {
        "data": {"tgt_lang": "zh", "tokenizer": {"lowercase": True}},
        "decoding": {"max_length_ratio": 3.5},
        "metrics": {},
    }
    cfg = compose(["resume=RUN", "name=other", "metrics=translation", "decoding=greedy"])
    changes.settle_defaults(cfg, stored, ["resume", "metrics", "decoding"])
    wanted = OmegaConf.to_container(cfg.metrics, resolve=True)
    assert (wanted["bleu"]["tokenize"], wanted["bleu"]["lowercase"]) == ("zh", True)
    assert (cfg.decoding.beam_size, cfg.decoding.max_length_ratio) == (1, 3.5)
    cfg = compose(["resume=RUN", "name=other", "data.tgt_lang=de", "decoding.max_length_ratio=2"])
    changes.settle_defaults(cfg, stored, ["data.tgt_lang", "decoding.max_length_ratio"])
    assert (cfg.data.tgt_lang, cfg.decoding.max_length_ratio) == ("de", 2)


@pytest.mark.parametrize(
    ("checkpoint", "patience", "reason"),
    [
        (ended(), 0, None),
        (ended(wait_count=1), 0, "patience=0 is spent"),
        (ended(wait_count=2), 3, None),
        (ended(wait_count=3), 3, "patience=3 is spent"),
        (ended(wait_count=3, monitor="val/chrf"), 3, None),
        (ended(seconds=59.0), 9, None),
        (ended(seconds=61.0), 9, "max_time=00:00:01:00 is spent"),
    ],
)
def test_why_a_run_has_ended(checkpoint, patience, reason):
    config = {
        "trainer": {"max_epochs": 9, "max_steps": -1, "max_time": "00:00:01:00"},
        "callbacks": {"early_stopping": {"monitor": "val/bleu", "mode": "max", "patience": patience}},
    }
    found = resume.why_finished(checkpoint, config)
    assert found is None if reason is None else reason in found


def test_a_run_directory_that_moved_takes_its_paths_along():
    config = changes.move_paths(STORED | {"near": "/a/runner", "list": ["/a/run/x"]}, "/a/run", "/b")
    assert config["callbacks"]["pictures"]["directory"] == "/b/alignments"
    assert (config["run_dir"], config["near"], config["list"]) == ("/b", "/a/runner", ["/b/x"])


def test_a_stored_configuration_is_resolved(tmp_path):
    hidden = "${oc.create:{_target_: shutil.copyfile}}"
    stored = {"model": {"_target_": "x"}, "data": {}, "callbacks": {"score": {"bleu": [hidden]}}}
    (tmp_path / "config.yaml").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"may compute no setting: callbacks.score.bleu="):
        load_config(tmp_path)


def test_what_is_no_run_to_go_on_with_is_said(tmp_path):
    refused(
        run_composed("train", f"resume={tmp_path}"), f"{tmp_path} is no run to resume: it has no config.yaml"
    )
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"one run is resumed at a time, without -m"):
        arguments_for_training(["-m", f"resume={tmp_path},b"])


def test_hydra_is_told_of_keys_and_choices_that_the_default_choices_lack(tmp_path):
    stored = {"logger": {"csv": {}, "nothing": {}}, "choices": {"callbacks": "minimal", "trainer": "../x"}}
    (tmp_path / "config.yaml").write_text(json.dumps(stored | {"model": {"_target_": "x"}, "data": {}}))
    quoted = tmp_path / "it's"
    quoted.mkdir()
    shutil.copy(tmp_path / "config.yaml", quoted)
    assert arguments_for_training([quote_argument(f"resume={quoted}", {})])[:2] == [
        "logger=[csv]",
        "callbacks=minimal",
    ]
    given = [f"resume={tmp_path}", "data.path=x", "decoding=greedy", "~callbacks.early_stopping"]
    forced = [given[0], "++data.path=x", *given[2:]]
    assert arguments_for_training(given) == ["logger=[csv]", "callbacks=minimal", *forced]
    assert arguments_for_training([*given, "logger=none"]) == ["callbacks=minimal", *forced, "logger=none"]
    for unchanged in (["data.path=x"], ["resume=null", "data.path=x"]):
        assert arguments_for_training(unchanged) == unchanged
