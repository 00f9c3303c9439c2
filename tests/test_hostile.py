"""Broken and hostile input ends in one clear line, with nothing run, damaged or half-written."""

import contextlib
import hashlib
import io
import json
import logging
import os
import pickle
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from datasets import Dataset
from omegaconf import DictConfig, OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt import metrics, plotting
from nmt.atomic import write_together
from nmt.checkpoint import write_checkpoint
from nmt.commands import entry, terminal
from nmt.commands.entry import LogFile, errors_in_one_line
from nmt.config.build import build
from nmt.data import grammar
from nmt.data.corpus import read_files
from nmt.data.datamodule import TranslationDataModule
from nmt.data.encoding import Rows, count_shared
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings
from nmt.errors import UserError, WriteError
from nmt.run.data import read_splits
from nmt.run.model import build_translator
from nmt.run.paths import claim_directory, newest_run, write_atomically
from nmt.run.run import Run
from nmt.run.scores import write_scores
from nmt.training import resume, scoring
from nmt.training.callbacks import AtomicCheckpointIO, TensorBoard
from nmt.training.callbacks.tensorboard import EventFile
from nmt.training.checks import check_lengths
from nmt.training.module import TranslationModule
from nmt.training.scoring import scores_after
from nmt.training.vocabulary import make_tokenizer
from tests import commands
from tests.commands import Ended, refused, run_composed
from tests.commands import run as command

NOT_ROOT = pytest.mark.skipif(
    getattr(os, "geteuid", int)() == 0, reason="the superuser may read and write everything"
)
SMALL = ["model.size=16", "data.tokenizer.vocab_size=300"]
SMALL_CORPUS = ["data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12"]
TINY = [
    *SMALL,
    *SMALL_CORPUS,
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "trainer.enable_progress_bar=false",
    "trainer.log_every_n_steps=1",
    "callbacks.alignments.num_sentences=1",
    "decoding=greedy",
]


