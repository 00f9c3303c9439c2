"""The measuring instrument: what it counts, and the arithmetic of what it prints. Never how fast anything is."""

import json
import sys
from functools import partial
from pathlib import Path

import datasets
import hydra
import lightning as L
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from nmt import benchmark, kernels
from nmt.benchmark import Product, TrainingStep, corpora, steps, subjects
from nmt.benchmark.corpora import Start
from nmt.commands import benchmark as command
from nmt.commands import early_checks, growth, speedrun, starts
from nmt.config.build import build
from nmt.config.commands import check_settings
from nmt.data.batching import Batch, TokenBatchSampler, collate
from nmt.errors import UserError
from nmt.training.module import TranslationModule
from nmt.training.schedules import constant

ROOT = Path(__file__).resolve().parents[1]
PAD, BOS, EOS, VOCAB = 0, 1, 2, 23
SIZES = {"gru": ("encoder.size=8", "decoder.size=8", "model.size=8"), "transformer": ("model.size=8",)}
SIZES["lstm"] = SIZES["gru"]
TINY_DATA = ("data.num_train=200", "data.num_val=10", "data.num_test=10", "data.tokenizer.vocab_size=300")


def compose(*overrides: str):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        return hydra.compose("benchmark", overrides=["name=tiny", *overrides])


IN_PLACE = {torch.ops.aten.addmm_: lambda _, left, right, **__: 2 * left[0] * left[1] * right[1]}


def make_step(
    model: str,
    *overrides: str,
    clip_norm: float = 1.0,
    kernels: str = "fast",
    precision: str = "32-true",
) -> TrainingStep:
    cfg = compose(f"model={model}", *SIZES[model], *overrides)
    torch.manual_seed(0)
    ids = {"src_vocab_size": VOCAB, "tgt_vocab_size": VOCAB, "joint_vocabulary": True}
    special = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
    module = TranslationModule(
        build(cfg.model, "model", **ids, **special),
        optimizer=hydra.utils.instantiate(cfg.optimizer),
        scheduler=partial(constant, warmup_steps=0),
        label_smoothing=0.1,
        guided_alignment=0.0,
    )
    optimizer = module.optimizer_factory(module.parameters())
    return TrainingStep(module, optimizer, clip_norm=clip_norm, precision=precision, kernels=kernels)


def make_batches(num_batches: int = 2):
    rng = np.random.default_rng(0)
    rows = [
        {
            "index": i,
            "src_ids": [*rng.integers(3, VOCAB, n), EOS],
            "tgt_ids": [*rng.integers(3, VOCAB, m), EOS],
        }
        for i, (n, m) in enumerate(rng.integers(1, 9, (3 * num_batches, 2)))
    ]
    return [
        collate(rows[start : start + 3], pad_id=PAD, bos_id=BOS) for start in range(0, 3 * num_batches, 3)
    ]


def operations(product: Product) -> int:
    """Multiplications and additions."""
    return 2 * product.num * product.rows * product.inner * product.columns


# --- what is counted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x: nn.Linear(8, 3)(x), {(1, 20, 8, 3): 1}),
        (lambda x: x @ torch.ones(8), {(1, 20, 8, 1): 1}),
        (lambda x: nn.GRU(8, 16, batch_first=True)(x), {(1, 20, 8, 48): 1, (1, 4, 16, 48): 5}),
        (lambda x: nn.LSTM(8, 16, batch_first=True)(x), {(1, 20, 8, 64): 1, (1, 4, 16, 64): 5}),
        (lambda x: F.scaled_dot_product_attention(x, x, x), {(4, 5, 8, 5): 1, (4, 5, 5, 8): 1}),
    ],
    ids=["linear", "vector", "gru", "lstm", "fused attention"],
)
def test_products_are_those_of_the_equations(run, expected):
    """x [4, 5, 8]; recurrent layers read all 5 positions at once and step their states one by one."""
    products = benchmark.count_products(partial(run, torch.randn(4, 5, 8)))
    assert products == {Product(*shape, torch.float32): count for shape, count in expected.items()}


