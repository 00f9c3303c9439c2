"""The measuring instrument: what it counts, and the arithmetic of what it prints. Never how fast anything is."""

import json
import sys
from pathlib import Path

import hydra
import lightning as L
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from nmt import benchmark, kernels
from nmt.benchmark import TrainingStep, steps, subjects
from nmt.commands import benchmark as command
from nmt.commands import early_checks
from nmt.commands.own_text import with_recipe
from nmt.config.commands import check_settings
from nmt.data.batching import Batch, TokenBatchSampler
from nmt.errors import UserError
from tests.commands import CONFIGS
from tests.small_steps import PAD, SIZES, compose, make_batches, make_step

TINY_DATA = ("data.num_train=200", "data.num_val=10", "data.num_test=10", "data.tokenizer.vocab_size=300")


# --- what is counted ------------------------------------------------------------------------------------


def test_tokens_and_padding_are_those_of_a_count_by_hand():
    batches = make_batches()
    tokens = sum(1 for batch in batches for row in batch.tgt_out.tolist() for piece in row if piece != PAD)
    assert benchmark.num_target_tokens(batches, PAD) == tokens
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 20, (2, 300))
    sampler = TokenBatchSampler(src, tgt, max_tokens=64, shuffle=True, seed=1)
    cells, padded = {"source": 0, "target": 0}, {"source": 0, "target": 0}
    for rows in sampler:
        for side, lengths in (("source", src), ("target", tgt)):
            longest = max(lengths[row] for row in rows)
            for row in rows:
                cells[side] += longest
                padded[side] += longest - lengths[row]
    shares = sampler.padding_shares()
    assert shares["source"] == pytest.approx(padded["source"] / cells["source"])
    assert shares["target"] == pytest.approx(padded["target"] / cells["target"])
    assert shares["both"] == pytest.approx(sum(padded.values()) / sum(cells.values()))