def compose(*overrides: str) -> DictConfig:
    return commands.compose("train", *overrides)


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run directory as training leaves it, but for the training."""
    directory = tmp_path_factory.mktemp("run")
    cache = f"data.cache_dir={directory / 'cache'}"
    cfg = compose(*SMALL, *SMALL_CORPUS, cache, "name=untrained", f"run_dir={directory}")
    pairs = grammar.corpus(num_train=100, num_val=0, num_test=0, max_words=12, seed=1)["train"]
    tokenizer = Tokenizer.train(
        [pair.en for pair in pairs],
        [pair.vi for pair in pairs],
        model_type="bpe",
        joint=True,
        vocab_size=300,
        character_coverage=1.0,
    )
    tokenizer.save(directory / "tokenizer")
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True)), directory / "config.yaml")
    torch.manual_seed(0)
    save_weights(directory, build_translator(cfg.model, tokenizer).state_dict())
    return directory


def save_weights(run: Path, state, **others) -> None:
    if isinstance(state, dict):
        state = {f"translator.{name}": value for name, value in state.items()}
    write_checkpoint({"state_dict": state, **others}, run / "checkpoints" / "best.ckpt")


# Text to train on. Each case: the files of its folder (text is written as UTF-8), what is set, what the line says.


def both(row: str) -> dict[str, str | bytes]:
    return {"train.jsonl": row, "val.jsonl": row}


ROW = '{"en": "a b", "vi": "c d"}\n'
BLANK, LONG = json.dumps({"en": " ", "vi": ""}), json.dumps({"en": "a" * 1_000_000, "vi": "b" * 5000})
VOCABULARY = "data.tokenizer.vocab_size"
ESCAPES = json.dumps({f"\x1b[2J{number}\n": "" for number in range(999)})
TEXT = {
    "escapes": ({"train.jsonl": ESCAPES}, [], ["line 1", "\\x1b[2J0", "…"]),
    "latin-1": ({"train.en": b"caf\xe9\n", "train.vi": "b\n"}, [], ["train.en, line 1", "0xe9 at position 4"]),
    "blank": (both(BLANK), [], ["the training text is empty"]),
    "too long": (both(LONG), [], ["the training text is empty", "4,192 bytes"]),
    "no validation": ({"train.jsonl": ROW}, [f"{VOCABULARY}=9"], ["no val split"]),
    "nothing left": (both(ROW), [f"{VOCABULARY}=9", "data.max_length=2"], ["no training pair is left of 1"]),
}  # fmt: skip


def lay(folder: Path, files: dict[str, str | bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("case", TEXT)
def test_train_refuses_text_that_is_unsound(case, tmp_path):
    files, overrides, fragments = TEXT[case]
    lay(tmp_path / "data", files)
    before = digests(tmp_path / "data")
    places = {"data.path": "data", "data.cache_dir": "cache", "run_dir": "run"}
    usual = ["data=files", *(f"{key}={tmp_path / name}" for key, name in places.items())]
    usual += ["data.src_lang=en", "data.tgt_lang=vi"]
    given = [each.partition("=")[0] for each in overrides]
    told = [*(each for each in usual if each.partition("=")[0] not in given), *overrides]
    refused(run_composed("train", *told), *fragments)
    assert digests(tmp_path / "data") == before
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert not [name for name in digests(tmp_path) if name.endswith(".tmp")]


STRANGE = [
    "שלום \u202eעולם",  # right to left, with an override
    "e\u0301" * 3 + "\u0301" * 50,  # combining marks
    "\x01\x1b[2J\x7f \x0b\x0c\x1c\x85",
    "a\u2028b\u2029c",
    "👩\u200d👩\u200d👧 \ufeff\u00ad\u200b",
    "x" * 1_000_000,
    " ",
]


def test_strange_text_is_read_as_it_is(tmp_path):
    """The tokenizer takes it too, and gives each line its end of sentence."""
    lay(
        tmp_path / "data",
        {f"train.{lang}": "".join(f"{line}\n" for line in STRANGE) for lang in ("en", "vi")},
    )
    rows = read_files(tmp_path / "data", src_lang="en", tgt_lang="vi", cache_dir=tmp_path, splits=["train"])
    assert list(rows["train"]["src"]) == list(rows["train"]["tgt"]) == STRANGE
    tokenizer = Tokenizer.train(
        STRANGE,
        STRANGE,
        model_type="bpe",
        joint=True,
        vocab_size=60,
        character_coverage=1.0,
    )
    assert all(ids[-1] == tokenizer.eos_id for ids in tokenizer.encode_source(STRANGE))
    assert tokenizer.decode(tokenizer.encode_target(STRANGE[:1])) == STRANGE[:1]


# Settings. Each case: what is set, and what the line says.

SETTINGS = {
    "word for a whole number": (["data.max_tokens=many"], ["data.max_tokens=many: Input should be a valid integer"]),
    "negative size": (["encoder.size=-3"], ["encoder.size=-3: Input should be greater than or equal to 1"]),
    "dropout": (["model.dropout=2"], ["model.dropout=2: Input should be less than 1"]),
    "small batch": (["data.max_tokens=3"], ["max_tokens=3"]),
    "precision": (["trainer.precision=8"], ["trainer.precision=8: Input should be 64, 32 or 16"]),
    "unknown language": (["data.src_lang=xx"], ["data.src_lang=xx", "en and vi"]),
    "unknown key": (["model.hiden_size=3"], ["'model.hiden_size'", "did you mean '"]),
    "key under a wrong parent": (["hidden_size=3"], ["hidden_size", "did you mean '"]),
    "ties without a joint vocabulary": (
        ["data.tokenizer.joint=false", "data.tokenizer.vocab_size=200", "model.tie_source=true"],
        ["model.tie_source=true", "joint"],
    ),
    "input feeding without attention": (["attention=none", "wiring.input_feeding=true"], ["attention=none"]),
    "a key of another model": (["model=transformer", "encoder.size=8"], ["'encoder.size'", "belongs to encoder="]),
    "a content score nobody uses": (["content=dot"], ["content= has no effect"]),
    "a normaliser without weights": (["attention=none", "normalizer=sparsemax"], ["normalizer= has no effect"]),
    "a wiring of the Transformer": (["model=transformer", "wiring=conditional"], ["wiring= has no effect"]),
    "a missing tokenizer model": (["data.tokenizer.model=missing.model"], ["missing.model"]),
    "a vocabulary beside its model": (
        ["data.tokenizer.model=a.model", "data.tokenizer.vocab_size=300"],
        ["data.tokenizer.vocab_size has no effect with data.tokenizer.model=a.model"],
    ),
    "a decoding setting there is not": (["+decoding.foo=1"], ["decoding.foo: DecodingSettings has no such setting"]),
    "three tokenizer models": (["data.tokenizer.model=[a,b,c]"], ["data.tokenizer.model", "at most 2"]),
    "momentum that is not there": (
        ["optimizer=sgd", "optimizer.momentum=0"],
        ["optimizer: Nesterov momentum requires a momentum"],
    ),
    "a number for a callback": (["+callbacks.foo=1"], ["callbacks.foo=1: give callbacks.foo._target_=CLASS"]),
    "a number for a logger": (["+logger.x=1"], ["logger.x=1: give logger.x._target_=CLASS"]),
    "a number for a score": (["+metrics.x=1"], ["metrics.x=1: give metrics.x._target_=CLASS"]),
    "a callback for a score": (
        ["+metrics.x._target_=nmt.training.callbacks.ProgressBar"],
        ["metrics.x._target_=nmt.training.callbacks.ProgressBar: a run may not build this here"],
    ),
    "a key the optimizer has not got": (["+optimizer.foo=1"], ["optimizer.foo: Adam has no such setting"]),
    "a key the schedule has not got": (["+scheduler.foo=1"], ["scheduler.foo: cosine has no such setting"]),
    "a check before training": (["+trainer.num_sanity_val_steps=2"], ["trainer.num_sanity_val_steps=2 has no effect"]),
    "a logger of the trainer": (["+trainer.logger=false"], ["trainer.logger=false has no effect", "leave it out"]),
    "a list for the trainer": (["+trainer.callbacks=[]"], ["trainer.callbacks=[] has no effect", "leave it out"]),
    "a mapping for the trainer": (
        ["+trainer.logger={a:[1]}"],
        ['trainer.logger={"a": [1]} has no effect', "leave it out"],
    ),
    "a cosine without an end": (["trainer.max_epochs=-1"], ["scheduler.total_steps, or"]),
    "no end": (["trainer.max_epochs=null"], ["trainer.max_epochs=null: nothing says when training ends"]),
    "Lightning's thousand epochs": (["~trainer.max_epochs"], ["would leave trainer.max_epochs to a library"]),
    "torch's own rate": (["~optimizer.lr"], ["would leave optimizer.lr to a library"]),
    "clipping of values": (["+trainer.gradient_clip_algorithm=value"], ["gradient_clip_algorithm=value has no effect"]),
    "no checkpoints": (["callbacks=minimal", "~callbacks.checkpoint"], ["callbacks.checkpoint is missing"]),
    "no metrics": (["~metrics"], ["nothing gives metrics, which is needed: leave out ~metrics"]),
    "no trainer": (["~trainer"], ["nothing gives trainer, which is needed: leave out ~trainer"]),
    "word for an interval": (["trainer.val_check_interval=abc"], ["trainer.val_check_interval=abc: "]),
    "a score nobody gives": (
        ["callbacks.checkpoint.monitor=val/foo"],
        ["callbacks.checkpoint.monitor=val/foo", "val/bleu"],
    ),
    "a stop by a score nobody gives": (
        ["callbacks.early_stopping.monitor=val/foo"],
        ["callbacks.early_stopping.monitor=val/foo"],
    ),
    "the worst for the best": (["callbacks.checkpoint.monitor=val/loss"], ["give callbacks.checkpoint.mode=min"]),
    "guidance of zeros": (["guided_alignment=1", "normalizer=sparsemax"], ["give normalizer=softmax"]),
    "guidance outside a window": (["guided_alignment=1", "attention=local_p"], ["attention without a window"]),
    "a score of attention without any": (
        ["attention=none", "callbacks.checkpoint.monitor=val/attention/entropy"],
        ["callbacks.checkpoint.monitor=val/attention/entropy: validation gives no such score"],
    ),
    "more batches than there are": (
        ["trainer.val_check_interval=1000"],
        ["trainer.val_check_interval=1000: an epoch has only", "trainer.check_val_every_n_epoch=null"],
    ),
    "no width": (["encoder.output_size=0"], ["encoder.output_size"]),
    "no layers": (["decoder.num_layers=0"], ["decoder.num_layers"]),
    "no encoder layers": (["encoder.num_layers=-1"], ["encoder.num_layers"]),
    "idle sampling": (["decoding=sample", "decoding.beam_size=4"], ["beam_size", "has no effect"]),
    "guided without attention": (["attention=none", "guided_alignment=1"], ["guides attention"]),
    "r_drop without dropout": (["r_drop=5", "model.dropout=0"], ["r_drop", "set model.dropout"]),
    "every merge left out": (["data.tokenizer.sampling=1"], ["data.tokenizer.sampling=1", "above 0 and below 1"]),
    "unknown group": (["atention=none"], ["'atention'", "did you mean 'attention'"]),
    "unknown experiment": (["experiment=none"], ["no such choice 'experiment/none'"]),
    "unknown choice": (["model=grue"], ["no such choice 'model/grue'; model is one of: gru,"]),
    "no choice": (["attention=null"], ["a choice is the name of a file", "attention=null"]),
    "no key": (["nonsense"], ["nonsense", "KEY=VALUE"]),
    "cache in a file": (["data.cache_dir=/dev/null/cache"], ["/dev/null/cache: cannot write the cache"]),
    "run in a file": (["run_dir=/dev/null/run"], ["/dev/null/run: Not a directory"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache that has the text and the tokenizer of TINY."""
    directory = tmp_path_factory.mktemp("cache")
    data = compose(*TINY, f"data.cache_dir={directory}", "name=cached").data
    make_tokenizer(data, read_splits(data)["train"])
    return directory


