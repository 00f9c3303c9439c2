"""The scripts as a person runs them: one small training run, then every verb over its directory."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt import alignment, plotting
from nmt.data.lines import decoded
from nmt.run.directory import Run

ROOT = Path(__file__).resolve().parents[1]
SMALL = [
    "data.num_train=400",
    "data.num_val=20",
    "data.num_test=20",
    "data.max_words=12",
    "data.tokenizer.vocab_size=300",
    "model.size=32",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=2",
    "trainer.enable_progress_bar=false",
]


def call(script: str, *arguments: str, stdin: bytes = b"", cwd: Path = ROOT) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment,
        timeout=300,
    )


def call_unread(
    script: str, *arguments: str, stdin: bytes = b"", cwd: Path = ROOT
) -> subprocess.CompletedProcess:
    """As `call`, with an output that nobody reads, as after `| head`, and that takes each line at once."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    nobody, ours = os.pipe()
    os.close(nobody)
    try:
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments],
            input=stdin,
            stdout=ours,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            timeout=300,
        )
    finally:
        os.close(ours)


def refused(result: subprocess.CompletedProcess, *fragments: str) -> None:
    """One clear line on standard error, status 1, no traceback."""
    message = result.stderr.decode()
    assert result.returncode == 1, message
    assert "Traceback" not in message
    [line] = [line for line in message.splitlines() if ": error: " in line]
    for fragment in fragments:
        assert fragment in line, line


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def run_dir(workspace) -> Path:
    """A tiny run of the main job."""
    directory = workspace / "run"
    result = call("train", *SMALL, f"hydra.run.dir={directory}", f"data.cache_dir={workspace / 'cache'}")
    assert result.returncode == 0, result.stderr.decode()
    assert b"BLEU" in result.stdout
    (workspace / "said").write_bytes(result.stdout)
    return directory


def test_the_end_says_what_was_trained_how_long_how_well_and_where_it_is(run_dir, workspace):
    said, place = (workspace / "said").read_text("utf-8"), re.escape(str(run_dir))
    for pattern in (
        r"trained  GRUTranslator, [\d,]{5,} parameters: 2 epochs, \d+ steps",
        r"time     0:\d\d:\d\d over [\d,]+ target pieces, [\d,]+ a second",
        r"memory   \d\.\d\d GiB at most; this process held \d+ MiB at the first validation and \d+ MiB at the last",
        rf"run      {place}: checkpoints/, and tensorboard --samples_per_plugin images=200 --logdir {place}",
        rf"test of {place}",
    ):
        assert re.search(pattern, said), (pattern, said)