@pytest.mark.parametrize("kernels", ["fast", "plain"])
@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_a_training_step_multiplies_as_often_as_pytorch_counts(model, kernels, monkeypatch):
    """But for the gradient of the encoder's first states, zeros that nothing learns: torch's layer leaves it out."""
    # PyTorch does not count oneDNN's products.
    monkeypatch.setattr("nmt.kernels.packed._available", lambda dtype: False)
    step, batches = make_step(model, kernels=kernels), make_batches()
    products = benchmark.products_of(step, batches)
    ours = sum(count * operations(part) for each, count in products.items() for part in each.with_gradients())
    unlearnt = (
        sum(2 * (2 * len(batch.src) * 8 * 24) for batch in batches)
        if (model, kernels) == ("gru", "plain")
        else 0
    )
    with (
        FlopCounterMode(display=False, custom_mapping=IN_PLACE) as counter,
        sdpa_kernel(SDPBackend.MATH),
    ):
        for batch in batches:
            step(batch)
    assert ours - unlearnt == counter.get_total_flops()


def test_what_is_computed_twice_to_save_memory_counts_once():
    plain, twice = (make_step("gru", f"decoder.gradient_checkpointing={each}") for each in ("false", "true"))
    batches = make_batches()
    one, other = (benchmark.products_of(step, batches) for step in (plain, twice))
    assert sum(count * operations(each) for each, count in one.items()) == sum(
        count * operations(each) for each, count in other.items()
    )


def test_counting_leaves_the_random_numbers_of_training_alone():
    step, batches = make_step("gru"), make_batches()
    state = torch.get_rng_state()
    benchmark.products_of(step, batches)
    assert torch.equal(state, torch.get_rng_state())


def test_products_and_their_gradients_take_time():
    product = Product(1, 3, 4, 5, torch.float32)
    assert [tuple(each)[:4] for each in product.with_gradients()] == [
        (1, 3, 4, 5),
        (1, 3, 5, 4),
        (1, 4, 3, 5),
    ]
    assert (
        benchmark.products_seconds({product: 6, Product(2, 3, 4, 5, torch.float32): 2}, torch.device("cpu"))
        > 0
    )


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
    monkeypatch.setattr(subjects, "products_seconds", lambda products, device: 2.4)
    monkeypatch.setattr(benchmark.Subject, "_waiting_seconds", lambda *_: 1.0)
    decoding = command.decoding_of(compose("beam_size=4"), torch.device("cpu"))
    batches = make_batches()
    subject = benchmark.Subject(lambda: make_step("gru", kernels=chosen), [batches] * 2, decoding=decoding)
    subject.take_turn(1, batches)
    assert searched == [(1, chosen), (4, chosen)]
    num_sentences, num_tokens = 6, sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    figures = {key: value for key, [value] in subject.figures.items()}
    assert figures["loader_share"] == 0.25
    assert figures["efficiency"] == pytest.approx(0.8)
    assert figures["train_tokens_per_second"] == num_tokens / 3
    assert figures["greedy_sentences_per_second"] == num_sentences / 2
    assert figures["beam_sentences_per_second"] == num_sentences / 8