@pytest.mark.parametrize("case", SETTINGS)
def test_train_refuses_settings_that_cannot_be(case, tmp_path, cache):
    overrides, fragments = SETTINGS[case]
    given = [each.partition("=")[0] for each in overrides]
    if "data.tokenizer.model" in given:
        given.append("data.tokenizer.vocab_size")
    usual = [*SMALL, *SMALL_CORPUS, f"data.cache_dir={cache}", f"run_dir={tmp_path / 'run'}"]
    told = [*(each for each in usual if each.partition("=")[0] not in given), *overrides]
    refused(run_composed("train", *told), *fragments)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_checkpoints_that_would_be_elsewhere_are_refused(tmp_path, cache):
    usual = [*SMALL, *SMALL_CORPUS, f"data.cache_dir={cache}", f"run_dir={tmp_path / 'run'}"]
    elsewhere = "callbacks.checkpoint.directory=elsewhere"
    refused(command("train", *usual, elsewhere), elsewhere, "leave it out")


def test_an_attention_for_a_transformer_is_refused(tmp_path, cache):
    usual = [*SMALL_CORPUS, f"data.cache_dir={cache}", f"run_dir={tmp_path / 'run'}"]
    refused(
        command("train", *usual, "model=transformer", "attention=bahdanau"),
        "attention= has no effect with what else is chosen",
    )


