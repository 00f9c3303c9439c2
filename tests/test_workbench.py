"""The makers' tools: matrix products, synthetic corpora, growth of costs. Never how fast anything is."""

import sys
from functools import partial

import products
import pytest
import speedrun
import torch
from products import Product
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import corpora
import growth
from corpora import Start
from nmt import benchmark, plotting
from nmt.commands.benchmark import TRAIN
from nmt.errors import UserError
from tests.small_steps import PAD, make_batches, make_step

IN_PLACE = {torch.ops.aten.addmm_: lambda _, left, right, **__: 2 * left[0] * left[1] * right[1]}
TINY = ("data.max_tokens=60", "data.tokenizer.vocab_size=400", "device=cpu")


def operations(product: Product) -> int:
    """Multiplications and additions."""
    return 2 * product.num * product.rows * product.inner * product.columns


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
    found = products.count_products(partial(run, torch.randn(4, 5, 8)))
    assert found == {Product(*shape, torch.float32): count for shape, count in expected.items()}


@pytest.mark.parametrize("kernels", ["fast", "plain"])
@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_a_training_step_multiplies_as_often_as_pytorch_counts(model, kernels, monkeypatch):
    """But for the gradient of the encoder's first states, zeros that nothing learns: torch's layer leaves it out."""
    # PyTorch does not count oneDNN's products.
    monkeypatch.setattr("nmt.kernels.packed._available", lambda dtype: False)
    step, batches = make_step(model, kernels=kernels), make_batches()
    found = products.products_of(step, batches)
    ours = sum(count * operations(part) for each, count in found.items() for part in each.with_gradients())
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
    one, other = (products.products_of(step, batches) for step in (plain, twice))
    assert sum(count * operations(each) for each, count in one.items()) == sum(
        count * operations(each) for each, count in other.items()
    )


def test_counting_leaves_the_random_numbers_of_training_alone():
    step, batches = make_step("gru"), make_batches()
    state = torch.get_rng_state()
    products.products_of(step, batches)
    assert torch.equal(state, torch.get_rng_state())


def test_products_and_their_gradients_take_time():
    product = Product(1, 3, 4, 5, torch.float32)
    assert [tuple(each)[:4] for each in product.with_gradients()] == [
        (1, 3, 4, 5),
        (1, 3, 5, 4),
        (1, 4, 3, 5),
    ]
    assert (
        products.products_seconds({product: 6, Product(2, 3, 4, 5, torch.float32): 2}, torch.device("cpu"))
        > 0
    )


