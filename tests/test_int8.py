"""Linear maps in bytes: against whole numbers in NumPy, against the layers they stand for, and in whole translators."""

import json
import math
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nmt.attention import Attention
from nmt.checkpoint import write_checkpoint
from nmt.commands.evaluate import evaluate
from nmt.commands.translate import translate
from nmt.errors import UserError
from nmt.kernels import int8, quantise
from nmt.layers.cells import GRULayer, LSTMLayer
from nmt.run.run import Run
from tests.commands import compose
from tests.small import SOURCES, TARGETS, make_run

GRU = ("encoder.size=16", "decoder.size=16", "model.size=16")


CASES = {
    "general": ("attention=luong_general", *GRU),
    "concat": ("attention=luong_concat", *GRU),  # reads its weights in two parts
    "bahdanau": ("attention=bahdanau", "encoder.num_layers=2", *GRU),
    "multi_head": ("attention=multi_head", *GRU),
    "none": ("attention=none", "model.tie_output=false", *GRU),
    "lstm": ("model=lstm", *GRU),
    "transformer": ("model=transformer", "model.size=16", "encoder.num_heads=2", "decoder.num_heads=2"),
}


@pytest.fixture(autouse=True)
def _small_maps_too(monkeypatch):
    monkeypatch.setattr(int8, "LEAST", 0)


def rounding_error() -> float:
    """The error of products of rounded weights and inputs, relative to that of rounding the weights alone."""
    return math.hypot(1, 127 / int8.input_levels())


def in_whole_numbers(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, levels: int) -> np.ndarray:
    """The definition, row by row: bytes, sums of their products, scales. x [N, I], weight [O, I], bias [O]."""

    def rounded(row: np.ndarray, levels: int) -> tuple[np.ndarray, np.float32]:
        scale = np.abs(row).max() / np.float32(levels)
        return np.floor(row / scale + np.float32(0.5)).astype(np.int64), scale

    y = np.empty((len(x), len(weight)))
    for n, row in enumerate(x):
        row_bytes, row_scale = rounded(row, levels)
        assert np.abs(row_bytes).max() == levels
        for o, weights in enumerate(weight):
            weight_bytes, weight_scale = rounded(weights, 127)
            total = sum(int(a) * int(b) for a, b in zip(row_bytes, weight_bytes, strict=True))
            y[n, o] = total * float(row_scale) * float(weight_scale) + bias[o]
    return y


@pytest.mark.parametrize("levels", [127, 63])
@pytest.mark.parametrize("rows", [1, 9, 33])
def test_a_product_is_that_of_whole_numbers(monkeypatch, levels, rows):
    if levels > int8.input_levels():
        pytest.skip(f"sums of {levels} levels saturate on this CPU, which rounds to {int8.input_levels()}")
    monkeypatch.setattr(int8, "input_levels", lambda: levels)
    x, weight, bias = torch.randn(rows, 37) * 3, torch.randn(21, 37), torch.randn(21)
    y = int8.Int8Linear(weight, bias)(x)
    expected = in_whole_numbers(x.numpy(), weight.numpy(), bias.numpy(), levels)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" not in os.environ, reason="no older CPU is emulated")
def test_an_older_cpu_without_vnni_rounds_to_63_levels():
    """Under `make test-avx2` and `make test-avx512`: the emulation is obeyed."""
    assert int8.input_levels() == 63


def test_extreme_bytes_do_not_saturate():
    """All inputs and weights of the largest size: the sums pass 16 bits at once."""
    signs = torch.tensor([[1.0], [-1.0]])
    y = int8.Int8Linear(signs.expand(2, 512), None)(signs.expand(2, 512))
    torch.testing.assert_close(y, 512 * signs @ signs.t())


def test_the_error_is_within_half_a_scale_of_each_factor():
    x, weight, bias = torch.randn(40, 64), torch.randn(50, 64), torch.randn(50)
    exact = x.double() @ weight.double().t() + bias
    sx = x.double().abs().amax(dim=1, keepdim=True) / int8.input_levels()
    sw = weight.double().abs().amax(dim=1, keepdim=True) / 127
    most = sx / 2 * weight.double().abs().sum(dim=1) + x.double().abs().sum(dim=1, keepdim=True) * sw.t() / 2
    error = (int8.Int8Linear(weight, bias)(x) - exact).abs()
    assert (error <= most + 64 * sx * sw.t() / 4 + 1e-4).all()
    assert error.norm() < 0.0075 * rounding_error() * exact.norm()