# What the other commands are asked of a good run, RUN, with FILE a file of theirs, and what the line says.
REQUESTS = {
    "scores in a file": ("evaluate", ["output=FILE"], ["output=FILE: FILE is a file, not a folder"]),
    "scores nowhere": ("evaluate", ["output="], ["output=: String should have at least 1 character"]),
    "scores of nothing": ("evaluate", ["run="], ["run=: String should have at least 1 character"]),
    "half an ensemble": ("evaluate", ["run=[RUN,'']"], ["String should have at least 1 character"]),
    "the other way round": (
        "evaluate",
        ["output=FILE.d", "data.src_lang=vi", "data.tgt_lang=en"],
        ["data.src_lang=vi data.tgt_lang=en: RUN translates the other way"],
    ),
    "one file for two": ("translate", ["output=FILE", "alignments=FILE"], ["=FILE is that of output too"]),
    "a decoding setting there is not": ("translate", ["+decoding.foo=1"], ["decoding.foo: DecodingSettings has no"]),
    "an ensemble that aligns": ("align", ["run=[RUN,RUN]"], ["run=[", "Input should be a valid string"]),
    "twice the same direction": ("align", ["reverse_run=RUN"], ["reverse_run=RUN translates", "in reverse"]),
    "a threshold beyond all weights": (
        "align",
        ["method=threshold", "threshold=7"],
        ["threshold=7: Input should be less than or equal to 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS)
def test_what_cannot_be_asked_of_a_run_is_refused_before_the_work(case, trained, tmp_path):
    name, asked, fragments = REQUESTS[case]
    file = tmp_path / "kept"
    file.write_text("kept\n")
    (tmp_path / "kept.link").symlink_to(tmp_path / "kept.link")

    def spelt(text: str) -> str:
        return text.replace("FILE", str(file)).replace("RUN", str(trained))

    before = digests(trained)
    ended = run_composed(name, *over(name, trained, tmp_path / "out"), *map(spelt, asked))
    refused(ended, *map(spelt, fragments))
    assert "translate:" not in ended.err  # no bar: nothing was decoded
    assert digests(trained) == before
    assert file.read_text() == "kept\n"


def test_text_goes_out_as_utf_8_and_only_where_there_is_an_output(monkeypatch, capsys):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stdin", None)
    entry._use_utf8()
    print("giáo viên", flush=True)
    assert stream.buffer.getvalue() == "giáo viên\n".encode()
    assert sys.stdin.read() == ""
    sys.stdin.close()
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ending, errors_in_one_line("train"):
        entry._use_utf8()
    refused(Ended(ending.value.code, *capsys.readouterr()), "standard output is closed")


def test_data_that_name_no_text_and_pairs_too_long_for_their_positions_are_refused():
    with pytest.raises(UserError, match="choose data=files, data=grammar or another"):
        read_splits(OmegaConf.create({"path": None, "reader": None}))
    rows = Rows(Dataset.from_dict({}), np.array([3, 9]), np.array([4, 5]))
    check_lengths(SimpleNamespace(max_length=9), rows)
    check_lengths(SimpleNamespace(max_length=None), rows)
    with pytest.raises(UserError, match=r"pair has 9 pieces, .* give positions.max_length=9 or"):
        check_lengths(SimpleNamespace(max_length=8), rows)


def test_what_only_training_reads_is_refused_by_evaluate(trained, tmp_path):
    given = [f"run={trained}", "data=grammar", "data.num_test=5", f"output={tmp_path / 'out'}"]
    refused(command("evaluate", *given, "data.max_length=5"), "data.max_length is for training")
    assert not (tmp_path / "out").exists()


def test_scoring_a_split_keeps_what_training_cost(tmp_path):
    """That of a run without a test set stands in metrics_val.json alone."""
    write_scores(tmp_path, "val", {"training": {"steps": 7}}, [])
    write_scores(tmp_path, "val", {}, [])
    write_scores(tmp_path, "train", {}, [])
    for name in ("val", "train"):
        assert json.loads((tmp_path / f"metrics_{name}.json").read_text())["training"] == {"steps": 7}
    write_scores(tmp_path, "test", {"training": {"steps": 9}}, [])  # of a later end of the run
    write_scores(tmp_path, "val", {}, [])
    assert json.loads((tmp_path / "metrics_val.json").read_text())["training"] == {"steps": 9}


def test_a_tokenizer_model_is_for_both_sides_or_for_one_each(trained):
    file = str(trained / "tokenizer" / "joint.model")
    settings = {"model": file, "joint": False}
    with pytest.raises(UserError, match=r"models given are of both sides: give data.tokenizer.joint=true"):
        make_tokenizer(OmegaConf.create({"tokenizer": settings}), Dataset.from_dict({}))
    settings = {"model": [file, file], "joint": True}
    with pytest.raises(
        UserError, match=r"models given are of one side each: give data.tokenizer.joint=false"
    ):
        make_tokenizer(OmegaConf.create({"tokenizer": settings}), Dataset.from_dict({}))


# Run directories. Each case: what is done to one, and what the line says.


def config(text: str | bytes) -> Callable[[Path], None]:
    content = text if isinstance(text, bytes) else text.encode()
    return lambda run: (run / "config.yaml").write_bytes(content)


def changed(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / "config.yaml").read_text("utf-8")
        assert old in text
        (run / "config.yaml").write_text(text.replace(old, new), "utf-8")

    return change


def cut(name: str, length: int) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:length])


def weights(state, **others) -> Callable[[Path], None]:
    return lambda run: save_weights(run, state, **others)


def spoiled(run: Path) -> None:
    state = torch.load(run / CHECKPOINT, weights_only=True)["state_dict"]
    save_weights(run, {name.removeprefix("translator."): value * torch.nan for name, value in state.items()})


CHECKPOINT, MODEL = "checkpoints/best.ckpt", "tokenizer/joint.model"
RUNS = {
    "no configuration": (lambda run: (run / "config.yaml").unlink(), ["has no config.yaml"]),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), ["src.model: cannot read the SentencePiece model"]),
    "no checkpoints": (lambda run: shutil.rmtree(run / "checkpoints"), ["best.ckpt: no such checkpoint"]),
    "empty yaml": (config(""), ["config.yaml is broken: Missing key model"]),
    "broken yaml": (config("model: [1,\nb: {"), ["config.yaml is not YAML", "line "]),
    "binary yaml": (config(b"\xff\xfe\0\1"), ["config.yaml is broken", "0xff"]),
    "yaml with nul": (config(b"model: a\0b"), ["config.yaml is not YAML"]),
    "list of yaml": (config("- 1\n- 2\n"), ["config.yaml is broken"]),
    "yaml in a circle": (config("model: ${data}\ndata: ${model}"), ["may compute no setting: model=${data}"]),
    "no such class": (changed("nmt.models.EncoderDecoder", "nmt.models.Nothing"), ["nmt.models.Nothing"]),
    "another size": (changed("    size: 16", "    size: 8"), ["best.ckpt does not fit the configured model"]),
    "empty tokenizer": (cut(MODEL, 0), ["joint.model is broken or no SentencePiece model"]),
    "cut tokenizer": (cut(MODEL, 1000), ["joint.model is broken or no SentencePiece model"]),
    "empty checkpoint": (cut(CHECKPOINT, 0), ["best.ckpt is broken or no checkpoint"]),
    "cut checkpoint": (cut(CHECKPOINT, 1000), ["best.ckpt is broken or no checkpoint"]),
    "half a checkpoint": (cut(CHECKPOINT, 5000), ["best.ckpt is broken or no checkpoint"]),
    "checkpoint of nothing": (weights({}), ["best.ckpt does not fit the configured model"]),
    "checkpoint of a tensor": (lambda run: torch.save(torch.zeros(3), run / CHECKPOINT), ["best.ckpt is broken"]),
    "diverged": (spoiled, ["best.ckpt holds weights that are no numbers"]),
    "model of nothing": (config("model: null\ndata: {}"), ["config.yaml is broken"]),
    "model without a class": (config("model: {}\ndata: {}"), ["config.yaml is broken"]),
    "checkpoint of a number": (weights(3), ["best.ckpt is broken or no checkpoint"]),
}  # fmt: skip


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