# --- what is timed --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:You defined a .validation_step.")
def test_the_timed_step_is_the_step_of_a_training_run():
    """The same weights as Lightning's trainer makes of the same batches; the clipping takes effect."""
    batches, clip_norm = make_batches(3), 0.1
    timed, trained = (make_step("gru", "model.dropout=0", clip_norm=clip_norm) for _ in range(2))
    assert benchmark.train_seconds(timed, batches) > 0
    trainer = L.Trainer(
        max_epochs=1,
        limit_val_batches=0,
        accelerator="cpu",
        gradient_clip_val=clip_norm,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(trained.module, DataLoader(batches, batch_size=None))
    for ours, theirs in zip(timed.module.parameters(), trained.module.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_timed_translation_has_the_same_length(beam_size, monkeypatch):
    search, found = steps.search, []

    def remember(*arguments, **settings):
        found.extend(search(*arguments, **settings))
        return found

    monkeypatch.setattr(steps, "search", remember)
    translator = make_step("gru").module.translator
    sources = [batch.src for batch in make_batches()]
    benchmark.decode_seconds(translator, sources, beam_size=beam_size, length=7)
    assert [len(hypotheses[0].ids) for hypotheses in found] == [7] * 6


@pytest.mark.parametrize("chosen", ["fast", "plain"])
def test_a_turn_measures_what_its_figures_are_called(chosen, monkeypatch):
    """Greedy search is without a beam, both are by the variant's kernels, and waiting is a share of the whole."""
    searched = []

    def remember(translator, sources, *, beam_size, length):
        searched.append((beam_size, "fast" if kernels.fast(torch.zeros(1)) else "plain"))
        return 2.0 * beam_size

    monkeypatch.setattr(subjects, "decode_seconds", remember)
    monkeypatch.setattr(subjects, "train_seconds", lambda step, batches: 3.0)
    monkeypatch.setattr(benchmark.Subject, "_waiting_seconds", lambda *_: 1.0)
    decoding = command.decoding_of(compose("beam_size=4"), torch.device("cpu"))
    batches = make_batches()
    subject = benchmark.Subject(lambda: make_step("gru", kernels=chosen), [batches] * 2, decoding=decoding)
    subject.take_turn(1, batches)
    assert searched == [(1, chosen), (4, chosen)]
    num_sentences, num_tokens = 6, sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    figures = {key: value for key, [value] in subject.figures.items()}
    assert figures["loader_share"] == 0.25
    assert figures["train_tokens_per_second"] == num_tokens / 3
    assert figures["greedy_sentences_per_second"] == num_sentences / 2
    assert figures["beam_sentences_per_second"] == num_sentences / 8


def test_each_turn_has_other_batches_while_there_are_any():
    assert benchmark.batches_per_turn([1, 2, 3, 4, 5], 3, 2) == [[1, 2], [3, 4], [5, 1]]
    assert benchmark.batches_per_turn([1], 2, 3) == [[1], [1]]


def test_int8_translates_with_a_copy_and_leaves_training_alone(monkeypatch):
    monkeypatch.setattr("nmt.kernels.int8.LEAST", 0)
    step = make_step("gru")
    decoding = command.decoding_of(compose("int8=true", "beam_size=2"), torch.device("cpu"))
    assert decoding[:3] == (2, 2, 16)
    subject = benchmark.Subject(lambda: step, [make_batches()], decoding=decoding)
    before = [weight.clone() for weight in step.module.parameters()]
    decoder = subject._decoder()
    assert not isinstance(decoder.output, nn.Linear)
    assert subject._decode_seconds(decoder, [make_batches()[0].src], beam_size=2) > 0
    assert isinstance(step.module.translator.output, nn.Linear)
    for weight, same in zip(step.module.parameters(), before, strict=True):
        assert torch.equal(weight, same)
    step(make_batches()[0])


def test_int8_is_for_the_cpu():
    with pytest.raises(UserError, match=r"int8=true is for the CPU, and the device is cuda: give device=cpu"):
        command.decoding_of(compose("int8=true"), torch.device("cuda"))


def test_memory_is_the_most_that_was_held_at_once():
    size = 2**26  # bytes: far from what else the process does

    def work() -> None:
        for _ in range(3):
            torch.ones(size // 4).mul_(2)

    memory = benchmark.peak_memory_of(work, torch.device("cpu"))
    assert size <= memory < 1.5 * size


# --- figures --------------------------------------------------------------------------------------------


def test_ratios_are_taken_turn_by_turn_and_between_files_at_their_extremes():
    """A machine that slows by half between the turns changes no ratio of what took turns."""
    assert benchmark.paired_ratio([30, 15, 33], [10, 5, 10]) == {
        "median": 3.0,
        "min": 3.0,
        "max": 3.3,
        "values": [3.0, 3.0, 3.3],
    }
    ratio = benchmark.extreme_ratio(benchmark.summary([4, 6, 5]), benchmark.summary([1, 2, 4]))
    assert ratio == {"median": 5 / 2, "min": 4 / 4, "max": 6 / 1}


def test_two_results_without_a_variant_in_common_are_not_compared():
    one, other = ({"machine": {}, "variants": {name: {"measures": {}}}} for name in ("gru", "lstm"))
    with pytest.raises(ValueError, match="gru; lstm"):
        benchmark.ratio_table(one, other)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        '{"machine": {}, "variants": {"gru": {"measures": {"loader_share": 3}}}}',
    ],
)
def test_a_file_that_holds_no_measurements_is_named(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"a\.json.* was not written by benchmark\.py"):
        command.print_ratios(_files(tmp_path / "a.json"))


# --- the command ----------------------------------------------------------------------------------------


def test_attentions_take_turns_on_the_same_batches_and_everything_is_told(tmp_path, capsys, monkeypatch):
    trained: list[list[Batch]] = []
    learners: list[TrainingStep] = []

    def remember(step, batches):
        trained.append(batches)
        learners.append(step)
        return steps.train_seconds(step, batches)

    monkeypatch.setattr(subjects, "train_seconds", remember)
    overrides = [
        *(*TINY_DATA, *SIZES["gru"], "attentions=[luong_dot,none]", "startup=false", "device=cpu"),
        *("data.max_tokens=256", "num_batches=2", "repeats=2", "decode_length=3", "beam_size=2"),
        *(f"data.cache_dir={tmp_path}/cache", f"output={tmp_path}/result.json"),
    ]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("benchmark", overrides=["name=tiny", *overrides])
        result = command.benchmark(cfg, ["name=tiny", *overrides])
    printed = capsys.readouterr().out
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert list(result["variants"]) == ["luong_dot", "none"]
    assert result["data"]["num_batches"] == 2
    turns = [trained[-6 + 2 * turn] for turn in range(3)]  # the calls before them are for the memory
    assert all(turn is same for turn, same in zip(turns, trained[-5::2], strict=True))
    one, other = learners[-6:-4]
    assert learners[-4:] == [other, one, one, other]
    assert len({tuple(batch.indices.tolist()) for turn in turns for batch in turn}) == 3 * 2
    pad_id = int(min(batch.src.min() for turn in turns for batch in turn))
    assert result["data"]["num_target_tokens"] == sum(
        int((batch.tgt_out != pad_id).sum()) for turn in turns[1:] for batch in turn
    )
    for variant in result["variants"].values():
        measures = variant["measures"]
        assert set(measures) >= set(benchmark.LABELS) - {"memory_mib", "startup_seconds"}
        assert all(len(measures[key]["values"]) == 2 for key in ("loader_share", "beam_sentences_per_second"))
    for text in ("ratio to luong_dot", "training, target tokens/s", "padding", "torch"):
        assert text in printed
    command.print_ratios(_files(tmp_path / "result.json"))
    assert "1.000" in capsys.readouterr().out


def _files(file: Path):
    return compose(f"compare=[{file},{file}]").compare


def test_training_is_told_what_the_benchmark_was_told():
    overrides = ["name=tiny", *TINY_DATA, *SIZES["gru"], "num_batches=1", "device=cpu", "attention=none"]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        told = command.for_train(hydra.compose("benchmark", overrides=overrides), overrides)
        cfg = hydra.compose("train", overrides=told)
    assert "num_batches=1" not in told
    assert {*TINY_DATA, *SIZES["gru"], "attention=none", "trainer.accelerator=cpu"} <= set(told)
    assert cfg.callbacks.leave._target_ == "nmt.benchmark.Leave"


def test_a_measured_start_takes_no_recipe(tmp_path):
    for lang in ("en", "vi"):
        (tmp_path / f"train.{lang}").write_text("a b\n", "utf-8")
    overrides = ["data=files", f"data.path={tmp_path}", "data.src_lang=en", "data.tgt_lang=vi", "name=tiny"]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        told = command.for_train(hydra.compose("benchmark", overrides=overrides), overrides)
    assert with_recipe(told) == told
    assert with_recipe(overrides) != overrides


def test_a_measured_start_has_a_cache_of_its_own(monkeypatch):
    says = "import sys; sys.exit(str([each for each in sys.argv if each.startswith('data.cache_dir')]))"
    monkeypatch.setattr(command, "TRAIN", (sys.executable, "-c", says))
    overrides = ["name=tiny", "data.cache_dir=mine"]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("benchmark", overrides=overrides)
        with pytest.raises(UserError, match=r"failed: \['data\.cache_dir=[^',]+/cache'\]$"):
            command.startup_seconds(cfg, overrides)


def test_a_start_that_fails_says_why(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what it prints then comes last
    says = "import sys; print('a warning'); sys.exit('train.py: error: no such file')"
    monkeypatch.setattr(command, "TRAIN", (sys.executable, "-c", says))
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("benchmark", overrides=["name=tiny"])
        with pytest.raises(UserError, match=r"failed: train\.py: error: no such file"):
            command.startup_seconds(cfg, [])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["variants={a:['data.max_tokens=64']}"], "variant a changes data"),
        (["attentions=[none]", "variants={a:[]}"], "not both"),
        (["attentions=[none,none]"], "names one twice"),
        (["attentions=[]"], "nothing to compare"),
        (["attentions=5"], "attentions=5: Input should be a valid array"),
        (["variants={a:foo}"], "variants.a=foo: Input should be a valid array"),
        (["variants={a:['beam_size=null']}"], "beam_size=null: Input should be a valid integer"),
        (["repeats=0"], "repeats=0"),
        (["precision=16"], "precision=16"),
        (["device=tpu"], "device=tpu"),
        (["output=no_such_folder/a.json"], "no folder no_such_folder"),
        (["compare=[no_such_file,README.md]"], "no_such_file: no such file"),
        (["compare=[README.md,README.md]", "output=a.json"], "output= has no effect with compare="),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(overrides, message):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("benchmark", overrides=["name=tiny", *overrides])
        with pytest.raises(UserError, match=message):  # noqa: PT012
            check_settings(cfg, "benchmark")
            early_checks.check_benchmark(cfg, overrides)
            command.benchmark(cfg, overrides)