def test_a_run_directory_holds_what_the_contract_names(run_dir):
    names = {str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.json", "hypotheses.txt"} <= names
    assert {"checkpoints/best.ckpt", "checkpoints/last.ckpt", "tokenizer/joint.model"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    pictures = [Path(name).suffix for name in names if name.startswith("alignments/")]
    assert sorted(pictures) == [".png"] * 8  # 4 sentences, 2 validations
    scores = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    assert scores["split"] == "test"
    assert scores["num_sentences"] == 20
    for metric in ("bleu", "chrf", "ter"):
        assert set(scores[metric]) == {"score", "signature", "ci"}
        assert "version:" in scores[metric]["signature"]
    assert 0 <= scores["aer"]["score"] <= 1
    assert len((run_dir / "hypotheses.txt").read_text("utf-8").split("\n")) == 21


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
    images = [tag for tag in tags["images"] if tag.startswith("val/alignment/")]
    assert len(images) == 4
    assert all(len(events.Images(tag)) == 2 for tag in images)
    assert "val/translations/text_summary" in tags["tensors"]


@pytest.fixture(scope="module")
def events(run_dir) -> EventAccumulator:
    return EventAccumulator(str(run_dir), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def values(events: EventAccumulator, tag: str) -> list[float]:
    return [each.value for each in events.Scalars(tag)]


def test_what_was_shown_last_is_what_the_last_checkpoint_does(run_dir, events):
    run = Run.load(run_dir, checkpoint="last", device="cpu")
    val = run.split("val")
    scores, translations = run.score(val, num_bootstrap=0, beam_size=1)
    for tag, expected in (("bleu", scores["bleu"]), ("chrf", scores["chrf"]), ("aer", scores["aer"])):
        assert values(events, f"val/{tag}")[-1] == pytest.approx(expected["score"], rel=1e-5)
    weights = [run.choose_head(each, None, None) for _, each in run.attentions(val["src"], val["tgt"])]
    for name, expected in alignment.statistics(weights).items():
        assert values(events, f"val/attention/{name}")[-1] == pytest.approx(expected, rel=1e-4), name
    shown = events.Tensors("val/translations/text_summary")[-1].tensor_proto.string_val[0].decode()
    expected = [
        f"| {row} | {val[row]['src']} | {val[row]['tgt']} | {translations[row].text} |" for row in range(5)
    ]
    assert shown.splitlines()[2:] == expected


def test_a_picture_shows_the_weights_of_its_step_and_sentence(run_dir, events):
    run = Run.load(run_dir, checkpoint="last", device="cpu")
    val = run.split("val")
    for tag in [tag for tag in events.Tags()["images"] if tag.startswith("val/alignment/")]:
        row, shown = int(tag.rpartition("/")[2]), events.Images(tag)[-1]
        [weights] = run.align([val[row]["src"]], [val[row]["tgt"]])
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
    run = Run.load(run_dir, device="cpu")
    test = run.split("test")
    links = [alignment.links_from_weights(each) for each in run.align(test["src"], test["tgt"])]
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


def test_a_run_on_lower_cased_text_reads_any_case_and_is_scored_without(run_dir, workspace):
    directory, places = workspace / "lower", [f"data.cache_dir={workspace / 'cache'}"]
    lower = "data.tokenizer.lowercase=true"
    refused(
        call("train", *SMALL, *places, lower, "metrics.chrf.lowercase=false", f"run_dir={directory}"),
        "metrics.chrf counts case: give metrics.chrf.lowercase=true",
    )
    result = call("train", *SMALL, *places, lower, f"run_dir={directory}")
    assert result.returncode == 0, result.stderr.decode()
    scores = json.loads((directory / "metrics.json").read_text("utf-8"))
    assert all("case:lc" in scores[name]["signature"] for name in ("bleu", "chrf"))
    found = call("translate", f"run={directory}", stdin=b"the cat sleeps .\nThe CAT Sleeps .\n").stdout
    one, other = found.decode().splitlines()
    assert one == other != ""
    cased, again = "metrics.bleu.lowercase=false", f"output={workspace / 'again'}"
    says = "metrics.bleu counts case: give metrics.bleu.lowercase=true"
    refused(call("evaluate", f"run={directory}", cased), says)
    assert call("evaluate", f"run={directory}", again).returncode == 0
    found = json.loads((workspace / "again" / "metrics.json").read_text("utf-8"))
    assert [found[name] for name in ("bleu", "chrf")] == [scores[name] for name in ("bleu", "chrf")]
    runs = f"runs=[{run_dir},{directory}]"  # the other's text has its case: both are scored without
    refused(call("compare", runs, cased), says)
    result = call("compare", runs, "num_bootstrap=20", "num_trials=20", f"output={workspace / 'both'}")
    assert result.returncode == 0, result.stderr.decode()
    rows = json.loads((workspace / "both" / "comparison.json").read_text("utf-8"))["runs"]
    assert all("case:lc" in row[f"{name}_signature"] for row in rows for name in ("bleu", "chrf"))
    assert rows[1]["bleu"] == scores["bleu"]["score"]
    cased = workspace / "cased"
    shutil.copytree(directory, cased)
    config = (cased / "config.yaml").read_text("utf-8")
    (cased / "config.yaml").write_text(config.replace("lowercase: true", "lowercase: false"), "utf-8")
    together = call("translate", f"run=[{directory},{cased}]", stdin=b"the cat sleeps .\n")
    refused(together, "have different tokenizers")


def test_evaluate_repeats_the_scores_of_training_also_after_a_move(run_dir, workspace):
    expected = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    moved = workspace / "moved"
    shutil.copytree(run_dir, moved)
    (moved / "metrics.json").unlink()
    result = call("evaluate", f"run={moved}")
    assert result.returncode == 0, result.stderr.decode()
    found = json.loads((moved / "metrics.json").read_text("utf-8"))
    for metric in ("bleu", "chrf", "ter", "aer"):
        assert found[metric] == expected[metric]
    assert (moved / "hypotheses.txt").read_bytes() == (run_dir / "hypotheses.txt").read_bytes()
    result = call("evaluate", f"run={moved}", "split=val", "decoding=greedy", "num_bootstrap=0")
    assert result.returncode == 0, result.stderr.decode()
    scores = json.loads((moved / "metrics_val.json").read_text("utf-8"))
    assert scores["split"] == "val"
    assert scores["bleu"]["ci"] is None


def test_the_hypotheses_score_the_same_with_sacrebleus_own_command(run_dir, workspace):
    references = workspace / "references.txt"
    references.write_text("".join(f"{line}\n" for line in Run.load(run_dir).split("test")["tgt"]), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(references), "-i", str(run_dir / "hypotheses.txt")]
    command += ["-m", "bleu", "chrf", "-f", "json", "-w", "4"]
    result = subprocess.run(command, capture_output=True, check=True)
    scores = json.loads((run_dir / "metrics.json").read_text("utf-8"))
    for own, theirs in zip(("bleu", "chrf"), json.loads(result.stdout), strict=True):
        assert scores[own]["score"] == pytest.approx(theirs["score"], abs=1e-4)


def test_translate_writes_its_files_though_nobody_reads_its_lines(run_dir, tmp_path):
    arguments = [f"run={run_dir}", f"alignments={tmp_path / 'links'}", f"heatmaps={tmp_path / 'pictures'}"]
    result = call_unread("translate", *arguments, stdin=b"the cat sleeps .\n")
    message = result.stderr.decode()
    assert (result.returncode, "Traceback" in message) == (0, False), message
    assert (tmp_path / "links").read_text("utf-8").count("\n") == 1
    assert list((tmp_path / "pictures").glob("*.png"))


def test_translate_gives_one_line_for_each_line(run_dir, workspace):
    lines = [
        "the old teacher reads a book .",
        "",
        "   ",
        "x" * 300,
        "ß 😀 \u2028 tab\there .",
        "the cat sleeps .",
    ]
    text = "\n".join(lines).encode()  # the last line without its line feed
    result = call("translate", f"run={run_dir}", stdin=text)
    assert result.returncode == 0, result.stderr.decode()
    out = result.stdout.decode().split("\n")
    assert len(out) == len(lines) + 1
    assert out[1] == out[2] == out[-1] == ""
    (workspace / "in.txt").write_bytes(text + b"\n")
    result = call(
        "translate",
        f"run={run_dir}",
        f"input={workspace / 'in.txt'}",
        f"output={workspace / 'out.txt'}",
        f"alignments={workspace / 'out.align'}",
        f"heatmaps={workspace / 'pictures'}",
    )
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout == b""
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
    result = call("translate", f"run={run_dir}", "num_best=3", stdin=text)
    assert result.returncode == 0, result.stderr.decode()
    rows = [line.split(" ||| ") for line in result.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    for group in (rows[:3], rows[3:]):
        scores = [float(row[2]) for row in group]
        assert scores == sorted(scores, reverse=True)


def test_three_lines_in_a_notebook(run_dir):
    from nmt import Run

    run = Run.load(run_dir)
    best = run.translate(["the old teacher reads a book ."])[0]
    assert best.weights.shape == (len(best.target_words), len(best.source_words))


TRAIN_REFUSALS = {  # a few through the command itself; test_hostile.py has the others
    "wrong attention": (
        ["attention=luong"],
        ["luong", "bahdanau", "luong_general", "none"],
    ),
    "unknown key": (["model.hiden_size=3"], ["model.hiden_size", "did you mean '"]),
    "mismatched sizes": (
        ["attention=luong_dot", "encoder.output_size=24"],
        ["query_size == key_size", "32", "24"],
    ),
    "missing directory": (
        ["data=files", "data.path=nowhere", "data.src_lang=en", "data.tgt_lang=vi"],
        ["nowhere"],
    ),
}


@pytest.mark.parametrize("case", TRAIN_REFUSALS)
def test_train_refuses(case, workspace):
    overrides, fragments = TRAIN_REFUSALS[case]
    small = [s for s in SMALL if not s.startswith(("data.num", "data.max")) or "data=files" not in overrides]
    directory = workspace / "refused" / case.replace(" ", "_")
    result = call(
        "train", *small, *overrides, f"hydra.run.dir={directory}", f"data.cache_dir={workspace / 'cache'}"
    )
    refused(result, *fragments)
    assert not (directory / "checkpoints").exists()


def damaged(run_dir: Path, workspace: Path, name: str) -> Path:
    copy = workspace / f"damaged_{name}"
    shutil.copytree(run_dir, copy)
    return copy


def test_evaluate_and_translate_refuse_what_is_no_run(run_dir, workspace):
    refused(call("evaluate", "run=nowhere"), "nowhere", "no such run directory")
    (workspace / "empty").mkdir()
    refused(call("translate", f"run={workspace / 'empty'}"), "empty", "config.yaml")
    refused(call("evaluate"), "run=")


def test_evaluate_refuses_a_run_without_its_tokenizer(run_dir, workspace):
    copy = damaged(run_dir, workspace, "tokenizer")
    shutil.rmtree(copy / "tokenizer")
    refused(call("evaluate", f"run={copy}"), "tokenizer")


@pytest.mark.parametrize("kind", ["truncated", "text", "missing", "another model"])
def test_evaluate_refuses_a_broken_checkpoint(kind, run_dir, workspace):
    copy = damaged(run_dir, workspace, kind.replace(" ", "_"))
    checkpoint = copy / "checkpoints" / "best.ckpt"
    if kind == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    elif kind == "text":
        checkpoint.write_text("not a checkpoint")
    elif kind == "missing":
        checkpoint.unlink()
    else:
        config = copy / "config.yaml"
        config.write_text(config.read_text("utf-8").replace("hidden_size: 32", "hidden_size: 16"), "utf-8")
    before = (copy / "metrics.json").read_bytes()
    refused(call("evaluate", f"run={copy}"), "best.ckpt")
    assert (copy / "metrics.json").read_bytes() == before


def test_a_stored_configuration_may_build_nothing_but_models_and_readers(run_dir, workspace):
    copy = damaged(run_dir, workspace, "hostile")
    config = copy / "config.yaml"
    text = config.read_text("utf-8").replace("nmt.attention.GeneralAttention", "os.system")
    config.write_text(text, "utf-8")
    refused(call("translate", f"run={copy}", stdin=b"x\n"), "os.system")


def test_translate_refuses_bad_input(run_dir, workspace):
    refused(call("translate", f"run={run_dir}", stdin=b"fine\n\xff\xfe\n"), "line 2", "UTF-8")
    refused(call("translate", f"run={run_dir}", stdin="fine\n".encode("utf-16-le")), "line 1", "NUL byte")
    refused(call("translate", f"run={run_dir}", "input=missing.txt"), "missing.txt")
    refused(call("translate", f"run={run_dir}", f"input={ROOT}"), str(ROOT))
    refused(call("translate", "run=5", "output=6"), "5: no such run directory")
    refused(call("translate", f"run={run_dir}", "output=nowhere/out.txt"), "there is no folder nowhere")
    refused(call("evaluate", f"run={run_dir}", "split=nothing"), "nothing", "test")
    refused(call("evaluate", f"run={run_dir}", "decoding.beam_size=0"), "beam_size")
    kept = workspace / "kept.txt"
    kept.write_text("good\n")
    refused(call("translate", f"run={run_dir}", f"output={kept}", stdin=b"\xff\n"), "line 1")
    assert kept.read_text() == "good\n"


def test_a_byte_order_mark_is_not_translated():
    assert list(decoded(["\ufeffone\r\n".encode(), b"two"], "standard input")) == ["one", "two"]


def test_a_finished_run_that_has_lost_its_scores_is_scored_again_with_what_training_cost(run_dir, workspace):
    copy = workspace / "unscored"
    shutil.copytree(run_dir, copy)
    (copy / "metrics.json").unlink()
    assert call("train", f"resume={copy}").returncode == 0
    found, expected = (json.loads((each / "metrics.json").read_text()) for each in (copy, run_dir))
    clock = ("seconds", "tokens_per_second")  # which went on a little after the last checkpoint
    for name in clock:
        assert found["training"].pop(name) == pytest.approx(expected["training"].pop(name), rel=0.5)
    assert found["training"] == expected["training"]
    assert found["bleu"] == expected["bleu"]
    rows = [each.Reload().Scalars("test/bleu") for each in map(EventAccumulator, map(str, (copy, run_dir)))]
    assert [(row.step, row.value) for row in rows[0]] == 2 * [(row.step, row.value) for row in rows[1]]


def test_a_sweep_runs_what_can_be_run(workspace):
    """Dot scores, which need equal sizes, are refused; the general one after them is trained."""
    sweep = workspace / "sweep"
    settings = [*SMALL, "trainer.max_steps=1", "encoder.output_size=null", f"hydra.sweep.dir={sweep}"]
    settings += ["hydra.sweep.subdir=${hydra:job.num}", f"data.cache_dir={workspace / 'cache'}"]
    ended = call("train", "-m", *settings, "attention=luong_dot,luong_general")
    said = ended.stderr.decode()
    assert ended.returncode == 1, said
    assert "Traceback" not in said
    first, last = (line for line in said.splitlines() if ": error: " in line)
    assert "32" in first
    assert last.endswith("1 of the runs of this sweep failed, see their errors above: 0 (from 0)")
    assert not (sweep / "0" / "metrics.json").exists()
    assert (sweep / "1" / "metrics.json").exists()