@pytest.mark.parametrize("case", RUNS)
def test_translate_refuses_a_broken_run(case, trained, tmp_path):
    damage, fragments = RUNS[case]
    run = copied(trained, tmp_path)
    damage(run)
    before = digests(run)
    refused(run_composed("translate", f"run={run}", stdin=b"the cat sleeps .\n"), *fragments)
    assert digests(run) == before


# Each hostile run would leave the file `marker` behind.


class Payload:
    """What runs a command as it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def node(target: str) -> str:
    return f"{{_target_: {target}, _args_: ['touch MARKER']}}"


OURS, EVIL = "_target_: nmt.models.EncoderDecoder", node("os.system")
HOSTILE_CONFIGS = {
    "the model": f"model: {EVIL}",
    "eval": f"model: {node('builtins.eval')}",
    "nested": f"model: {{{OURS}, cell: {{a: [[{EVIL}]]}}}}",
    "interpolated": f"evil: {EVIL}\nmodel: {{{OURS}, cell: '${{evil}}'}}",
    "made later": f"model: {{{OURS}, cell: '${{oc.create:{{_target_: os.system}}}}'}}",
    "through our module": f"model: {node('nmt.models.base.torch.os.system')}",
    "named elsewhere": "name: os.system\nmodel: " + node("'${name}'"),
    "python tag": "model: !!python/object/apply:os.system ['touch MARKER']",
}


@pytest.mark.parametrize("case", HOSTILE_CONFIGS)
def test_a_hostile_configuration_runs_nothing(case, trained, tmp_path):
    run, marker = copied(trained, tmp_path), tmp_path / "marker"
    references = {"interpolated": "model.cell=${evil}", "named elsewhere": "model._target_=${name}"}
    said = {"eval": "eval"} | {
        key: f"may compute no setting: {key_said}" for key, key_said in references.items()
    }
    config(HOSTILE_CONFIGS[case].replace("MARKER", str(marker)) + "\ndata: {}\n")(run)
    refused(run_composed("translate", f"run={run}", stdin=b"a\n"), said.get(case, "system"))
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["bare", "beside the weights"])
def test_a_hostile_checkpoint_runs_nothing(kind, trained, tmp_path):
    run, marker = copied(trained, tmp_path), tmp_path / "marker"
    pickle.loads(pickle.dumps(Payload(marker)))
    marker.unlink()  # so the payload works
    if kind == "bare":
        (run / CHECKPOINT).write_bytes(pickle.dumps(Payload(marker), protocol=2))
    else:
        save_weights(run, {}, hyperparameters=Payload(marker))
    refused(command("translate", f"run={run}", stdin=b"a\n"), "best.ckpt is broken")
    assert not marker.exists()


@pytest.mark.parametrize("loader", ["torch.load", "torch.serialization.load", "torch.os.system"])
def test_a_run_builds_nothing_that_our_modules_only_import(loader, trained, tmp_path):
    """`nmt.models.base.torch.load` begins as what is allowed, and would unpickle a file of the run."""
    run, marker = copied(trained, tmp_path), tmp_path / "marker"
    (run / "payload").write_bytes(pickle.dumps(Payload(marker), protocol=2))
    hidden = f"{{_target_: nmt.models.base.{loader}, f: {run / 'payload'}, weights_only: false}}"
    config(f"model: {{_target_: nmt.models.EncoderDecoder, cell: {hidden}}}\ndata: {{}}\n")(run)
    ended = command("translate", f"run={run}", stdin=b"a\n")
    assert not marker.exists()
    refused(ended, f"nmt.models.base.{loader}: a run may not build this")


# Memory that runs out later than at the start.


def test_memory_that_runs_out_in_training_is_told_from_a_batch_that_cannot_fit(tmp_path, cache, monkeypatch):
    step, calls = TranslationModule.training_step, iter(range(1, 10_000))

    def starved(*arguments):
        if next(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return step(*arguments)

    monkeypatch.setattr(TranslationModule, "training_step", starved)
    run = tmp_path / "run"
    ended = command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={run}")
    refused(
        ended,
        "memory ran out at step 3, though the largest batch had fitted",
        "train/memory",
        f"resume={run}",
    )


def test_an_interrupt_that_lightning_takes_for_its_own_is_an_interrupt_still(tmp_path, cache, monkeypatch):
    def fit(*arguments, **settings):
        (tmp_path / "run" / "checkpoints").mkdir()
        (tmp_path / "run" / "checkpoints" / "last.ckpt").touch()
        sys.exit(1)  # its answer to KeyboardInterrupt

    monkeypatch.setattr(L.Trainer, "fit", fit)
    ended = command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={tmp_path / 'run'}")
    assert ended.status == 130
    assert ended.err.endswith(f"train.py: interrupted: go on with resume={tmp_path / 'run'}\n")


# Lines to translate.

LINES = [
    b"the cat sleeps .",
    b"",
    b"carriage return\r",
    b"\r",
    b"a\x0cb\x0bc\x1c\x1d\x1e\x85".replace(b"\x85", "\u0085".encode()),
    "a\u2028b\u2029c".encode(),
    "\u2028".encode(),
    "\u200b\ufeff\u00ad".encode(),
    "\u200b\ufeff".encode(),
    "\u0085 \u0085".encode(),
    b"\xc2\x85 " * 400,
    "שלום \u202eעולם".encode(),
    ("e" + "\u0301" * 100).encode(),
    b"x" * 200,
    b"no line feed at the end",
]


@pytest.mark.parametrize("way", ["standard input", "file"])
def test_translate_never_loses_or_adds_a_line(way, trained, tmp_path):
    text = b"\n".join(LINES)
    if way == "file":
        (tmp_path / "in.txt").write_bytes(text)
        ended = command(
            "translate", f"run={trained}", f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'out'}"
        )
        out = (tmp_path / "out").read_bytes().decode()
    else:
        ended = command("translate", f"run={trained}", "block_size=3", stdin=text)
        out = ended.out
    assert ended.status == 0, ended.err
    lines = out.split("\n")
    assert len(lines) == len(LINES) + 1
    assert not any(
        out
        for line, out in zip(LINES, lines, strict=False)
        if not line.decode().strip().strip("\u200b\ufeff")
    )
    assert all(len(line.splitlines()) <= 1 for line in lines)


# Where nothing can be written.


@contextlib.contextmanager
def full_disk(left: int) -> Iterator[None]:
    """No file grows beyond `left` bytes: writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


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


