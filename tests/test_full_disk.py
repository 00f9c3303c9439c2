"""Where nothing can be written, one line says so, and what was there before stays whole."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt import plotting
from nmt.atomic import write_together
from nmt.commands.entry import LogFile
from nmt.data.corpus import read_files
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError, WriteError
from nmt.run.paths import EVALUATIONS
from nmt.training import scoring
from nmt.training.callbacks import AtomicCheckpointIO, TensorBoard
from nmt.training.callbacks.tensorboard import EventFile
from tests.commands import refused, run_composed
from tests.commands import run as command
from tests.small import TINY, copied, digests, full_disk, lay, over

NOT_ROOT = pytest.mark.skipif(
    getattr(os, "geteuid", int)() == 0, reason="the superuser may read and write everything"
)


# Each case: the command, what it is to write (each is there before), and which of them the line names.
OUTPUTS = {
    "translations": ("translate", ["output=DIR/out"], "DIR/out"),
    "alignments": ("translate", ["alignments=DIR/links"], "DIR/links"),
    "heatmaps": ("translate", ["heatmaps=DIR"], "DIR/line_00001.png"),
    "page": ("translate", ["page=DIR/page.html"], "DIR/page.html"),
    "links": ("align", ["output=DIR/links"], "DIR/links"),
    "page of links": ("align", ["page=DIR/page.html"], "DIR/page.html"),
    "scores": ("evaluate", ["output=DIR", "num_bootstrap=0"], "DIR/hypotheses.txt"),
    "comparison": ("compare", ["output=DIR", "num_bootstrap=10", "num_trials=10"], "DIR/bleu_by_length.png"),
}


SLOW_OUTPUTS = ("alignments", "heatmaps", "page as a picture", "page of links")


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.slow] if each in SLOW_OUTPUTS else []) for each in OUTPUTS]
)
def test_a_full_disk_leaves_what_was_there(case, untrained_scored, tmp_path):
    name, arguments, named = OUTPUTS[case]
    folder = tmp_path / "out"
    given = [*over(name, untrained_scored, folder), *(each.replace("DIR", str(folder)) for each in arguments)]
    folder.mkdir()
    assert run_composed(name, *given).status == 0
    before = digests(folder)
    assert before
    for file in folder.iterdir():  # another content of the same names
        file.write_text("old\n")
    before = digests(folder)
    with full_disk(10):
        ended = run_composed(name, *given)
    refused(ended, f"{named.replace('DIR', str(folder))}: cannot write (File too large): make room there")
    assert digests(folder) == before


def test_scores_that_cannot_be_written_are_printed(untrained_scored, tmp_path):
    run = copied(untrained_scored, tmp_path)
    (run / EVALUATIONS).write_text("in the way of the folder\n")
    ended = run_composed("evaluate", f"run={run}", "num_bootstrap=0")
    refused(ended, f"{run / EVALUATIONS}/num_bootstrap-0/", "cannot write", "output=DIR")
    assert "BLEU" in ended.out


def test_scores_and_translations_are_written_both_or_not_at_all(tmp_path):
    texts = {tmp_path / "a": "short\n", tmp_path / "b": "long\n" * 100}
    for file in texts:
        file.write_text("old\n")
    with full_disk(50), pytest.raises(WriteError, match=r"b: cannot write"):
        write_together(texts)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "old\n", "b": "old\n"}
    write_together(texts)
    assert {file: file.read_text() for file in tmp_path.iterdir()} == texts


MOMENTS = {
    "before the tokenizer": (Tokenizer, "save", 1, "joint.model: cannot write (File too large)"),
    "before an event": (EventFile, "write", 5, "events.out.tfevents"),
    "before a picture": (plotting, "to_png", 1, ".png: cannot write (File too large)"),
    "before the best checkpoint": (AtomicCheckpointIO, "save_checkpoint", 1, "best.ckpt: cannot write (File"),
    "before a later checkpoint": (AtomicCheckpointIO, "save_checkpoint", 3, ".ckpt: cannot write (File too large)"),
    "before the scores": (scoring, "write_scores", 1, "hypotheses.txt: cannot write (File too large)"),
}  # fmt: skip


SLOW_MOMENTS = ("before the best checkpoint", "before the scores")


@pytest.mark.parametrize(
    "moment",
    [pytest.param(each, marks=[pytest.mark.slow] if each in SLOW_MOMENTS else []) for each in MOMENTS],
)
def test_a_disk_that_fills_during_training_ends_it_in_one_line(moment, tmp_path, small_cache, monkeypatch):
    """What was whole stays so, and when there is room the run goes on to its scores."""
    resource = pytest.importorskip("resource")
    owner, name, number, fragment = MOMENTS[moment]
    run, limits = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    original, calls, before = getattr(owner, name), iter(range(1, 10_000)), {}

    def filled(*arguments, **keywords):
        if next(calls) == number:
            before.update(digests(run))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        return original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, filled)
    try:
        ended = run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={run}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(ended, fragment)
    after = digests(run)
    assert before.items() <= after.items()
    assert not [each for each in after if each.endswith(".tmp")]
    checkpoints = list(run.glob("checkpoints/*.ckpt"))
    for file in checkpoints:
        torch.load(file, weights_only=True)
    assert (f"then go on with resume={run}" in ended.err) == bool(checkpoints)
    if checkpoints:
        monkeypatch.setattr(owner, name, original)
        ended = run_composed("train", f"resume={run}")
        assert ended.status == 0, ended.err
        assert "BLEU" in ended.out
        assert (run / "metrics.json").exists()


def test_an_event_is_in_the_file_as_a_whole_or_not_at_all(tmp_path):
    """Those after one that did not fit are read again, where TensorBoard would stop at half an event."""
    logger = TensorBoard(save_dir=str(tmp_path), name="", version="")
    logger.log_metrics({"small": 1.0}, step=1)
    with full_disk(1000):
        with pytest.raises(WriteError, match=r"tfevents.*File too large"):
            logger.experiment.add_text("large", "x" * 2000, 2)
        logger.log_metrics({"small": 2.0}, step=3)
        many = {f"small_{number}": 0.0 for number in range(99)}
        with pytest.raises(WriteError, match=r"tfevents.*File too large"):  # and not: you tried to log 0.0
            logger.log_metrics(many, step=4)
        logger.finalize("failed")
    logger.log_metrics({"small": 5.0}, step=100)
    logger.finalize("success")
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("small")
    assert [(event.step, event.value) for event in events] == [(1, 1.0), (3, 2.0), (100, 5.0)]
    assert not list(tmp_path.glob("hparams*"))


def test_a_log_file_on_a_full_disk_is_said_once(tmp_path, capsys):
    file = LogFile(tmp_path / "train.log")
    (tmp_path / "config.yaml").touch()
    record = logging.LogRecord("name", logging.INFO, "path", 1, "message", None, None)
    with full_disk(10):
        for _ in range(3):
            file.emit(record)
    file.close()
    [line] = capsys.readouterr().err.splitlines()
    assert "warning: " in line
    assert f"{tmp_path / 'train.log'}: cannot write (File too large): make room there" in line


def test_a_full_disk_leaves_no_half_cache_or_tokenizer(untrained, tmp_path):
    lay(tmp_path / "data", {"train.jsonl": '{"en": "a b", "vi": "c d"}\n' * 20_000})
    tokenizer = Tokenizer.load(untrained / "tokenizer")
    tokenizer.save(tmp_path / "tokenizer")
    before = digests(tmp_path)
    with full_disk(1000):
        with pytest.raises(UserError, match=r"cannot write the cache .*set data.cache_dir"):
            read_files(tmp_path / "data", src_lang="en", tgt_lang="vi", cache_dir=tmp_path / "cache")
        with pytest.raises(UserError, match=r"joint\.model: cannot write"):
            tokenizer.save(tmp_path / "tokenizer")
    assert {name: each for name, each in digests(tmp_path).items() if not name.endswith(".lock")} == before


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
@pytest.mark.parametrize("name", ["translate", "align"])
def test_standard_output_that_is_full_is_said(name, untrained, tmp_path, monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "__stdout__", full)
        ended = command(name, *over(name, untrained, tmp_path / "out"), stdout=full)
        refused(ended, "standard output: cannot write (No space left on device)")


@NOT_ROOT
def test_checkpoints_that_may_not_be_read_are_named(untrained, tmp_path):
    run = copied(untrained, tmp_path)
    (run / "checkpoints/best.ckpt").chmod(0)
    refused(run_composed("translate", f"run={run}", stdin=b"a\n"), "best.ckpt")


@pytest.fixture
def locked(untrained_scored, tmp_path) -> Iterator[Path]:
    """A run directory that may be read and not written to."""
    run = copied(untrained_scored, tmp_path)
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    yield run
    for folder in folders:
        folder.chmod(0o700)


@NOT_ROOT
@pytest.mark.parametrize("name", ["translate", "align", "evaluate", "compare"])
def test_a_run_that_is_read_only_is_read_and_named_where_it_is_to_be_written_to(name, locked, tmp_path):
    quick = {"evaluate": ["num_bootstrap=0"], "compare": ["num_bootstrap=10", "num_trials=10"]}.get(name, [])
    given = [*over(name, locked, tmp_path / "out"), *quick]
    place = {"translate": "output=DIR/out", "align": "output=DIR/out"}.get(name, "output=DIR")
    for folder, status in ((tmp_path / "out", 0), (locked, 1)):
        folder.mkdir(exist_ok=True)
        ended = run_composed(name, *given, place.replace("DIR", str(folder)))
        assert ended.status == status, ended.err
    refused(ended, f"{locked}/", "cannot write (Permission denied): choose a place that can be written to")


@NOT_ROOT
def test_training_names_a_run_directory_that_is_read_only(locked, small_cache):
    refused(
        run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={locked}"),
        str(locked),
        "denied",
    )
    refused(run_composed("train", f"resume={locked}"), str(locked), "denied")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipe has a name here")
def test_what_is_no_plain_file_is_written_to_and_stays(untrained, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ended = run_composed(
        "translate", f"run={untrained}", f"output={tmp_path / 'pipe'}", stdin=b"the cat sleeps .\n"
    )
    assert ended.status == 0, ended.err
    assert os.read(reader, 10_000).count(b"\n") == 1
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
