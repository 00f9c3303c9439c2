"""What a command is asked that cannot be done is refused in one line, before the work and with nothing written."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset
from omegaconf import OmegaConf

from nmt.data.encoding import Rows
from nmt.errors import UserError
from nmt.run.data import read_splits
from nmt.training.checks import check_lengths
from nmt.training.vocabulary import make_tokenizer
from tests.commands import refused, run_composed
from tests.small import FEW_PAIRS, SIZES, TINY, copied, digests, lay, over

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
    "no validation": ({"train.jsonl": ROW}, [f"{VOCABULARY}=9"], ["no val split", "prepare.py", "output=DIR"]),
    "nothing left": (both(ROW), [f"{VOCABULARY}=9", "data.max_length=2"], ["no training pair is left of 1"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXT)
def test_train_refuses_text_that_is_unsound(case, tmp_path):
    files, overrides, fragments = TEXT[case]
    lay(tmp_path / "data", files)
    before = digests(tmp_path / "data")
    places = {"data.path": "data", "data.cache_dir": "cache", "run_dir": "run"}
    usual = ["data=files", *(f"{key}={tmp_path / name}" for key, name in places.items())]
    usual += ["data.src_lang=en", "data.tgt_lang=vi"]
    refused(run_composed("train", *usual, *overrides), *fragments)
    assert digests(tmp_path / "data") == before
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert not [name for name in digests(tmp_path) if name.endswith(".tmp")]


# Settings. Each case: what is set, and what the line says.

SETTINGS = {
    "mismatched sizes": (
        ["attention=luong_dot", "encoder.output_size=24"],
        ["query_size == key_size", "24"],
    ),
    "small batch": (["data.max_tokens=3"], ["max_tokens=3"]),
    "unknown language": (["data.src_lang=xx"], ["data.src_lang=xx", "en and vi"]),
    "unknown key": (["model.hiden_size=3"], ["'model.hiden_size'", "did you mean '"]),
    "ties without a joint vocabulary": (
        ["data.tokenizer.joint=false", "data.tokenizer.vocab_size=200", "model.tie_source=true"],
        ["model.tie_source=true", "joint"],
    ),
    "a key of another model": (["model=transformer", "encoder.size=8"], ["'encoder.size'", "belongs to encoder="]),
    "a missing tokenizer model": (["data.tokenizer.model=missing.model"], ["missing.model"]),
    "a vocabulary beside its model": (
        ["data.tokenizer.model=a.model", "data.tokenizer.vocab_size=300"],
        ["data.tokenizer.vocab_size has no effect with data.tokenizer.model=a.model"],
    ),
    "momentum that is not there": (
        ["optimizer=sgd", "optimizer.momentum=0"],
        ["optimizer: Nesterov momentum requires a momentum"],
    ),
    "a number for a callback": (["+callbacks.foo=1"], ["callbacks.foo=1: give callbacks.foo._target_=CLASS"]),
    "a callback for a score": (
        ["+metrics.x._target_=nmt.training.callbacks.ProgressBar"],
        ["metrics.x._target_=nmt.training.callbacks.ProgressBar: a run may not build this here"],
    ),
    "a key the optimizer has not got": (["+optimizer.foo=1"], ["optimizer.foo: Adam has no such setting"]),
    "a check before training": (["+trainer.num_sanity_val_steps=2"], ["trainer.num_sanity_val_steps=2 has no effect"]),
    "a logger of the trainer": (["+trainer.logger=false"], ["trainer.logger=false has no effect", "leave it out"]),
    "a cosine without an end": (["trainer.max_epochs=-1"], ["scheduler.total_steps, or"]),
    "no end": (["trainer.max_epochs=null"], ["trainer.max_epochs=null: nothing says when training ends"]),
    "Lightning's thousand epochs": (["~trainer.max_epochs"], ["would leave trainer.max_epochs to a library"]),
    "clipping of values": (["+trainer.gradient_clip_algorithm=value"], ["gradient_clip_algorithm=value has no effect"]),
    "no checkpoints": (["callbacks=minimal", "~callbacks.checkpoint"], ["callbacks.checkpoint is missing"]),
    "checkpoints elsewhere": (
        ["callbacks.checkpoint.directory=elsewhere"],
        ["callbacks.checkpoint.directory=elsewhere", "leave it out"],
    ),
    "an attention for a Transformer": (
        ["model=transformer", "attention=bahdanau"],
        ["attention= has no effect with what else is chosen"],
    ),
    "a penalty chosen for a beam of one": (
        ["decoding=tuned", "decoding.beam_size=1"],
        ["decoding.length_alpha=null", "beam_size=1: give a number"],
    ),
    "a penalty chosen beside coverage": (["decoding=tuned", "decoding.coverage_beta=0.2"], ["coverage_beta=0.2: give"]),
    "a penalty without a beam": (["decoding=greedy", "decoding.coverage_beta=0.2"], ["has no effect with beam_size=1"]),
    "a penalty chosen and given": (["decoding=tuned", "decoding.length_alpha=0.5"], ["leave one of them out"]),
    "no metrics": (["~metrics"], ["nothing gives metrics, which is needed: leave out ~metrics"]),
    "word for an interval": (["trainer.val_check_interval=abc"], ["trainer.val_check_interval=abc: "]),
    "a score nobody gives": (
        ["callbacks.checkpoint.monitor=val/foo"],
        ["callbacks.checkpoint.monitor=val/foo", "val/bleu"],
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
    "guided without attention": (["attention=none", "guided_alignment=1"], ["guides attention"]),
    "words cut otherwise": (
        ["data.tokenizer.model_type=word", "data.tokenizer.sampling=0.1"],
        ["data.tokenizer.sampling=0.1", "model_type=word", "leave it out"],
    ),
    "unknown words without attention": (
        ["attention=none", "decoding.replace_unknown=true"],
        ["decoding.replace_unknown=true", "attention"],
    ),
    "a dictionary for nothing": (
        ["decoding.dictionary=pyproject.toml"],
        ["dictionary=pyproject.toml", "replace_unknown=true"],
    ),
    "no such dictionary": (
        ["decoding.replace_unknown=true", "decoding.dictionary=absent.tsv"],
        ["absent.tsv", "no such file"],
    ),
    "unknown experiment": (["experiment=none"], ["no such choice 'experiment/none'"]),
    "unknown choice": (["model=grue"], ["no such choice 'model/grue'; model is one of: gru,"]),
    "no choice": (["attention=null"], ["a choice is the name of a file", "attention=null"]),
    "no key": (["nonsense"], ["nonsense", "KEY=VALUE"]),
    "cache in a file": (["data.cache_dir=/dev/null/cache"], ["/dev/null/cache: cannot write the cache"]),
    "run in a file": (["run_dir=/dev/null/run"], ["/dev/null/run: Not a directory"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SETTINGS)
def test_train_refuses_settings_that_cannot_be(case, tmp_path, small_cache):
    overrides, fragments = SETTINGS[case]
    given = [each.partition("=")[0] for each in overrides]
    if "data.tokenizer.model" in given:
        given.append("data.tokenizer.vocab_size")
    usual = [*SIZES, *FEW_PAIRS, f"data.cache_dir={small_cache}", f"run_dir={tmp_path / 'run'}"]
    told = [*(each for each in usual if each.partition("=")[0] not in given), *overrides]
    refused(run_composed("train", *told), *fragments)
    assert not (tmp_path / "run" / "checkpoints").exists()


MODELS = {
    "heads that do not divide": (["model=transformer", "decoder.num_heads=3"], "num_heads must divide model.size"),
    "sentences of no document": (["attention=sentences"], "set data.tokenizer.documents=true"),
    "sentences of another encoder": (["attention=hierarchical", "encoder=convolutional"], "set encoder=hierarchical"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_cannot_be_is_refused_before_the_text_is_read(case, tmp_path):
    overrides, message = MODELS[case]
    no_text = ["data=files", f"data.path={tmp_path}", "data.src_lang=en", "data.tgt_lang=vi"]
    refused(run_composed("train", *no_text, *overrides, f"run_dir={tmp_path / 'run'}"), message)
    assert not (tmp_path / "run").exists()


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
def test_what_cannot_be_asked_of_a_run_is_refused_before_the_work(case, untrained, tmp_path):
    name, asked, fragments = REQUESTS[case]
    file = tmp_path / "kept"
    file.write_text("kept\n")

    def spelt(text: str) -> str:
        return text.replace("FILE", str(file)).replace("RUN", str(untrained))

    before = digests(untrained)
    ended = run_composed(name, *over(name, untrained, tmp_path / "out"), *map(spelt, asked))
    refused(ended, *map(spelt, fragments))
    assert "translate:" not in ended.err  # no bar: nothing was decoded
    assert digests(untrained) == before
    assert file.read_text() == "kept\n"


def test_data_that_name_no_text_and_pairs_too_long_for_their_positions_are_refused():
    with pytest.raises(UserError, match="choose data=files, data=grammar or another"):
        read_splits(OmegaConf.create({"path": None, "reader": None}))
    rows = Rows(Dataset.from_dict({}), np.array([3, 9]), np.array([4, 5]))
    check_lengths(SimpleNamespace(max_length=9), rows)
    check_lengths(SimpleNamespace(max_length=None), rows)
    with pytest.raises(UserError, match=r"pair has 9 pieces, .* give positions.max_length=9 or"):
        check_lengths(SimpleNamespace(max_length=8), rows)


def test_what_only_training_reads_is_refused_by_evaluate(untrained, tmp_path):
    given = [f"run={untrained}", "data=grammar", "data.num_test=5", f"output={tmp_path / 'out'}"]
    refused(run_composed("evaluate", *given, "data.max_length=5"), "data.max_length is for training")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_model_is_for_both_sides_or_for_one_each(untrained):
    file = str(untrained / "tokenizer" / "joint.model")
    settings = {"model": file, "joint": False}
    with pytest.raises(UserError, match=r"models given are of both sides: give data.tokenizer.joint=true"):
        make_tokenizer(OmegaConf.create({"tokenizer": settings}), Dataset.from_dict({}))
    settings = {"model": [file, file], "joint": True}
    with pytest.raises(
        UserError, match=r"models given are of one side each: give data.tokenizer.joint=false"
    ):
        make_tokenizer(OmegaConf.create({"tokenizer": settings}), Dataset.from_dict({}))


def test_a_new_run_is_not_written_over_an_old_one(untrained, tmp_path, small_cache):
    run = copied(untrained, tmp_path)
    before = digests(run)
    ended = run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={run}")
    refused(ended, f"{run} has a run already: go on with resume={run}, or give another run_dir=")
    assert digests(run) == before


def test_a_directory_that_another_process_trains_in_is_left_to_it(tmp_path, small_cache):
    fcntl = pytest.importorskip("fcntl")
    run = tmp_path / "run"
    run.mkdir()
    other = os.open(run, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        ended = run_composed("train", *TINY, f"data.cache_dir={small_cache}", f"run_dir={run}")
    finally:
        os.close(other)
    refused(ended, f"{run} is where another process trains now")
    assert not (run / "config.yaml").exists()


def test_a_run_goes_on_where_it_is(untrained, tmp_path):
    refused(run_composed("train", f"resume={untrained}", f"run_dir={tmp_path}"), "leave out run_dir=")