def over(command: str, run: Path, folder: Path) -> list[str]:
    """The arguments that a command needs over one run."""
    lines = folder.parent / "lines"
    lines.write_text("the cat sleeps .\n" * 3)
    return {
        "translate": [f"run={run}", f"input={lines}"],
        "align": [f"run={run}", f"src={lines}", f"tgt={lines}"],
        "evaluate": [f"run={run}"],
        "compare": [f"runs={run}"],
    }[command]


@pytest.fixture(scope="module")
def scored(trained, tmp_path_factory) -> Path:
    """`trained`, as the scores of an untrained run leave it."""
    run = copied(trained, tmp_path_factory.mktemp("scored"))
    loaded = Run.load(run)
    scores, translations = loaded.score(loaded.split("test"), DecodingSettings(beam_size=1), num_bootstrap=0)
    write_scores(run, "test", scores, translations)
    return run


SLOW_OUTPUTS = ("alignments", "heatmaps", "page as a picture", "page of links")


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.slow] if each in SLOW_OUTPUTS else []) for each in OUTPUTS]
)
def test_a_full_disk_leaves_what_was_there(case, scored, tmp_path):
    name, arguments, named = OUTPUTS[case]
    folder = tmp_path / "out"
    given = [*over(name, scored, folder), *(each.replace("DIR", str(folder)) for each in arguments)]
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


def test_scores_and_translations_are_written_both_or_not_at_all(tmp_path):
    texts = {tmp_path / "a": "short\n", tmp_path / "b": "long\n" * 100}
    for file in texts:
        file.write_text("old\n")
    with full_disk(50), pytest.raises(WriteError, match=r"b: cannot write"):
        write_together(texts)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "old\n", "b": "old\n"}
    write_together(texts)
    assert {file: file.read_text() for file in tmp_path.iterdir()} == texts


# From when on the disk is full, in the course of training: before the Nth call of a function, and what the line names.

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
def test_a_disk_that_fills_during_training_ends_it_in_one_line(moment, tmp_path, cache, monkeypatch):
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
        ended = command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={run}")
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
        ended = command("train", f"resume={run}")
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


def test_a_full_disk_leaves_no_half_cache_or_tokenizer(trained, tmp_path):
    lay(tmp_path / "data", {"train.jsonl": ROW * 20_000})
    tokenizer = Tokenizer.load(trained / "tokenizer")
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
def test_standard_output_that_is_full_is_said(name, trained, tmp_path):
    with Path("/dev/full").open("w") as full:
        ended = command(name, *over(name, trained, tmp_path / "out"), stdout=full)
        refused(ended, "standard output: cannot write (No space left on device)")


@NOT_ROOT
def test_checkpoints_that_may_not_be_read_are_named(trained, tmp_path):
    run = copied(trained, tmp_path)
    (run / CHECKPOINT).chmod(0)
    refused(command("translate", f"run={run}", stdin=b"a\n"), "best.ckpt")


@pytest.fixture
def locked(scored, tmp_path) -> Iterator[Path]:
    """A run directory that may be read and not written to."""
    run = copied(scored, tmp_path)
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
        ended = command(name, *given, place.replace("DIR", str(folder)))
        assert ended.status == status, ended.err
    refused(ended, f"{locked}/", "cannot write (Permission denied): choose a place that can be written to")