def test_a_row_does_not_depend_on_those_beside_it():
    layer = int8.Int8Linear(torch.randn(12, 20), torch.randn(12))
    x = torch.randn(3, 7, 20) * torch.logspace(-3, 3, 7).unsqueeze(1)
    alone = torch.stack([torch.stack([layer(row.unsqueeze(0))[0] for row in rows]) for rows in x])
    assert torch.equal(layer(x), alone)


def test_rows_of_zeros_and_of_nan():
    bias = torch.randn(12)
    layer = int8.Int8Linear(torch.randn(12, 20).index_fill(0, torch.tensor([3]), 0.0), bias)
    x = torch.randn(3, 20)
    x[0], x[1, 4] = 0.0, torch.nan
    y = layer(x)
    assert torch.equal(y[0], bias)
    assert y[1].isnan().all()
    assert y[2].isfinite().all()
    assert y[2, 3] == bias[3]


@pytest.mark.parametrize("num_rows", [1, 7, 8, 9, 100, 129, 1000, 5000])
def test_few_shapes_and_little_padding(num_rows):
    assert num_rows <= int8.round_up_rows(num_rows) <= num_rows + max(7, num_rows // 8)
    assert len({int8.round_up_rows(n) for n in range(1, num_rows + 1)}) <= 8 * num_rows.bit_length()


@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize("cell", [GRULayer, LSTMLayer])
def test_a_recurrent_layer_is_near_that_of_torch(cell, steps):
    layer = cell(input_size=24, hidden_size=32).eval()
    model = nn.Sequential(layer).eval()
    quantise(model, leave=Attention)
    inputs, state = torch.randn(5, steps, 24), tuple(torch.randn(5, 32) for _ in range(layer.num_states))
    exact, last = layer.run(inputs, state)
    found, after = model[0].run(inputs, state)
    assert model[0].num_states == layer.num_states
    near = partial(torch.testing.assert_close, atol=0.015 * rounding_error(), rtol=0)
    near(found, exact)
    for ours, theirs in zip(after, last, strict=True):
        near(ours, theirs)
    assert torch.equal(found[:, -1], after[0])


def test_a_map_that_takes_longer_in_bytes_stays(monkeypatch):
    monkeypatch.setattr(int8, "LEAST", 12)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)).eval()
    quantise(model, leave=Attention)
    assert [type(each) for each in model] == [int8.Int8Linear, nn.Linear]


# --- whole translators ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=CASES)
def run_dir(request, tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp(request.param), *CASES[request.param])


@torch.inference_mode()
def test_logits_are_near_those_of_the_same_run(run_dir):
    exact, found = Run.load(run_dir, device="cpu"), Run.load(run_dir, device="cpu", int8=True)
    src = exact.pad(exact.tokenizer.encode_source([SOURCES[0], SOURCES[1]]))
    tgt = exact.pad(exact.tokenizer.encode_target([TARGETS[0], TARGETS[1]]))
    logits = []
    for run in (exact, found):
        memory = run.translator.encode(src, src != run.tokenizer.pad_id)
        logits.append(run.translator.forward(memory, tgt).logits)
    error = (logits[1] - logits[0]).norm() / logits[0].norm()
    assert 0 < error < 0.015 * rounding_error()
    assert [each.source for each in found.translate(SOURCES)] == SOURCES


@torch.inference_mode()
def test_steps_equal_the_whole_target(run_dir):
    run = Run.load(run_dir, device="cpu", int8=True)
    src = run.pad(run.tokenizer.encode_source([SOURCES[0]]))
    tgt = run.pad(run.tokenizer.encode_target([TARGETS[0]]))
    memory = run.translator.encode(src, torch.ones_like(src, dtype=torch.bool))
    state, stepped = run.translator.init_state(memory), []
    for t in range(tgt.size(1)):
        logits, state, _ = run.translator.step(tgt[:, t], state, memory)
        stepped.append(logits)
    whole = run.translator.forward(memory, tgt).logits
    # A rounding may fall to the other side where sums are taken in another order.
    torch.testing.assert_close(torch.stack(stepped, dim=1), whole, atol=0.02 * float(whole.std()), rtol=0)