def test_products_are_in_the_precision_that_is_measured():
    batches = make_batches(1)
    for precision, dtype in (("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)):
        step = make_step("transformer", precision=precision)
        assert {product.dtype for product in benchmark.products_of(step, batches)} >= {dtype}


def test_each_turn_has_other_batches_while_there_are_any():
    assert benchmark.in_turns([1, 2, 3, 4, 5], 3, 2) == [[1, 2], [3, 4], [5, 1]]
    assert benchmark.in_turns([1], 2, 3) == [[1], [1]]


def test_int8_translates_with_a_copy_and_leaves_training_alone():
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
    if memory is None:
        pytest.skip("this system does not tell")
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
        '{"machine": {}, "variants": {"gru": {}}}',
        '{"machine": {}, "variants": {"gru": {"measures": {"efficiency": 3}}}}',
        '{"machine": {}, "variants": ["gru"]}',
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
        f"output={tmp_path}/result.json",
    ]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("benchmark", overrides=["name=tiny", *overrides])
        result = command.benchmark(cfg, ["name=tiny", *overrides])
    assert datasets.is_caching_enabled()  # again, for what follows in this process
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
    assert result["data"]["num_pairs"] == 210
    for variant in result["variants"].values():
        measures = variant["measures"]
        assert set(measures) >= set(benchmark.LABELS) - {"memory_mib", "startup_seconds"}
        assert all(len(measures[key]["values"]) == 2 for key in ("efficiency", "beam_sentences_per_second"))
    for text in ("ratio to luong_dot", "training, target tokens/s", "padding", "torch"):
        assert text in printed
    command.print_ratios(_files(tmp_path / "result.json"))
    assert "1.000" in capsys.readouterr().out


def _files(file: Path):
    return compose(f"compare=[{file},{file}]").compare


def test_training_is_told_what_the_benchmark_was_told():
    overrides = ["name=tiny", *TINY_DATA, *SIZES["gru"], "num_batches=1", "device=cpu", "attention=none"]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        told = starts.for_train(hydra.compose("benchmark", overrides=overrides), overrides)
        cfg = hydra.compose("train", overrides=told)
    assert "num_batches=1" not in told
    assert {*TINY_DATA, *SIZES["gru"], "attention=none", "trainer.accelerator=cpu"} <= set(told)
    assert cfg.callbacks.leave._target_ == "nmt.benchmark.Leave"


def test_a_start_that_fails_says_why(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what it prints then comes last
    says = "import sys; print('a warning'); sys.exit('train.py: error: no such file')"
    monkeypatch.setattr(starts, "TRAIN", (sys.executable, "-c", says))
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("benchmark", overrides=["name=tiny"])
        with pytest.raises(UserError, match=r"failed: train\.py: error: no such file"):
            starts.startup_seconds(cfg, [])


def test_a_process_is_watched_to_its_end_with_the_memory_that_is_its_own():
    busy = "import time; held = b'x' * (200 * 2**20); time.sleep(0.5)"
    start = benchmark.watch([sys.executable, "-c", busy], "it")
    assert start.seconds > 0.5
    assert start.peak is None or 200 * 2**20 < start.peak < 300 * 2**20


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(corpora, "_POOL", 500)


def test_a_corpus_has_as_many_pairs_as_it_should(tmp_path, small_pool):
    size = benchmark.write_corpus(tmp_path / "text", 50, num_held_out=3)
    files = {path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "text").iterdir()}
    assert {name: len(lines) for name, lines in files.items()} == {
        f"{split}.{lang}": number
        for split, number in (("train", 50), ("val", 3), ("test", 3))
        for lang in ("en", "vi")
    }
    assert size == sum((tmp_path / "text" / f"train.{lang}").stat().st_size for lang in ("en", "vi"))
    assert len(set(files["train.en"])) == 50


@pytest.mark.parametrize("really", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_corpora_cost_is_told_for_each_size(really, tmp_path, capsys, monkeypatch, small_pool):
    sizes = [400] if really else [400, 900]
    overrides = [
        "name=tiny",
        f"corpora={sizes}".replace(" ", ""),
        f"output={tmp_path}/a.json",
        "data.tokenizer.vocab_size=400",
        "data.max_tokens=512",
        "device=cpu",
        "attention=luong_dot",
    ]
    watch, commands = benchmark.watch, []

    def noted(command, what):
        commands.append(command)
        return watch(command, what) if really else Start(1.0, None)

    monkeypatch.setattr(benchmark, "watch", noted)
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        results = starts.corpora(hydra.compose("benchmark", overrides=overrides), overrides)
    for told in ("attention=luong_dot", "trainer.accelerator=cpu", "data.max_tokens=512"):
        assert all(told in command for command in commands)
    assert sum("data.streaming=1000" in command for command in commands) == len(sizes)
    assert len(commands) == 3 * len(sizes)
    assert [each["num_pairs"] for each in results] == sizes
    assert json.loads((tmp_path / "a.json").read_text())["corpora"] == results
    for each in results:
        assert each["num_batches"] >= each["num_pairs"] * 20 / 512
        assert each["sampler_bytes_per_pair"] >= 20
        assert all(each[start]["seconds"] > 0 for start in ("first", "cached", "streamed"))
    assert "streamed start" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["variants={a:['data.max_tokens=64']}"], "variant a changes data"),
        (["attentions=[none]", "variants={a:[]}"], "not both"),
        (["attentions=[]"], "nothing to compare"),
        (["attentions=5"], "attentions=5: Input should be a valid array"),
        (["variants=foo"], "variants=foo: Input should be an object"),
        (["variants={a:foo}"], "variants.a=foo: Input should be a valid array"),
        (["variants={a:['beam_size=null']}"], "beam_size=null: Input should be a valid integer"),
        (["repeats=0"], "repeats=0"),
        (["repeats=2.5"], "repeats=2.5: Input should be a valid integer"),
        (["decode_length=long"], "decode_length=long: Input should be a valid integer"),
        (["precision=16"], "precision=16"),
        (["int8=4"], "int8=4: Input should be a valid boolean"),
        (["variants={a:['beam_size=0']}"], "beam_size=0"),
        (["device=tpu"], "device=tpu"),
        (["output=no_such_folder/a.json"], "no folder no_such_folder"),
        (["compare=[no_such_file,README.md]"], "no_such_file: no such file"),
        (["num_decode_batches=0"], "num_decode_batches=0: Input should be greater than or equal to 1"),
        (["growth=[depths]"], "growth=.*: Input should be 'lengths', 'widths', 'vocabularies' or 'corpora'"),
        (["growth=[]"], "growth=.*at least 1 item"),
        (["growth=[lengths]", "axes.lengths=[0]"], "axes.lengths=.*greater than or equal to 1"),
        (["growth=[lengths]", "attentions=[none]"], "attentions= has no effect with growth="),
        (["growth=[lengths]", "compare=[README.md,README.md]"], "compare= has no effect with growth="),
        (["growth=[lengths]", "speedrun=multi30k_speedrun"], "speedrun= has no effect with growth="),
        (["compare=[README.md,README.md]", "output=a.json"], "output= has no effect with compare="),
        (["growth=[lengths]", "output=growth.png"], "output=growth.png: .* give output=FILE.json"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(overrides, message):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("benchmark", overrides=["name=tiny", *overrides])
        with pytest.raises(UserError, match=message):  # noqa: PT012
            check_settings(cfg, "benchmark")
            early_checks.check_benchmark(cfg, overrides)
            command.benchmark(cfg, overrides)


@pytest.mark.parametrize("given", ["1000", "[a]", "[0]", "[true]"])
def test_sizes_of_corpora_are_a_list_of_numbers(given):
    with pytest.raises(UserError, match=r"^corpora=.*: Input should be"):
        check_settings(compose(f"corpora={given}"), "benchmark")


@pytest.mark.parametrize(
    "override", ["repeats=5", "int8=true", "attentions=[none]", "data=multi30k", "+data.streaming=9"]
)
def test_what_has_no_effect_on_what_corpora_cost_is_refused(override, monkeypatch):
    monkeypatch.setattr(starts, "corpus_cost", None)
    overrides = ["name=tiny", "corpora=[400]", override]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("benchmark", overrides=overrides)
        with pytest.raises(UserError, match=r"^[a-z0-9_.]+= has no effect with corpora="):
            starts.corpora(cfg, overrides)


# --- growth ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-1.0, 0.5, 2.0])
def test_the_exponents_of_a_power_law_are_its_power(power):
    points = [(x, 3 * x**power) for x in (10, 20, 50, 400)]
    assert benchmark.exponents(points) == pytest.approx([power] * 3)


def test_made_up_batches_are_full_of_words_that_end():
    """Four pairs of 7 pieces fill 30 tokens; a sentence longer than that is alone."""
    made_up = partial(
        benchmark.made_up_batches, max_tokens=30, vocab_size=6, seed=1, device=torch.device("cpu")
    )
    batches = made_up(2, length=7)
    assert benchmark.num_target_tokens(batches, PAD) == 2 * 4 * 7
    for batch in batches:
        again = collate(
            [
                {"index": i, "src_ids": src, "tgt_ids": tgt}
                for i, (src, tgt) in enumerate(zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True))
            ],
            pad_id=0,
            bos_id=2,
        )
        assert all(map(torch.equal, batch[:4], again[:4]))
        assert set(batch.src[:, :-1].unique().tolist()) == {4, 5}
        assert batch.src[:, -1].eq(3).all()
    assert not torch.equal(batches[0].src, batches[1].src)
    assert made_up(1, length=99)[0].tgt_out.shape == (1, 99)


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_growth_changes_one_thing_at_a_time_and_tells_all(model, tmp_path, capsys, monkeypatch):
    measured = []

    def remember(step, batches):
        translator = step.module.translator
        size = translator.output.weight.shape
        measured.append((batches[0].src.shape, tuple(size), benchmark.num_target_tokens(batches, PAD)))
        return 0.5

    corpus = {"prepared_pairs_per_second": 40.0, "streamed": {"seconds": 3.0, "peak": 2**20}}
    monkeypatch.setattr(benchmark, "train_seconds", remember)
    monkeypatch.setattr(starts, "corpus_cost", lambda cfg, settings, num_pairs: corpus)
    overrides = [
        *(f"model={model}", "model.size=8", "growth=[lengths,widths,vocabularies,corpora]", "num_batches=1"),
        *("repeats=1", "data.max_tokens=60", "data.tokenizer.vocab_size=30", "device=cpu"),
        *("axes.lengths=[30,10]", "axes.widths=[16]", "axes.vocabularies=[50]", "axes.corpora=[10,100]"),
        f"output={tmp_path}/growth.json",
    ]
    result = growth.growth(compose(*overrides), overrides)
    assert json.loads((tmp_path / "growth.json").read_text()) == result
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    lengths = [((6, 10), (30, 8), 120), ((2, 30), (30, 8), 120)]
    assert measured[:4] == [each for each in lengths for _ in range(2)]  # two steps each, for the memory
    assert measured[4:8] == [((*each[:2], 60)) for each in lengths * 2]
    assert measured[8:12:2] == [((3, 20), (30, 16), 120), ((3, 20), (30, 16), 60)]
    assert measured[12:16:2] == [((3, 20), (50, 8), 120), ((3, 20), (50, 8), 60)]
    assert len(measured) == 16
    points = result["growth"]
    assert [each["per_second"]["median"] for each in points["lengths"]] == [120, 120]
    assert points["corpora"][1]["per_second"]["median"] == 40
    printed = capsys.readouterr().out
    for text in ("target pieces/s", "pairs prepared/s", "exponent of seconds", "+0.00"):
        assert text in printed


@pytest.mark.parametrize("start", [corpora.watch, speedrun.validations])
def test_processes_import_nothing_from_the_working_directory(start, tmp_path, monkeypatch):
    (tmp_path / "nmt").mkdir()
    (tmp_path / "nmt/__init__.py").write_text("open('executed', 'w').close()", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no command"):  # of the installed package
        start(starts.TRAIN[:-1], "a command")
    assert not (tmp_path / "executed").exists()