@NOT_ROOT
def test_training_names_a_run_directory_that_is_read_only(locked, cache):
    refused(command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={locked}"), str(locked), "denied")
    refused(command("train", f"resume={locked}"), str(locked), "denied")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipe has a name here")
def test_what_is_no_plain_file_is_written_to_and_stays(trained, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ended = command("translate", f"run={trained}", f"output={tmp_path / 'pipe'}", stdin=b"the cat sleeps .\n")
    assert ended.status == 0, ended.err
    assert os.read(reader, 10_000).count(b"\n") == 1
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


# Held-out text that was trained on.


def test_held_out_pairs_inside_training_are_counted():
    def rows(*pairs):
        return Dataset.from_dict({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]})

    train = rows(("a", "b"), ("c", "d"), ("c", "d"), ("e f", "g"), ("", ""), (" ", "x"))
    held_out = rows(
        *(("a", "b"), ("c", "other"), ("c", "d"), ("c", "d"), ("e", "f g"), ("b", "a"), ("", ""), (" ", "x"))
    )
    assert count_shared(held_out, train) == 3
    assert count_shared(held_out.select([4, 1]), train) == 0
    assert count_shared(held_out.select([0]), train.select([1, 2])) == 0


def test_a_run_does_not_go_on_with_other_text(trained):
    tokenizer = Tokenizer.load(trained / "tokenizer")
    settings = {"max_length": 100, "max_ratio": 9.0, "max_tokens": 500, "seed": 1}

    def data(num_train: int) -> TranslationDataModule:
        pairs = grammar.corpus(num_train=num_train, num_val=5, num_test=0, max_words=12, seed=1)
        splits = {
            split: Dataset.from_dict(
                {"src": [pair.en for pair in pairs[split]], "tgt": [pair.vi for pair in pairs[split]]}
            )
            for split in ("train", "val")
        }
        return TranslationDataModule(splits, tokenizer, **settings, guided=False)

    state = data(40).state_dict()
    data(40).load_state_dict(state)
    with pytest.raises(UserError, match="the training text is not the one that the run was trained on"):
        data(39).load_state_dict(state)


@pytest.mark.parametrize("side", ["src", "tgt", "alignment"])
def test_a_run_does_not_go_on_with_another_validation_set(side, trained):
    tokenizer = Tokenizer.load(trained / "tokenizer")
    settings = {"max_length": 100, "max_ratio": 9.0, "max_tokens": 500, "seed": 1}

    def data(**changed: str) -> TranslationDataModule:
        train = Dataset.from_dict({"src": ["a b"], "tgt": ["c d"]})
        row = {"src": "e f", "tgt": "g h", "alignment": "0-0"} | changed
        return TranslationDataModule(
            {"train": train, "val": Dataset.from_list([row])}, tokenizer, **settings, guided=False
        )

    state = data().state_dict()
    data().load_state_dict(state)
    with pytest.raises(UserError, match="the validation set is not the one that the run was scored on"):
        data(**{side: "0-1"}).load_state_dict(state)


def test_a_validation_set_inside_training_is_warned_of(trained, caplog):
    pairs = grammar.corpus(num_train=40, num_val=10, num_test=0, max_words=12, seed=1)
    texts = {
        split: {"src": [pair.en for pair in rows], "tgt": [pair.vi for pair in rows]}
        for split, rows in pairs.items()
    }
    for side in ("src", "tgt"):
        texts["val"][side][:3] = texts["train"][side][:3]
    splits = {split: Dataset.from_dict(texts[split]) for split in ("train", "val")}
    settings = {"max_length": 100, "max_ratio": 9.0, "max_tokens": 500, "seed": 1}
    TranslationDataModule(splits, Tokenizer.load(trained / "tokenizer"), **settings, guided=False)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.message.startswith("3 of 10 val pairs are training pairs too")


def test_references_that_the_vocabulary_rewrites_are_warned_of(trained, caplog):
    decomposed = [unicodedata.normalize("NFD", each) for each in ("một ngôi nhà", "con mèo ngủ .")]
    splits = {
        "train": Dataset.from_dict({"src": ["a house"], "tgt": ["ngôi nhà"]}),
        "val": Dataset.from_dict({"src": ["one house", "the cat sleeps ."], "tgt": decomposed}),
    }
    settings = {"max_length": 100, "max_ratio": 9.0, "max_tokens": 500, "seed": 1}
    TranslationDataModule(splits, Tokenizer.load(trained / "tokenizer"), **settings, guided=False)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.message.startswith("100 % of the validation references hold characters")


def test_text_in_another_script_than_the_vocabulary_is_warned_of(trained, caplog):
    splits = {
        "train": Dataset.from_dict({"src": ["猫は", "a house", "は猫"], "tgt": ["nhà", "ngôi жnhà", "con"]}),
        "val": Dataset.from_dict({"src": ["寝", "one house"], "tgt": ["ngôi nhà", "con"]}),
    }
    settings = {"max_length": 100, "max_ratio": 9.0, "max_tokens": 500, "seed": 1}
    TranslationDataModule(splits, Tokenizer.load(trained / "tokenizer"), **settings, guided=False)
    said = [
        record.message.partition(":")[0] for record in caplog.records if record.levelno == logging.WARNING
    ]
    hold = "hold characters that the vocabulary does not know"
    assert said == [
        f"1 of 2 validation sources {hold} (寝)",
        f"2 of 3 training sources {hold} (猫, は)",
        f"1 of 3 training targets {hold} (ж)",
    ]


# What another process does, or an earlier run has left.


def test_a_new_run_is_not_written_over_an_old_one(trained, tmp_path, cache):
    run = copied(trained, tmp_path)
    before = digests(run)
    ended = command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={run}")
    refused(ended, f"{run} has a run already: go on with resume={run}, or give another run_dir=")
    assert digests(run) == before


def test_two_runs_of_one_second_have_directories_of_their_own(tmp_path):
    place = tmp_path / "logs" / "name" / "second"
    with claim_directory(place, may_rename=True) as first, claim_directory(place, may_rename=True) as second:
        (first / "config.yaml").touch()
        assert (first, second) == (place, place.with_name("second_2"))
        assert second.is_dir()
    assert [each.name for each in place.parent.iterdir()] == ["second"]  # nothing was written in the other


def test_a_run_that_leaves_nothing_leaves_no_folder_but_one_that_was_there(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError), claim_directory(tmp_path / "mine" / "a" / "b", may_rename=False):
        raise UserError("refused")
    assert [each.name for each in tmp_path.rglob("*")] == ["mine"]
    with claim_directory(tmp_path / "mine", may_rename=False):
        pass
    assert (tmp_path / "mine").is_dir()


def test_the_newest_run_is_one_that_was_scored(tmp_path):
    with pytest.raises(UserError, match="run is required"):
        newest_run(tmp_path)
    for number, name in enumerate(("old", "new", "unfinished", "evaluation")):
        if name != "evaluation":
            (tmp_path / name / "checkpoints").mkdir(parents=True)
        if name != "unfinished":
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "metrics.json").touch()
            os.utime(tmp_path / name / "metrics.json", (number, number))
    assert newest_run(tmp_path) == tmp_path / "new"


