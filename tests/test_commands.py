"""The commands as a person runs them: one small training run, then every verb over its directory."""

import ast
import io
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt import alignment, plotting
from nmt.checkpoint import checkpoint_file
from nmt.commands import entry
from nmt.commands.entry import COMMANDS
from nmt.decoding import DecodingSettings
from nmt.lines import decode_lines
from nmt.run import provenance
from nmt.run.provenance import commit
from nmt.run.run import Run
from nmt.training.callbacks import TensorBoard
from tests.commands import ROOT, call_unread, last_of_each, refused, run, run_composed, unread

TINY = [
    "data.num_train=200",
    "data.num_val=20",
    "data.num_test=20",
    "data.max_words=12",
    "data.tokenizer.vocab_size=300",
    "model.size=32",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=2",
    "trainer.enable_progress_bar=false",
    "callbacks.alignments.num_sentences=2",
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def run_dir(workspace) -> Path:
    """A tiny run of the main job."""
    directory = workspace / "run"
    ended = run("train", *TINY, f"run_dir={directory}", f"data.cache_dir={workspace / 'cache'}")
    assert ended.status == 0, ended.err
    assert "BLEU" in ended.out
    (workspace / "said").write_text(ended.out, "utf-8")
    return directory


def test_a_command_in_this_process_closes_no_handler_that_was_there_before():
    closed = []
    handler = logging.NullHandler()
    handler.close = lambda: closed.append(handler)
    assert run("translate", "run=nowhere").status == 1
    assert not closed


def test_the_end_says_what_was_trained_how_long_how_well_and_where_it_is(run_dir, workspace):
    said, place = (workspace / "said").read_text("utf-8"), re.escape(str(run_dir))
    for pattern in (
        r"trained  RecurrentEncoder \+ RecurrentDecoder, [\d,]{5,} parameters: 2 epochs, \d+ steps",
        r"time     0:\d\d:\d\d over [\d,]+ target pieces, [\d,]+ a second",
        r"ended    trainer\.max_epochs=2 is reached",
        r"memory   \d\.\d\d GiB at most",
        rf"run      {place}\n",
        rf"test of {place}",
        r"source     \S.*\noutput     .*\nreference  \S.*",
        rf"next       python scripts/evaluate\.py run={place}",
        rf"           python scripts/translate\.py run={place} input=FILE",
        rf"           tensorboard --samples_per_plugin images=200 --logdir {place}",
    ):
        assert re.search(pattern, said), (pattern, said)


def test_each_validation_is_a_line_in_the_terminal_and_in_the_log(run_dir, workspace):
    said, logged = (workspace / "said").read_text("utf-8"), (run_dir / "train.log").read_text("utf-8")
    line = r"epoch {}, step [\d,]+: loss \d+\.\d+, BLEU \d+\.\d+, AER \d\.\d+; best BLEU .* at step .*; [\d,]+ pieces/s"
    for epoch in (1, 2):
        assert re.search(line.format(epoch), said)
        assert re.search(line.format(epoch), logged)
    assert "minute left" in logged
    assert logged.count(" pieces/s") == 2


def test_a_run_directory_holds_what_the_contract_names(run_dir):
    names = {str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.json", "hypotheses.txt", "train.log", "validations.json"} <= names
    assert {"checkpoints/best.ckpt", "checkpoints/last.ckpt", "tokenizer/joint.model"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    pictures = sorted(Path(name).suffix for name in names if name.startswith("alignments/"))
    assert pictures == [".gif"] * 2 + [".html", ".npz"] + [".png"] * 4  # 2 sentences, 2 validations
    scores = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    assert scores["split"] == "test"
    assert scores["num_sentences"] == 20
    for metric in ("bleu", "chrf", "ter"):
        assert set(scores[metric]) == {"score", "signature", "ci"}
        assert "version:" in scores[metric]["signature"]
    assert 0 <= scores["aer"]["score"] <= 1
    assert len((run_dir / "hypotheses.txt").read_text("utf-8").split("\n")) == 21


def test_the_overview_has_the_first_alignment_whatever_its_row(tmp_path):
    writer = TensorBoard(save_dir=str(tmp_path), name="", version="").experiment
    for step in range(2):
        for row in (3, 7):
            writer.add_image(
                f"val/alignment/{row}",
                np.full((1, 1, 3), 100 * step + row, np.uint8),
                step,
                dataformats="HWC",
            )
    writer.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0}).Reload()
    found = [each.encoded_image_string for each in events.Images("overview/word_alignment")]
    assert found == [each.encoded_image_string for each in events.Images("val/alignment/3")]
    assert len(set(found)) == 2


def test_tensorboard_has_the_tags_of_the_contract(run_dir):
    events = EventAccumulator(str(run_dir), size_guidance={"images": 0}).Reload()
    tags = events.Tags()
    assert {
        "train/loss",
        "train/tokens_per_second",
        "train/lr",
        "train/grad_norm",
        "train/padding",
        "train/memory",
        "val/loss",
        "val/perplexity",
        "val/bleu",
        "val/chrf",
        "val/aer",
        "val/attention/entropy",
        "val/attention/coverage",
        "test/bleu",
    } <= set(tags["scalars"])
    first = ["overview/train_loss", "overview/val_aer", "overview/val_bleu"]
    assert sorted(tags["scalars"])[:3] == first  # TensorBoard sorts by name
    for tag in first:
        assert values(events, tag) == values(events, tag.removeprefix("overview/").replace("_", "/", 1))
    assert sorted(tags["images"])[0] == "overview/word_alignment"
    images = [tag for tag in tags["images"] if tag.startswith("val/alignment/")]
    assert len(images) == 2
    assert all(len(events.Images(tag)) == 2 for tag in images)
    assert "val/translations/text_summary" in tags["tensors"]


@pytest.fixture(scope="module")
def events(run_dir) -> EventAccumulator:
    return EventAccumulator(str(run_dir), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def values(events: EventAccumulator, tag: str) -> list[float]:
    return [each.value for each in events.Scalars(tag)]


def test_what_was_shown_last_is_what_the_last_checkpoint_does(run_dir, events):
    loaded = Run.load(run_dir, checkpoint="last", device="cpu")
    val = loaded.split("val")
    scores, translations = loaded.score(val, DecodingSettings(beam_size=1), num_bootstrap=0)
    for tag, expected in (("bleu", scores["bleu"]), ("chrf", scores["chrf"]), ("aer", scores["aer"])):
        assert values(events, f"val/{tag}")[-1] == pytest.approx(expected["score"], rel=1e-5)
    weights = [loaded.choose_head(each, None, None) for _, each in loaded.attentions(val["src"], val["tgt"])]
    for name, expected in alignment.statistics(weights).items():
        assert values(events, f"val/attention/{name}")[-1] == pytest.approx(expected, rel=1e-4), name
    shown = events.Tensors("val/translations/text_summary")[-1].tensor_proto.string_val[0].decode()
    expected = [
        f"| {row} | {val[row]['src']} | {val[row]['tgt']} | {translations[row].text} |" for row in range(5)
    ]
    assert shown.splitlines()[2:] == expected


def test_a_picture_shows_the_weights_of_its_step_and_sentence(run_dir, events):
    loaded = Run.load(run_dir, checkpoint="last", device="cpu")
    val = loaded.split("val")
    for tag in [tag for tag in events.Tags()["images"] if tag.startswith("val/alignment/")]:
        row, shown = int(tag.rpartition("/")[2]), events.Images(tag)[-1]
        [weights] = loaded.align([val[row]["src"]], [val[row]["tgt"]])
        figure = plotting.heatmap(
            weights,
            val[row]["src"].split(),
            val[row]["tgt"].split(),
            title=f"sentence {row}, step {shown.step}",
            gold=alignment.parse_talp(val[row]["alignment"])[0],
        )
        picture = np.asarray(Image.open(io.BytesIO(shown.encoded_image_string)))
        difference = np.abs(picture.astype(int) - plotting.to_array(figure))
        assert (difference > 3).mean() < 1e-3, tag  # a digit may round otherwise
        file = run_dir / "alignments" / f"val_{row:04d}_step_{shown.step:06d}.png"
        assert (np.abs(np.asarray(Image.open(file))[..., :3].astype(int) - picture) > 3).mean() < 1e-3


def test_what_is_said_at_the_end_is_what_was_logged_and_written(run_dir, workspace, events):
    said = (workspace / "said").read_text("utf-8")
    scores = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    for name in ("bleu", "chrf", "ter", "aer"):
        assert values(events, f"test/{name}") == pytest.approx([scores[name]["score"]])
    aer = scores["aer"]
    assert f"AER  {aer['score']:.3f}  precision {aer['precision']:.3f}  recall {aer['recall']:.3f}\n" in said
    loaded = Run.load(run_dir, device="cpu")
    test = loaded.split("test")
    links = [alignment.links_from_weights(each) for each in loaded.align(test["src"], test["tgt"])]
    sures, possibles = zip(*map(alignment.parse_talp, test["alignment"]), strict=True)
    of_links = alignment.score_alignments(links, sures, possibles)
    expected = {"score": of_links.aer, "precision": of_links.precision, "recall": of_links.recall}
    assert aer == pytest.approx(expected)
    bleu = events.Scalars("val/bleu")
    best = max(bleu, key=lambda each: each.value)
    assert (
        f"scores   val/bleu {best.value:.4g} at step {best.step:,} (best), {bleu[-1].value:.4g} (last)"
        in said
    )
    assert values(events, "val/perplexity") == pytest.approx(np.exp(values(events, "val/loss")), rel=1e-5)
    found = re.search(r"time     0:(\d\d):(\d\d) over ([\d,]+) target pieces, ([\d,]+) a second", said)
    assert found
    minutes, seconds, pieces, rate = (int(each.replace(",", "")) for each in found.groups())
    assert pieces / rate == pytest.approx(60 * minutes + seconds, abs=0.6)
    assert scores["training"]["tokens_per_second"] == pytest.approx(rate, abs=1)
    assert scores["training"]["command"].startswith("python scripts/train.py ")
    assert scores["training"]["machine"]["torch"] == torch.__version__
    assert scores["training"]["commit"] == commit()


def test_a_run_records_the_commit_that_it_was_started_at(workspace, monkeypatch):
    directory = workspace / "at_a_commit"
    after_training = directory / "checkpoints" / "last.ckpt"
    monkeypatch.setattr(
        provenance.subprocess,
        "run",
        lambda *_, **__: SimpleNamespace(stdout="later\n" if after_training.exists() else "started\n"),
    )
    given = [*TINY, f"data.cache_dir={workspace / 'cache'}", "trainer.max_epochs=1", "decoding=greedy"]
    ended = run_composed("train", *given, "callbacks.alignments.num_sentences=0", f"run_dir={directory}")
    assert ended.status == 0, ended.err
    assert json.loads((directory / "metrics.json").read_text("utf-8"))["training"]["commit"] == "started"


def test_a_run_on_lower_cased_text_reads_any_case_and_is_scored_without(run_dir, workspace):
    directory = workspace / "lower"
    given = [*TINY, f"data.cache_dir={workspace / 'cache'}", "data.tokenizer.lowercase=true"]
    given += ["trainer.max_epochs=1", "callbacks.alignments.num_sentences=0", "decoding=greedy"]
    refused(
        run_composed(
            "train", *given, "metrics.chrf.lowercase=false", f"run_dir={workspace / 'cased_scores'}"
        ),
        "metrics.chrf counts case: give metrics.chrf.lowercase=true",
    )
    ended = run_composed("train", *given, f"run_dir={directory}")
    assert ended.status == 0, ended.err
    scores = json.loads((directory / "metrics.json").read_text("utf-8"))
    assert all("case:lc" in scores[name]["signature"] for name in ("bleu", "chrf"))
    found = run_composed("translate", f"run={directory}", stdin=b"the cat sleeps .\nThe CAT Sleeps .\n").out
    one, other = found.splitlines()
    assert one == other != ""
    cased, again = "metrics.bleu.lowercase=false", f"output={workspace / 'again'}"
    says = "metrics.bleu counts case: give metrics.bleu.lowercase=true"
    refused(run_composed("evaluate", f"run={directory}", cased), says)
    refused(run_composed("evaluate", f"run={directory}", f"output={run_dir}"), "is the directory of a run")
    assert run_composed("evaluate", f"run={directory}", again, "decoding=greedy").status == 0
    found = json.loads((workspace / "again" / "metrics.json").read_text("utf-8"))
    assert [found[name] for name in ("bleu", "chrf")] == [scores[name] for name in ("bleu", "chrf")]
    runs = f"runs=[{run_dir},{directory}]"  # the other's text has its case
    refused(run_composed("compare", runs), str(run_dir), str(directory), "bleu.lowercase", "metrics=")
    both = [runs, "metrics=translation"]  # both are scored without
    refused(run_composed("compare", *both, cased), says)
    ended = run_composed(
        "compare", *both, "num_bootstrap=20", "num_trials=20", f"output={workspace / 'both'}"
    )
    assert ended.status == 0, ended.err
    rows = json.loads((workspace / "both" / "comparison.json").read_text("utf-8"))["runs"]
    assert all("case:lc" in row[f"{name}_signature"] for row in rows for name in ("bleu", "chrf"))
    assert rows[1]["bleu"] == scores["bleu"]["score"]
    cased = workspace / "cased"
    shutil.copytree(directory, cased)
    config = (cased / "config.yaml").read_text("utf-8")
    (cased / "config.yaml").write_text(config.replace("lowercase: true", "lowercase: false"), "utf-8")
    together = run_composed("translate", f"run=[{directory},{cased}]", stdin=b"the cat sleeps .\n")
    refused(together, "have different tokenizers")


def test_evaluate_repeats_the_scores_of_training_also_after_a_move(run_dir, workspace):
    expected = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    moved = workspace / "moved"
    shutil.copytree(run_dir, moved)
    (moved / "metrics.json").unlink()
    ended = run("evaluate", f"run={moved}")
    assert ended.status == 0, ended.err
    found = json.loads((moved / "metrics.json").read_text("utf-8"))
    for metric in ("bleu", "chrf", "ter", "aer"):
        assert found[metric] == expected[metric]
    assert (moved / "hypotheses.txt").read_bytes() == (run_dir / "hypotheses.txt").read_bytes()
    quick = ["split=val", "decoding=greedy", "num_bootstrap=0", "data=grammar", "data.num_val=2"]
    ended = run_composed("evaluate", f"run={moved}", f"output={moved}/", *quick)
    assert ended.status == 0, ended.err
    [file] = (moved / "evaluations").glob("*/metrics_val.json")
    assert str(file) in ended.out
    scores = json.loads(file.read_text("utf-8"))
    assert (scores["split"], scores["data"]["num_val"]) == ("val", 2)
    assert "data" not in found
    assert scores["bleu"]["ci"] is None


def files_though_unread(run_dir: Path, folder: Path) -> list[str]:
    return [f"run={run_dir}", f"alignments={folder / 'links'}", f"heatmaps={folder / 'pictures'}"]


def assert_whole(folder: Path) -> None:
    assert (folder / "links").read_text("utf-8").count("\n") == 1
    assert list((folder / "pictures").glob("*.png"))


def test_translate_writes_its_files_though_nobody_reads_its_lines(run_dir, tmp_path):
    arguments = files_though_unread(run_dir, tmp_path)
    with unread() as stdout:
        ended = run_composed("translate", *arguments, stdin=b"the cat sleeps .\n", stdout=stdout)
    assert ended.status == 0, ended.err
    assert_whole(tmp_path)


@pytest.mark.slow
def test_a_process_writes_its_files_though_nobody_reads_its_lines(run_dir, tmp_path):
    status, said = call_unread(
        "translate",
        *files_though_unread(run_dir, tmp_path),
        stdin=b"the cat sleeps .\n",
        PYTHONUNBUFFERED="1",
    )
    assert (status, "Traceback" in said) == (0, False), said
    assert_whole(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("buffering", ["", "1"])
def test_training_goes_on_when_nobody_reads_what_it_prints(buffering, workspace):
    """As in `train.py … | head`, which ends before the run does."""
    directory = workspace / f"unread{buffering}"
    status, said = call_unread(
        "train",
        *(each for each in TINY if each != "trainer.enable_progress_bar=false"),
        *("trainer.max_epochs=1", "callbacks.alignments.num_sentences=0", "decoding=greedy"),
        *(f"data.cache_dir={workspace / 'cache'}", f"run_dir={directory}"),
        PYTHONUNBUFFERED=buffering,
    )
    assert (status, "Traceback" in said) == (0, False), said
    assert (directory / "metrics.json").exists()


def test_translate_gives_one_line_for_each_line(run_dir, workspace):
    lines = [
        "the old teacher reads a book .",
        "",
        "   ",
        "x" * 80,
        "ß 😀 \u2028 tab\there .",
        "the cat sleeps .",
    ]
    text = "\n".join(lines).encode()  # the last line without its line feed
    ended = run("translate", f"run={run_dir}", "decoding=greedy", stdin=text)
    assert ended.status == 0, ended.err
    out = ended.out.split("\n")
    assert len(out) == len(lines) + 1
    assert out[1] == out[2] == out[-1] == ""
    (workspace / "in.txt").write_bytes(text + b"\n")
    ended = run_composed(
        "translate",
        f"run={run_dir}",
        "decoding=greedy",
        f"input={workspace / 'in.txt'}",
        f"output={workspace / 'out.txt'}",
        f"alignments={workspace / 'out.align'}",
        f"heatmaps={workspace / 'pictures'}",
    )
    assert ended.status == 0, ended.err
    assert ended.out == ""
    assert (workspace / "out.txt").read_text("utf-8").split("\n") == out
    alignments = (workspace / "out.align").read_text("utf-8").split("\n")
    assert len(alignments) == len(lines) + 1
    for line, translation, links in zip(lines, out, alignments, strict=False):
        for link in links.split():
            i, j = map(int, link.split("-"))
            assert i < len(line.split())
            assert j < len(translation.split())
    assert (workspace / "pictures" / "line_00001.png").is_file()


def test_translate_gives_the_n_best(run_dir):
    text = b"the old teacher reads a book .\nthe cat sleeps .\n"
    ended = run_composed("translate", f"run={run_dir}", "num_best=3", stdin=text)
    assert ended.status == 0, ended.err
    rows = [line.split(" ||| ") for line in ended.out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    for group in (rows[:3], rows[3:]):
        scores = [float(row[2]) for row in group]
        assert scores == sorted(scores, reverse=True)


def damaged(run_dir: Path, workspace: Path, name: str) -> Path:
    copy = workspace / f"damaged_{name}"
    shutil.copytree(run_dir, copy)
    return copy


def test_translate_refuses_bad_input(run_dir, workspace):
    refused(run_composed("translate", f"run={run_dir}", stdin=b"fine\n\xff\xfe\n"), "line 2", "UTF-8")
    refused(
        run_composed("translate", f"run={run_dir}", stdin="fine\n".encode("utf-16-le")), "line 1", "NUL byte"
    )
    refused(run_composed("translate", f"run={run_dir}", f"input={ROOT}"), str(ROOT))
    kept = workspace / "kept.txt"
    kept.write_text("good\n")
    refused(run_composed("translate", f"run={run_dir}", f"output={kept}", stdin=b"\xff\n"), "line 1")
    assert kept.read_text() == "good\n"


def test_a_byte_order_mark_is_not_translated():
    assert list(decode_lines(io.BytesIO("\ufeffone\r\ntwo".encode()), "standard input")) == ["one", "two"]


def test_a_finished_run_that_has_lost_its_scores_is_scored_again_with_what_training_cost(run_dir, workspace):
    copy = workspace / "unscored"
    shutil.copytree(run_dir, copy)
    (copy / "metrics.json").unlink()
    assert run_composed("train", f"resume={copy}").status == 0
    found, expected = (json.loads((each / "metrics.json").read_text()) for each in (copy, run_dir))
    clock = ("seconds", "tokens_per_second")  # which went on a little after the last checkpoint
    for name in clock:
        assert found["training"].pop(name) == pytest.approx(expected["training"].pop(name), rel=0.5)
    assert found["training"].pop("machine") | {"load": 0} == expected["training"].pop("machine") | {"load": 0}
    assert found["training"] == expected["training"]
    assert found["bleu"] == expected["bleu"]
    rows = [each.Reload().Scalars("test/bleu") for each in map(EventAccumulator, map(str, (copy, run_dir)))]
    assert [(row.step, row.value) for row in rows[0]] == 2 * [(row.step, row.value) for row in rows[1]]


def test_a_run_without_its_best_checkpoint_is_read_from_its_last(run_dir, workspace, caplog):
    copy = damaged(run_dir, workspace, "best")
    (copy / "checkpoints" / "best.ckpt").unlink()
    last = copy / "checkpoints" / "last.ckpt"
    warning = f"{copy} has no best.ckpt yet: its last checkpoint is taken"
    assert checkpoint_file(copy, "best") == last
    assert caplog.messages == [warning]
    assert checkpoint_file(copy, "last") == checkpoint_file(copy, str(last)) == last
    assert caplog.messages == [warning]
    last.unlink()
    refused(run_composed("evaluate", f"run={copy}"), "best.ckpt: no such checkpoint")
    refused(run_composed("evaluate", f"run={copy}", "checkpoint=last"), "last.ckpt: no such checkpoint")


def test_a_run_that_ends_before_its_first_validation_is_scored_and_can_be_used(workspace, caplog):
    directory = workspace / "short"
    given = ["trainer.max_steps=2", "trainer.check_val_every_n_epoch=9", "decoding=greedy"]
    given += [f"data.cache_dir={workspace / 'cache'}"]
    ended = run_composed("train", *TINY, *given, f"run_dir={directory}")
    assert ended.status == 0, ended.err
    assert "BLEU" in ended.out
    assert not (directory / "checkpoints" / "best.ckpt").exists()
    scores = json.loads((directory / "metrics.json").read_text("utf-8"))
    assert scores["checkpoint"] == "last"
    warning = "has no best.ckpt yet: its last checkpoint is taken"
    ended = run("evaluate", f"run={directory}", "decoding=greedy", "num_bootstrap=0")
    assert (ended.status, warning in ended.err) == (0, True), ended.err
    ended = run("translate", f"run={directory}", "decoding=greedy", stdin=b"the cat sleeps .\n")
    assert (ended.status, warning in ended.err, ended.out.count("\n")) == (0, True, 1), ended.err
    assert len(Run.load(directory, device="cpu").translate(["the cat sleeps ."])) == 1
    assert warning in caplog.text


def test_a_sweep_runs_what_can_be_run(workspace):
    """Dot scores, which need equal sizes, are refused; the general one after them is trained."""
    sweep = workspace / "sweep"
    settings = [*TINY, "trainer.max_steps=1", "encoder.output_size=null", f"log_dir={sweep}", "name=dot"]
    settings += [f"data.cache_dir={workspace / 'cache'}"]
    ended = run("train", "-m", *settings, "attention=luong_dot,luong_general")
    said = ended.err
    assert ended.status == 1, said
    assert "Traceback" not in said
    first, last = (line for line in said.splitlines() if ": error: " in line)
    assert "32" in first
    assert last.endswith("1 of the runs of this sweep failed, see their errors above: 0 (from 0)")
    [second] = (sweep / "dot").iterdir()  # nothing of the first, and nothing of Hydra's
    assert second.name.endswith("_1")
    assert (second / "metrics.json").exists()
    assert f"'runs={sweep}/*/*'" in ended.out
    assert [each.name for each in sweep.iterdir()] == ["dot"]


# What a command imports. Each is slow to import: seconds that a refusal does not wait for.

IN_ONE_INTERPRETER = """
import contextlib, io, json, sys
from nmt.commands import run_command

ended = []
for name, *arguments in json.loads(sys.argv[1]):
    sys.argv = [f"{name}.py", *arguments]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            status = run_command(name)
        except SystemExit as end:
            status = end.code
    ended.append([status, said.getvalue()])
print(json.dumps({"ended": ended, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""
HEAVY = {"torch", "lightning", "datasets", "pandas", "pyarrow", "matplotlib"}
LIGHT = [  # what a command is asked, and what it says
    *(([name, "--help"], f"python scripts/{name}.py") for name in COMMANDS),
    (["train", "model.hiden_size=3"], "unknown configuration key 'model.hiden_size'"),
    (["train", "attention=luong"], "no such choice 'attention/luong'"),
    (["train", "data=files", "data.path=nowhere", "data.src_lang=a", "data.tgt_lang=b"], "nowhere: no such file"),
    (["evaluate", "run=nowhere"], "nowhere: no such run directory"),
    (["evaluate", "run=nowhere", "num_bootstrap=null"], "num_bootstrap=null: "),
    (["translate", "run=nowhere", "input=missing"], "missing: no such file"),
    (["align", "run=nowhere", "src=missing", "tgt=missing"], "missing: no such file"),
    (["compare", "runs=nowhere"], "nowhere: no such run directory"),
    (["benchmark", "device=tpu"], "device=tpu: "),
]  # fmt: skip
MORE = [
    (["train", "data.max_tokens=many"], "data.max_tokens=many: "),
    (["train", "resume=nowhere"], "nowhere is no run to resume"),
    (["train", "--bogus"], "--bogus: settings have no dashes"),
    (["evaluate"], "run is required"),
    (["evaluate", "run=nowhere", "split=dev"], "split=dev: "),
    (["translate", "run=nowhere"], "nowhere: no such run directory"),
    (["translate", "run=nowhere", "num_best=0"], "num_best=0: "),
    (["align", "run=nowhere", "src=README.md", "tgt=LICENSE"], "nowhere: no such run directory"),
    (["align", "run=nowhere", "method=best"], "method=best: "),
    (["compare"], "runs is required"),
    (["compare", "runs=nowhere", "split=dev"], "split=dev: "),
    (["compare", "runs=nowhere", "length_bounds=[5,3]"], "give rising numbers"),
    (["compare", "runs=nowhere", "refs=missing"], "missing: no such file"),
    (["benchmark", "modle=gru"], "unknown configuration key 'modle'"),
    (["benchmark", "num_batches=null"], "num_batches=null: "),
    (["benchmark", "compare=[missing,README.md]"], "missing: no such file"),
]


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["--help"], 0, "evaluate   Score a trained run"),
        (["help"], 0, "nmt COMMAND"),
        (["--version"], 0, "nmt 0."),
        (["trian"], 1, "no such command trian: did you mean nmt train?"),
        ([], 1, "there is no command: give one of train,"),
        (["train", "--help", "nosuch"], 1, "nmt train: error: --help nosuch"),
        (["translate", "--help", "beam_size"], 0, "decoding.beam_size=5"),
    ],
)
def test_nmt_says_which_commands_there_are(arguments, status, fragment, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["nmt", *arguments])
    monkeypatch.delenv("NMT_COMMAND", raising=False)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    found = 0
    try:
        entry.main()
    except SystemExit as end:
        found = end.code if isinstance(end.code, int) else print(end.code) or 1
    monkeypatch.delenv("NMT_COMMAND", raising=False)
    said = capsys.readouterr()
    assert (found, fragment in said.out + said.err) == (status, True), said


@pytest.mark.parametrize("cases", [LIGHT, pytest.param(MORE, marks=pytest.mark.slow)], ids=["some", "more"])
def test_help_and_refusals_that_need_no_model_import_no_library_of_models(cases):
    asked = json.dumps([arguments for arguments, _ in cases])
    command = [sys.executable, "-c", IN_ONE_INTERPRETER, asked]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    found = json.loads(result.stdout)
    for (arguments, fragment), (status, said) in zip(cases, found["ended"], strict=True):
        assert fragment in said, (arguments, said)
        assert (status or 0) == (0 if "--help" in arguments else 1), arguments
    assert not HEAVY & set(found["modules"])


def test_a_line_is_translated_without_what_only_training_needs(run_dir):
    """By a process: its input comes through a pipe, and `nmt.Run` is all that it needs."""
    script = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
    script += "from nmt import Run; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", script, str(ROOT / "scripts" / "translate.py"), f"run={run_dir}"]
    result = subprocess.run(command, cwd=ROOT, input=b"the cat sleeps .\n", capture_output=True, check=True)
    line, modules = result.stdout.decode().splitlines()
    assert line == run_composed("translate", f"run={run_dir}", stdin=b"the cat sleeps .\n").out.strip("\n")
    assert not HEAVY - {"torch"} & set(ast.literal_eval(modules))


@pytest.mark.slow
def test_the_commands_work_from_a_wheel(tmp_path):
    """In an environment of its own, which has this one's packages behind it, and from a folder that has no checkout."""
    for name in ("nmt", "configs"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "source", capture_output=True, check=True)
    [wheel] = (tmp_path / "source").glob("attention_nmt-*.whl")
    venv.create(tmp_path / "venv")
    site, python = (
        tmp_path / "venv/lib" / f"python3.{sys.version_info[1]}/site-packages",
        tmp_path / "venv/bin/python",
    )
    (site / "behind.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n"
    )  # the .pth files in there are not read
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(pip, check=True)
    packed = {str(path.relative_to(site / "nmt")) for path in (site / "nmt").rglob("*.yaml")}
    assert packed == {str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.yaml")}
    assert (site / "nmt/py.typed").is_file()
    there = tmp_path / "empty"
    there.mkdir()

    def nmt(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess:
        command = [tmp_path / "venv/bin/nmt", *arguments]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(command, cwd=there, env=environment, capture_output=True, input=stdin)

    help_of_train, version = nmt("train", "--help"), nmt("--version")
    assert b"nmt train attention=luong_general" in help_of_train.stdout
    assert version.stdout.startswith(b"nmt 0.")
    refused(nmt("translate", "run=nowhere"), "nowhere: no such run directory")
    assert not list(there.iterdir())
    few = ["data.num_train=60", "data.num_val=2", "data.num_test=2", "decoding=greedy"]
    ended = nmt("train", *last_of_each([*TINY, *few, "trainer.max_epochs=1", "run_dir=run"]))
    assert ended.returncode == 0, ended.stderr
    assert f"nmt translate run={there / 'run'}".encode() in ended.stdout
    ended = nmt("translate", "run=run", stdin=b"the cat sleeps .\n")
    assert (ended.returncode, ended.stdout.count(b"\n")) == (0, 1), ended.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [tmp_path / "venv/bin/nmt", "demo", "run=run", f"port={port}"]
    with subprocess.Popen(
        command, cwd=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        said = next((line for line in demo.stdout if "the playground is at" in line), "")
        demo.terminate()
        assert "http://127.0.0.1:" in said, demo.stderr.read()