def test_products_are_in_the_precision_that_is_measured():
    batches = make_batches(1)
    for precision, dtype in (("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)):
        step = make_step("transformer", precision=precision)
        assert {product.dtype for product in products.products_of(step, batches)} >= {dtype}


def test_the_efficiency_of_each_turn_is_a_share_of_its_step(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "train_seconds", lambda step, batches: 3.0)
    monkeypatch.setattr(products, "products_seconds", lambda found, device: 2.4)
    data = ("data.num_train=60", "data.num_val=4", "data.num_test=4", "data.max_tokens=256")
    data += (f"data.cache_dir={tmp_path}/cache",)
    found = products.efficiencies(["model.size=8", "repeats=2", "num_batches=1", *TINY[1:], *data])
    assert found == pytest.approx([0.8, 0.8])


# --- corpora --------------------------------------------------------------------------------------------


def test_a_process_is_watched_to_its_end_with_the_memory_that_is_its_own():
    busy = "import time; held = b'x' * (200 * 2**20); time.sleep(0.5)"
    start = corpora.watch([sys.executable, "-c", busy])
    assert start.seconds > 0.5
    assert start.peak is None or 200 * 2**20 < start.peak < 300 * 2**20


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(corpora, "POOL", 500)


def test_a_corpus_has_as_many_pairs_as_it_should(tmp_path, small_pool):
    size = corpora.write_corpus(tmp_path / "text", 50, num_held_out=3)
    files = {path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "text").iterdir()}
    assert {name: len(lines) for name, lines in files.items()} == {
        f"{split}.{lang}": number
        for split, number in (("train", 50), ("val", 3), ("test", 3))
        for lang in ("en", "vi")
    }
    assert size == sum((tmp_path / "text" / f"train.{lang}").stat().st_size for lang in ("en", "vi"))
    assert len(set(files["train.en"])) == 50


@pytest.mark.parametrize("really", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_costs_of_a_corpus_of_each_size_are_measured(really, monkeypatch, small_pool):
    sizes = [400] if really else [400, 900]
    watch, commands = corpora.watch, []

    def noted(command):
        commands.append(command)
        return watch(command) if really else Start(1.0, None)

    monkeypatch.setattr(corpora, "watch", noted)
    overrides = ["data.max_tokens=512", *TINY[1:], "attention=luong_dot"]
    results = corpora.measure_corpora(sizes, overrides)
    for override in ("attention=luong_dot", "trainer.accelerator=cpu", "data.max_tokens=512"):
        assert all(override in command for command in commands)
    assert sum("data.streaming=1000" in command for command in commands) == len(sizes)
    assert len(commands) == 3 * len(sizes)
    assert [each["num_pairs"] for each in results] == sizes
    for each in results:
        assert each["num_batches"] >= each["num_pairs"] * 20 / 512
        assert each["sampler_bytes_per_pair"] >= 20
        assert all(each[start]["seconds"] > 0 for start in ("first", "cached", "streamed"))
    assert "streamed start, s" in corpora.table(results)


@pytest.mark.parametrize("override", ["data=multi30k", "+data.streaming=9", "data.num_train=5"])
def test_other_data_than_the_synthetic_are_refused(override, monkeypatch):
    monkeypatch.setattr(corpora, "corpus_cost", None)
    with pytest.raises(UserError, match=r"^data[a-z0-9_.]*= has no effect"):
        corpora.measure_corpora([400], [override])


# --- growth ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-1.0, 0.5, 2.0])
def test_the_exponents_of_a_power_law_are_its_power(power):
    points = [(x, 3 * x**power) for x in (10, 20, 50, 400)]
    assert growth.exponents(points) == pytest.approx([power] * 3)


def test_made_up_batches_are_full_of_words_that_end():
    """Four pairs of 7 pieces fill 30 tokens; a sentence longer than that is alone."""
    made_up = partial(growth.made_up_batches, max_tokens=30, vocab_size=6, seed=1, device=torch.device("cpu"))
    batches = made_up(2, length=7)
    assert benchmark.num_target_tokens(batches, PAD) == 2 * 4 * 7
    for batch in batches:
        assert set(batch.src[:, :-1].unique().tolist()) == {4, 5}
        assert batch.src[:, -1].eq(3).all()
    assert not torch.equal(batches[0].src, batches[1].src)
    assert made_up(1, length=99)[0].tgt_out.shape == (1, 99)


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_growth_changes_one_thing_at_a_time(model, monkeypatch):
    measured = []

    def remember(step, batches):
        size = step.module.translator.output.weight.shape
        measured.append((batches[0].src.shape, tuple(size), benchmark.num_target_tokens(batches, PAD)))
        return 0.5

    corpus = {"prepared_pairs_per_second": 40.0, "streamed": {"seconds": 3.0, "peak": 2**20}}
    monkeypatch.setattr(benchmark, "train_seconds", remember)
    monkeypatch.setattr(growth, "corpus_cost", lambda cfg, settings, num_pairs: corpus)
    overrides = [*(f"model={model}", "model.size=8", "num_batches=1", "repeats=1"), *TINY]
    axes = {"lengths": [30, 10], "widths": [16], "vocabularies": [50], "corpora": [10, 100]}
    points = growth.growth(axes, [*overrides, "data.tokenizer.vocab_size=30"])
    lengths = [((6, 10), (30, 8), 120), ((2, 30), (30, 8), 120)]
    assert measured[:4] == [each for each in lengths for _ in range(2)]  # two steps each, for the memory
    assert measured[4:8] == [((*each[:2], 60)) for each in lengths * 2]
    assert measured[8:12:2] == [((3, 20), (30, 16), 120), ((3, 20), (30, 16), 60)]
    assert measured[12:16:2] == [((3, 20), (50, 8), 120), ((3, 20), (50, 8), 60)]
    assert len(measured) == 16
    assert [each["per_second"]["median"] for each in points["lengths"]] == [120, 120]
    assert growth.growth_rows("lengths", points["lengths"])[2][-1] == "+0.00"
    header, *rows = growth.growth_rows("corpora", points["corpora"])
    assert header[1:] == [*growth.COSTS_OF_CORPORA, "exponent of seconds"]
    assert [row[:4] for row in rows] == [["10", "40", "1", "3.0"], ["100", "40", "1", "3.0"]]


def test_growth_is_drawn_in_panels_with_logarithmic_axes():
    points = [
        {"value": value, "per_second": {"median": rate}, "memory_bytes": 2**20, "start_seconds": 2.0}
        for value, rate in ((10, 50.0), (1000, 5.0))
    ]
    figure = growth.growth_panels({"lengths": points, "widths": points, "corpora": points})
    assert [axes.get_xlabel() for axes in figure.axes] == ["pieces of either side", "model.size", "pairs"]
    assert (
        {axes.get_xscale() for axes in figure.axes} == {axes.get_yscale() for axes in figure.axes} == {"log"}
    )
    lengths, _, pairs = figure.axes
    assert [label.get_text() for label in lengths.get_xticklabels()] == ["10", "1,000"]
    assert {line.get_label(): line.get_xydata().tolist() for line in lengths.lines} == {
        "target pieces/s": [[10, 50.0], [1000, 5.0]],
        "memory, MiB": [[10, 1.0], [1000, 1.0]],
    }
    assert [text.get_text() for text in pairs.get_legend().get_texts()] == list(growth.COSTS_OF_CORPORA)
    assert plotting.to_array(figure).min() < 120


# --- their processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [corpora.watch, lambda command: speedrun.run_to_validations(command, "it")])
def test_processes_import_nothing_from_the_working_directory(start, tmp_path, monkeypatch):
    (tmp_path / "nmt").mkdir()
    (tmp_path / "nmt/__init__.py").write_text("open('executed', 'w').close()", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no command"):  # of the installed package
        start(TRAIN[:-1])
    assert not (tmp_path / "executed").exists()