def test_the_log_of_a_run_waits_for_its_configuration(tmp_path):
    file = LogFile(tmp_path / "train.log")
    for number in range(3):
        file.emit(logging.LogRecord("name", logging.INFO, "path", 1, f"message {number}", None, None))
        if number == 1:
            assert not list(tmp_path.iterdir())
            (tmp_path / "config.yaml").touch()
    file.close()
    assert (tmp_path / "train.log").read_text() == "message 0\nmessage 1\nmessage 2\n"


def test_a_directory_that_another_process_trains_in_is_left_to_it(tmp_path, cache):
    fcntl = pytest.importorskip("fcntl")
    run = tmp_path / "run"
    run.mkdir()
    other = os.open(run, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        ended = command("train", *TINY, f"data.cache_dir={cache}", f"run_dir={run}")
    finally:
        os.close(other)
    refused(ended, f"{run} is where another process trains now")
    assert not (run / "config.yaml").exists()


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a: [1,", "config.yaml is not YAML"),
        ("", "config.yaml is broken"),
        ("- 1", "config.yaml is broken"),
        ("model: {_target_: x}\ndata: {}", "config.yaml is broken: it has no optimizer, "),
    ],
)
def test_a_run_with_a_broken_configuration_does_not_go_on(text, fragment, trained, tmp_path):
    run = copied(trained, tmp_path)
    config(text)(run)
    refused(command("train", f"resume={run}"), fragment)


def test_a_run_goes_on_where_it_is(trained, tmp_path):
    refused(command("train", f"resume={trained}", f"run_dir={tmp_path}"), "leave out run_dir=")


@pytest.mark.parametrize("content", [b"hello, this is no checkpoint\n", b"", b"\x80\x02c", b"PK\x03\x04"])
def test_what_is_no_checkpoint_is_set_aside(content, trained, tmp_path):
    run = copied(trained, tmp_path)
    (run / "checkpoints" / "last.ckpt").write_bytes(content)
    # best.ckpt is tried next; it has only weights
    with pytest.raises(UserError, match=r"best\.ckpt has no"):
        resume.load_checkpoint(run)
    assert (run / "checkpoints" / "last.ckpt.broken").read_bytes() == content


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="open files have no names here")
def test_a_link_stays_a_link_and_an_open_file_stays_open(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old\n")
    link.symlink_to(target)
    write_atomically(link, "new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    with target.open("a") as stream:
        descriptor = tmp_path / "stdout"
        descriptor.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        write_atomically(descriptor, "more\n")
        assert descriptor.is_symlink()
    assert target.read_text() == "new\nmore\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "stdout", "target"]


def test_scores_of_an_earlier_end_are_not_those_of_this_one(tmp_path):
    assert scores_after(tmp_path, 10) is None
    (tmp_path / "metrics_val.json").write_text('{"training": {"steps": 10}}')
    (tmp_path / "metrics.json").write_text('{"training": {"steps": 5}}')
    assert scores_after(tmp_path, 10) == tmp_path / "metrics_val.json"
    assert scores_after(tmp_path, 5) == tmp_path / "metrics.json"
    assert scores_after(tmp_path, 7) is None


def test_validation_scores_as_the_test_does():
    def scorers(*overrides: str) -> dict:
        return build(compose(*overrides).callbacks.score, "callbacks").scorers

    chosen = scorers("metrics.bleu.tokenize=char", "metrics.bleu.lowercase=true")
    result = metrics.score_with(chosen, ["AB cd"], ["ab cd"], num_bootstrap=0)["bleu"]
    assert "case:lc" in result["signature"]
    assert "tok:char" in result["signature"]
    assert result["score"] == pytest.approx(100)
    usual = metrics.score_with(scorers("metrics=classification"), ["ab cd"], ["ab cd"], num_bootstrap=0)
    assert "tok:13a" in usual["bleu"]["signature"]


def test_a_terminal_shows_control_characters_and_a_file_gets_them(monkeypatch, tmp_path):
    """A vocabulary may hold them, and so may a translation."""
    pty = pytest.importorskip("pty")
    text = "\x1b]0;owned\x07 nhà\t\x9b2J\r|"
    theirs, ours = pty.openpty()
    try:
        with open(ours, "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            terminal.escape_controls()
            print(text)
            sys.stdout.flush()
        assert os.read(theirs, 99).decode() == "\\x1b]0;owned\\x07 nhà\t\\x9b2J\\r|\r\n"
    finally:
        os.close(theirs)
    with (tmp_path / "file").open("w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        terminal.escape_controls()
        print(text, end="")
    assert (tmp_path / "file").read_bytes().decode() == text


def test_a_message_of_the_log_is_one_line_that_a_terminal_shows():
    record = logging.LogRecord("nmt", logging.WARNING, "", 0, "skipped: %s", ("\x1b[2J\na\x9b",), None)
    assert terminal.OneLine().format(record) == "skipped: \\x1b[2J a\\x9b"
    settings = OmegaConf.load(commands.CONFIGS / "hydra" / "job_logging" / "stderr.yaml")
    assert settings.formatters.plain["class"] == f"{terminal.OneLine.__module__}.OneLine"