def test_every_map_outside_the_attention_is_in_bytes_and_embeddings_stay(run_dir):
    translator = Run.load(run_dir, device="cpu", int8=True).translator
    mechanisms = [module for module in translator.modules() if isinstance(module, Attention)]
    inside = {id(part) for module in mechanisms for part in module.modules()}
    left = [
        m for m in translator.modules() if isinstance(m, nn.Linear | nn.GRU | nn.LSTM) and id(m) not in inside
    ]
    assert left == []
    assert isinstance(translator.output, int8.Int8Linear)
    assert any(isinstance(module, nn.Embedding) for module in translator.modules())
    assert not translator.training


def test_an_ensemble_is_in_bytes_too(tmp_path):
    directory = make_run(tmp_path, *CASES["general"])
    ensemble = Run.load_ensemble([directory, directory], device="cpu", int8=True)
    assert all(isinstance(member.output, int8.Int8Linear) for member in ensemble.translator.members)
    alone = Run.load(directory, device="cpu", int8=True).translate(SOURCES)
    assert [each.text for each in ensemble.translate(SOURCES)] == [each.text for each in alone]


# --- a trained run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["general", "transformer"])
def test_a_trained_run_translates_almost_the_same(tmp_path, model):
    """Trained by heart on its sentences, it says them word for word in bytes too."""
    directory = make_run(tmp_path, *CASES[model])
    run = Run.load(directory, device="cpu")
    translator, pad = run.translator.train(), run.tokenizer.pad_id
    sources, targets = [SOURCES[i] for i in (0, 1, 3)], [TARGETS[i] for i in (0, 1, 3)]
    src, tgt = run.pad(run.tokenizer.encode_source(sources)), run.pad(run.tokenizer.encode_target(targets))
    optimizer = torch.optim.Adam(translator.parameters(), lr=0.01)
    bos = tgt.new_full((len(tgt), 1), run.tokenizer.bos_id)
    for _ in range(120):
        logits = translator.forward(
            translator.encode(src, src != pad), torch.cat((bos, tgt[:, :-1]), dim=1)
        ).logits
        nn.functional.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=pad).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {f"translator.{name}": value for name, value in translator.state_dict().items()}
    write_checkpoint({"state_dict": state}, directory / "checkpoints" / "best.ckpt")
    exact = Run.load(directory, device="cpu").translate(sources)
    found = Run.load(directory, device="cpu", int8=True).translate(sources)
    assert [each.text for each in exact] == targets
    assert [each.text for each in found] == targets
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=0.1)


def test_translate_and_evaluate_take_the_key(tmp_path, capsys):
    directory = make_run(tmp_path, *CASES["general"])
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SOURCES), "utf-8")
    files = [f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}", "device=cpu"]
    translate(compose("translate", f"run={directory}", *files, "int8=true"))
    own = [each.text for each in Run.load(directory, device="cpu", int8=True).translate(SOURCES)]
    assert (tmp_path / "out").read_text("utf-8").splitlines() == own
    data = ["data=grammar", "data.num_train=20", "data.num_val=4", "data.num_test=4", "num_bootstrap=0"]
    for key in ("int8=true", "int8=false"):
        output = tmp_path / key.replace("=", "_")
        settings = [f"run={directory}", "device=cpu", f"output={output}", "decoding.beam_size=2", *data, key]
        evaluate(compose("evaluate", *settings))
        assert json.loads((output / "metrics.json").read_text("utf-8")).get("int8", False) == (
            key == "int8=true"
        )
    capsys.readouterr()


# --- what is refused ------------------------------------------------------------------------------------


def test_another_device_is_refused():
    with pytest.raises(UserError, match=r"int8=true is for the CPU.*meta.*device=cpu"):
        quantise(nn.Sequential(nn.Linear(4, 4, device="meta")).eval(), leave=Attention)


def test_a_torch_without_onednn_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"oneDNN.*int8=false"):
        quantise(nn.Sequential(nn.Linear(4, 4)).eval(), leave=Attention)
