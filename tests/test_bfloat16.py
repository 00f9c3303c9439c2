"""Under a CPU's autocast to bfloat16 the fast kernels multiply in it, and are as near to float32 as plain autocast."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nmt import kernels
from nmt.attention import DotAttention, PredictiveLocalAttention
from nmt.attention.masks import masked_softmax
from nmt.decoding import force_decode
from nmt.kernels.packed import map_of
from nmt.layers import cells
from nmt.layers.cells import GRULayer, LSTMLayer
from nmt.training.losses import output_loss, output_r_drop
from tests.searches import beam_search
from tests.test_recurrent import BOS, EOS, PAD, build, every_case, sources, targets


@pytest.fixture(autouse=True)
def _seed(monkeypatch):
    torch.manual_seed(0)
    for name in ("LARGE", "LARGE_IN_SEARCH"):
        monkeypatch.setattr(f"nmt.kernels.packed.{name}", 0)  # the weights below are small


def narrow():
    return torch.autocast("cpu", torch.bfloat16)


def distance(ours, exact):
    """Of lists of tensors, as vectors: |a - b| / |b|."""
    a, b = (torch.cat([each.detach().double().flatten() for each in results]) for results in (ours, exact))
    return float((a - b).norm() / b.norm())


def compared(results):
    """How far `results()` is from float32 under autocast, with fast kernels and with plain ones."""
    with kernels.using("plain"):
        exact = results()
        with narrow():
            plain = results()
    with narrow():
        fast = results()
    assert [each.dtype for each in fast[1:]] == [each.dtype for each in exact[1:]]
    assert not all(torch.equal(ours, theirs) for ours, theirs in zip(fast, exact, strict=True))
    return distance(fast, exact), distance(plain, exact)


def test_a_predicted_centre_is_not_rounded_to_the_positions_that_bfloat16_knows():
    content = partial(DotAttention, temperature=1.0, normalizer=masked_softmax)
    attention = PredictiveLocalAttention(query_size=8, key_size=8, content=content, window=2)
    query, lengths = 3 * torch.randn(2, 50, 8), torch.tensor([100, 300])
    with narrow():
        centres = attention.centres(query, lengths, torch.zeros(2, 50))
        score = attention.position_score(torch.tanh(attention.position_projection(query))).squeeze(-1)
    exact = lengths.unsqueeze(1) * torch.sigmoid(score.double())
    torch.testing.assert_close(centres.double(), exact, rtol=0, atol=1e-4)


def test_autocast_to_anything_else_is_plain():
    with torch.autocast("cpu", torch.float16):
        assert not kernels.fast(torch.zeros(1))
    with narrow():
        assert kernels.fast(torch.zeros(1))


@pytest.mark.parametrize("biased", [True, False])
def test_a_map_rounds_what_goes_in_and_what_comes_out(biased):
    weight, bias, x = torch.randn(96, 40), torch.randn(96) if biased else None, torch.randn(7, 40)
    with narrow():
        outputs = map_of(weight)(x, bias)
    assert outputs.dtype == torch.bfloat16
    rounded = [None if each is None else each.bfloat16().double() for each in (x, weight, bias)]
    torch.testing.assert_close(outputs.double(), F.linear(*rounded), rtol=2**-8, atol=1e-6)
    assert map_of(weight, torch.bfloat16)(x, bias).equal(outputs)


@pytest.mark.parametrize("alpha", [None, 2.0], ids=["plain", "r_drop"])
@pytest.mark.parametrize("rows", [4, 1000], ids=["parts", "whole"])
def test_the_losses(monkeypatch, alpha, rows):
    monkeypatch.setattr("nmt.kernels.loss.ROWS", rows)
    output = torch.nn.Linear(32, 130)
    features = torch.randn(*(() if alpha is None else (2,)), 3, 16, 32, requires_grad=True)
    targets = torch.randint(1, 130, (3, 16))
    options = {"pad_id": PAD, "label_smoothing": 0.1} | ({} if alpha is None else {"alpha": alpha})
    loss = output_loss if alpha is None else output_r_drop

    def results():
        found = loss(features, output, targets, **options)
        return [found.nll, *torch.autograd.grad(found.smoothed, [features, *output.parameters()])]

    fast, plain = compared(results)
    assert fast < 1.2 * plain


def test_a_layer():
    layer = GRULayer(input_size=24, hidden_size=32)
    inputs, hidden = torch.randn(8, 9, 24, requires_grad=True), torch.randn(8, 32, requires_grad=True)

    def results():
        outputs, (last,) = layer.run(inputs, (hidden,))
        loss = outputs.float().sin().sum() + last.float().square().sum()
        return [outputs, *torch.autograd.grad(loss, [inputs, hidden, *layer.parameters()])]

    fast, plain = compared(results)
    assert fast < 1.2 * plain


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("has_one", [False, None], ids=["without", "this"])
def test_an_lstm_is_in_the_narrow_type_where_the_cpu_has_one_else_in_float32(monkeypatch, dtype, has_one):
    if has_one is not None:
        monkeypatch.setattr("nmt.layers.cells.has_lstm", lambda dtype: has_one)
    layer = LSTMLayer(input_size=24, hidden_size=32)
    inputs, state = torch.randn(8, 9, 24, requires_grad=True), (torch.randn(8, 32), torch.randn(8, 32))

    def results():
        outputs, (last, cell) = layer.run(inputs, state)
        loss = outputs.float().sin().sum() + last.float().square().sum() + cell.float().sum()
        return [outputs, last, cell, *torch.autograd.grad(loss, [inputs, *layer.parameters()])]

    exact = results()
    with torch.autocast("cpu", dtype):
        found = results()
    if cells.has_lstm(dtype):
        assert found[0].dtype == dtype
        assert distance(found, exact) < 0.01
    else:
        assert all(torch.equal(*pair) for pair in zip(found, exact, strict=True))


@every_case
def test_a_whole_translator(case):
    model = build(case).float()
    (src, mask), tgt_in = sources(), targets()
    tgt_out = torch.cat((tgt_in[:, 1:], torch.full((len(tgt_in), 1), EOS)), dim=1)

    def results():
        model.zero_grad()
        features, weights = model.read(model.encode(src, mask), tgt_in, need_weights=True)
        loss = output_loss(features, model.output, tgt_out, pad_id=PAD, label_smoothing=0.1)
        (loss.smoothed if weights is None else loss.smoothed + weights.float().square().sum()).backward()
        return [features, *(p.grad.clone() for p in model.parameters())]

    fast, plain = compared(results)
    assert fast < 2 * plain + 0.01  # of weights this large, in stacks, rounding is chance


@every_case
def test_a_translator_that_is_in_bfloat16_itself_stays_so(case):
    model = build(case).bfloat16()
    (src, mask), tgt_in = sources(), targets()
    features, _ = model.read(model.encode(src, mask), tgt_in)
    features.sum().backward()
    assert features.dtype == torch.bfloat16


def test_a_processor_without_products_in_bfloat16_takes_weights_as_they_are(monkeypatch):
    monkeypatch.setattr("nmt.kernels.packed._available", lambda dtype: dtype == torch.float32)
    weight, x = torch.randn(96, 40), torch.randn(7, 40)
    with narrow():
        torch.testing.assert_close(map_of(weight)(x, None), F.linear(x, weight))


@every_case
def test_searches_score_alike(case):
    """What a search under autocast finds has about the score that float32 gives it."""
    model = build(case).float()
    src, _ = sources()
    with narrow():
        found = [best for best, *_ in beam_search(model, src, beam_size=3)]
    # The limit's end is scored as EOS everywhere else is.
    answers = [torch.tensor([*each.ids, EOS]) for each in found]
    tgt_out = pad_sequence(answers, batch_first=True, padding_value=PAD)
    tgt_in = torch.cat((torch.full((len(found), 1), BOS), tgt_out[:, :-1]), dim=1)
    scores = [each.log_prob for each in force_decode(model, src, tgt_in, tgt_out)]
    assert [each.log_prob for each in found] == pytest.approx(scores, rel=0.05, abs=0.1)
