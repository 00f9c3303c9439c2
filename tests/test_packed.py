"""Weights that are laid out once give the products of weights as they are, in float32, where there is such a layout."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from nmt import kernels
from nmt.kernels import packed
from nmt.kernels.packed import map_of, pooled_map
from nmt.layers.cells import GRULayer
from nmt.training.losses import output_loss, output_r_drop
from tests.searches import beam_search, greedy_search
from tests.test_recurrent import build, every_case, sources

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN, and takes weights as they are"
)


@pytest.fixture(autouse=True)
def _seed(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(packed, "LARGE", 0)  # the weights below are small
    monkeypatch.setattr(packed, "LARGE_IN_SEARCH", 0)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(1,), (7,), (320,), (3, 5), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_a_map_equals_the_linear_one(shape, biased):
    weight, bias = torch.randn(96, 40), torch.randn(96) if biased else None
    x = torch.randn(*shape, 40)
    close(map_of(weight)(x, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("shape", [(1,), (7,), (330,), (3, 5), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_a_map_of_any_rows_equals_the_linear_one(shape, biased):
    weight, bias = torch.randn(96, 40), torch.randn(96) if biased else None
    x = torch.randn(*shape, 40)
    close(packed.map_of_any_rows(weight)(x, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("shape", [(1,), (7,), (330,), (3, 5), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_a_map_by_columns_equals_the_linear_one(shape, biased):
    weight, bias = torch.randn(96, 80)[:, :40], torch.randn(96) if biased else None
    x = torch.randn(*shape, 40)
    close(packed.map_by_columns(weight)(x, bias), F.linear(x, weight, bias))


def test_a_map_of_what_is_not_one_block_of_memory():
    weight = torch.randn(96, 40)
    close(map_of(weight.t())(torch.ones(3, 96), None), torch.ones(3, 96) @ weight)
    x = torch.randn(40, 5).t()
    close(map_of(weight)(x, None), x @ weight.t())
    close(map_of(weight[:, 8:20])(x[:, 8:20], None), x[:, 8:20] @ weight[:, 8:20].t())


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_a_search_copies_a_small_weight_by_columns(monkeypatch):
    monkeypatch.setattr(packed, "LARGE_IN_SEARCH", 25)
    monkeypatch.setattr(packed.onednn, "is_faster", lambda: False)
    weight, x = torch.randn(6, 4), torch.randn(2, 4)
    with torch.no_grad(), kernels.packed_weights():
        close(pooled_map(weight, 2)(x, None), x @ weight.t())
        assert pooled_map(weight.double(), 2) is None


def test_a_block_lays_a_weight_out_once_also_where_it_is_part_of_another(monkeypatch):
    weight = torch.nn.Parameter(torch.randn(6, 4))
    with torch.no_grad(), kernels.packed_weights(), monkeypatch.context() as usual:
        usual.setattr(packed, "LARGE_IN_SEARCH", 25)
        usual.setattr(packed.onednn, "is_faster", lambda: True)
        assert pooled_map(weight, 1) is None  # it is small, and MKL is slow
    assert pooled_map(weight, 1) is None
    with torch.no_grad(), kernels.packed_weights(), kernels.using("plain"):
        assert pooled_map(weight, 1) is None
    with torch.no_grad(), kernels.packed_weights():
        assert pooled_map(weight, 1) is pooled_map(weight, 1)
        with kernels.packed_weights():
            inside = pooled_map(weight, 1)
        assert inside is pooled_map(weight, 1)  # a block inside another takes part in it
        assert pooled_map(weight, packed.MOST_ROWS + 1) is None
        assert pooled_map(weight[:, :2], 1) is pooled_map(weight[:, :2], 1)
        assert pooled_map(weight[:, :2], 1) is not pooled_map(weight[:, 2:], 1)
        with torch.enable_grad():
            assert pooled_map(weight, 1) is None
    assert pooled_map(weight, 1) is None


@pytest.fixture
def laid_out(monkeypatch):
    """The types of the weights that have been laid out."""
    found = []
    available = packed._available

    def noted(dtype):
        if answer := available(dtype):
            found.append(dtype)
        return answer

    monkeypatch.setattr(packed, "_available", noted)
    return found


@needs_onednn
def test_each_search_sees_the_weights_as_they_are_then(laid_out):
    model = build(every_case.args[1][0]).float()
    src, _ = sources()
    before = greedy_search(model, src)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-3)
    after = greedy_search(model, src)
    with kernels.using("plain"):
        assert [each.ids for each in greedy_search(model, src)] == [each.ids for each in after]
    assert [each.score for each in after] != [each.score for each in before]
    assert laid_out


@needs_onednn
@every_case
def test_searches_find_the_same(case, laid_out):
    model = build(case).float()
    src, _ = sources()

    def found(name):
        with kernels.using(name):
            hypotheses = [each for beam in beam_search(model, src, beam_size=3, num_best=2) for each in beam]
        return [each.ids for each in hypotheses], torch.tensor([each.score for each in hypotheses])

    (ids, scores), (plain_ids, plain_scores) = found("fast"), found("plain")
    assert ids == plain_ids
    close(scores, plain_scores)
    assert laid_out


def test_a_recurrence_and_steps_have_the_same_gradients():
    layer = GRULayer(input_size=3, hidden_size=32)
    linear = kernels.Linear(32, 32)
    inputs = torch.randn(4, 6, 3, requires_grad=True)

    def results(name):
        with kernels.using(name):
            outputs, (last,) = layer.run(inputs, (torch.zeros(4, 32),))
            with kernels.gradients_at_once(active=name == "fast"):
                for _ in range(3):
                    last = torch.tanh(linear(last))
        leaves = [inputs, *layer.parameters(), *linear.parameters()]
        return [outputs, last, *torch.autograd.grad(outputs.sum() + last.square().sum(), leaves)]

    for ours, theirs in zip(results("fast"), results("plain"), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("loss", [output_loss, partial(output_r_drop, alpha=2.0)], ids=["plain", "r_drop"])
def test_the_losses_are_the_same_with_many_rows_and_with_few(monkeypatch, loss):
    monkeypatch.setattr("nmt.kernels.loss.ROWS", 4)
    output = torch.nn.Linear(8, 33)
    passes = () if loss is output_loss else (2,)
    features = torch.randn(*passes, 3, 6, 8, requires_grad=True)
    targets = torch.randint(1, 33, (3, 6))

    def results(many):
        monkeypatch.setattr("nmt.kernels.loss.MANY_ROWS", many)
        found = loss(features, output, targets, pad_id=0, label_smoothing=0.1)
        return [found.smoothed, *torch.autograd.grad(found.smoothed, [features, *output.parameters()])]

    for ours, theirs in zip(results(1), results(10**6), strict=True):
        close(ours, theirs)


def test_steps_with_part_of_a_weight_have_its_gradient():
    weight = torch.randn(4, 6, requires_grad=True)
    x = torch.randn(2, 3, requires_grad=True)
    with kernels.gradients_at_once():
        total = sum(kernels.fast_linear(step * x, weight[:, :3]).sum() for step in range(1, 4))
    (ours,) = torch.autograd.grad(total, weight)
    (theirs,) = torch.autograd.grad(6 * F.linear(x, weight[:, :3]).sum(), weight)
    close(ours, theirs)
