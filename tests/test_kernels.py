"""The fast kernels equal the plain forms beside them, gradients included, in float64."""

import weakref

import numpy as np
import pytest
import torch

from nmt import kernels
from nmt.errors import UserError
from nmt.kernels import linear
from nmt.layers.cells import GRULayer
from nmt.training.losses import cross_entropy, output_loss, output_r_drop, r_drop
from tests.test_recurrent import EOS, PAD, build, every_case, sources, targets


@pytest.fixture(autouse=True)
def _float64():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_any_other_name_is_refused():
    with pytest.raises(UserError, match=r"kernels=quick: choose one of fast, plain"):
        kernels.use("quick")
    with kernels.using("plain"):
        assert not kernels.fast(torch.zeros(1))
    assert kernels.fast(torch.zeros(1))


# the loss


def as_on_a_gpu(features, targets, real):
    """All rows, and which of them count."""
    return features, targets.flatten(), real.flatten()


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 4, 100], ids=["one", "uneven", "whole"])
@pytest.mark.parametrize("padding", ["left out", "not counted"])
def test_the_output_loss_equals_logits_and_cross_entropy(monkeypatch, label_smoothing, rows, padding):
    monkeypatch.setattr("nmt.kernels.loss.ROWS", rows)
    if padding == "not counted":
        monkeypatch.setattr("nmt.training.losses._rows", as_on_a_gpu)
    output = torch.nn.Linear(5, 11)
    features = torch.randn(3, 6, 5, requires_grad=True)
    targets = torch.randint(1, 11, (3, 6))
    targets[0, 4:], targets[2, 1:] = PAD, PAD
    leaves = [features, output.weight, output.bias]
    loss = output_loss(features, output, targets, pad_id=PAD, label_smoothing=label_smoothing)
    plain = cross_entropy(output(features), targets, pad_id=PAD, label_smoothing=label_smoothing)
    assert int(loss.num_tokens) == int(plain.num_tokens) == 11
    assert not loss.nll.requires_grad
    assert_equal(
        [loss.smoothed, loss.nll, *torch.autograd.grad(3 * loss.smoothed, leaves)],
        [plain.smoothed, plain.nll, *torch.autograd.grad(3 * plain.smoothed, leaves)],
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 4, 100], ids=["one", "uneven", "whole"])
@pytest.mark.parametrize("padding", ["left out", "not counted"])
def test_the_loss_of_r_drop_equals_logits_and_divergences(monkeypatch, label_smoothing, rows, padding):
    monkeypatch.setattr("nmt.kernels.loss.ROWS", rows)
    if padding == "not counted":
        monkeypatch.setattr("nmt.training.losses._rows", as_on_a_gpu)
    output = torch.nn.Linear(5, 11)
    features = torch.randn(2, 3, 6, 5, requires_grad=True)
    targets = torch.randint(1, 11, (3, 6))
    targets[0, 4:], targets[2, 1:] = PAD, PAD
    leaves = [features, output.weight, output.bias]
    options = {"pad_id": PAD, "label_smoothing": label_smoothing, "alpha": 1.7}
    loss = output_r_drop(features, output, targets, **options)
    plain = r_drop(output(features), targets, **options)
    assert int(loss.num_tokens) == int(plain.num_tokens) == 11
    assert not loss.nll.requires_grad
    assert_equal(
        [loss.smoothed, loss.nll, *torch.autograd.grad(3 * loss.smoothed, leaves)],
        [plain.smoothed, plain.nll, *torch.autograd.grad(3 * plain.smoothed, leaves)],
    )


@pytest.mark.parametrize("rows", [2, 100])
def test_the_gradient_of_r_drop_is_that_of_its_values(monkeypatch, rows):
    monkeypatch.setattr("nmt.kernels.loss.ROWS", rows)
    inputs = [torch.randn(size, requires_grad=True) for size in ((2, 5, 3), (7, 3), (7,))]
    targets = torch.randint(7, (5,))
    torch.autograd.gradcheck(
        lambda *each: kernels.linear_r_drop(*each, targets, label_smoothing=0.1, alpha=2.5)[0], inputs
    )


def test_r_drop_of_large_logits_is_finite():
    features = torch.tensor([[[1000.0, -1000.0]], [[-1000.0, 1000.0]]], requires_grad=True)
    loss, nll = kernels.linear_r_drop(
        features, torch.eye(2), torch.zeros(2), torch.tensor([1]), label_smoothing=0.0, alpha=4.0
    )
    loss.backward()
    assert nll.item() == 1000.0
    assert loss.item() == 1000.0 + 4000.0
    assert features.grad.isfinite().all()


def test_no_gradient_is_computed_where_none_is_asked_for(monkeypatch):
    output, features = torch.nn.Linear(2, 3), torch.randn(1, 4, 2)
    monkeypatch.setattr(torch, "mm", None)  # would fail
    with torch.no_grad():
        loss = output_loss(features, output, torch.ones(1, 4).long(), pad_id=PAD, label_smoothing=0.1)
    assert not loss.smoothed.requires_grad


def test_the_loss_of_large_logits_is_finite():
    features, weight = torch.tensor([[1000.0, -1000.0]]), torch.eye(2)
    loss, nll = kernels.linear_cross_entropy(
        features, weight, torch.zeros(2), torch.tensor([1]), label_smoothing=0.0
    )
    assert float(loss) == float(nll) == 2000.0


def test_a_tied_output_layer_gets_both_gradients():
    embedding = torch.nn.Embedding(7, 4)
    output = torch.nn.Linear(4, 7)
    output.weight = embedding.weight
    ids, targets = torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]])

    def gradients(name):
        output.zero_grad()
        with kernels.using(name):
            output_loss(embedding(ids), output, targets, pad_id=PAD, label_smoothing=0.1).smoothed.backward()
        return [output.weight.grad.clone()]

    assert_equal(gradients("fast"), gradients("plain"))


# the recurrences


def test_the_cell_equals_its_equations():
    inputs = [torch.randn(4, size, requires_grad=True) for size in (9, 9, 3)]
    fast, plain = kernels.gru_cell(*inputs), kernels.plain_gru_cell(*inputs)
    assert_equal(
        [fast, *torch.autograd.grad(fast.sin().sum(), inputs)],
        [plain, *torch.autograd.grad(plain.sin().sum(), inputs)],
    )


@pytest.mark.parametrize("at_once", [8, 512])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_layer_equals_that_of_torch(steps, at_once, monkeypatch):
    monkeypatch.setattr("nmt.kernels.gru._ROWS", at_once)  # of 4 sentences, the slopes of two steps or of all
    layer = GRULayer(input_size=3, hidden_size=5)
    inputs = torch.randn(4, steps, 3, requires_grad=True)
    hidden = torch.randn(4, 5, requires_grad=True)

    def results(name):
        with kernels.using(name):
            outputs, (last,) = layer.run(inputs, (hidden,))
        loss = outputs.sin().sum() + last.square().sum()
        return [outputs, last, *torch.autograd.grad(loss, [inputs, hidden, *layer.parameters()])]

    assert_equal(results("fast"), results("plain"))


def test_gradients_at_once_equal_those_of_each_step():
    linear = kernels.Linear(3, 3)
    keys = torch.randn(2, 4, 3, requires_grad=True)
    start = torch.randn(2, 1, 3, requires_grad=True)
    leaves = [linear.weight, linear.bias, keys, start]

    def results(active):
        x = start
        with kernels.gradients_at_once(active=active):
            for _ in range(5):
                weights = kernels.product(torch.tanh(linear(x)), keys, transposed=True).softmax(dim=-1)
                x = kernels.product(weights, keys)
        return [x, *torch.autograd.grad(x.sin().sum(), leaves)]

    assert_equal(results(True), results(False))


def test_a_weight_with_two_biases_gives_each_its_own_gradient():
    weight = torch.randn(3, 3, requires_grad=True)
    first, second = (torch.randn(3, requires_grad=True) for _ in range(2))
    x = torch.randn(4, 3, requires_grad=True)

    def results(active):
        with kernels.gradients_at_once(active=active):
            y = kernels.fast_linear(
                kernels.fast_linear(kernels.fast_linear(x, weight, first), weight, second), weight
            )
        return [y, *torch.autograd.grad(y.sin().sum(), [x, weight, first, second])]

    assert_equal(results(True), results(False))


def test_a_block_whose_result_is_used_in_part_gives_the_gradient_of_that_part():
    linear = kernels.Linear(3, 3)
    x = torch.randn(2, 3)
    with kernels.gradients_at_once():
        first = linear(x)
        linear(2 * x)  # nobody asks for its gradient
    (ours,) = torch.autograd.grad(first.sum(), linear.weight)
    (theirs,) = torch.autograd.grad(torch.nn.functional.linear(x, linear.weight).sum(), linear.weight)
    assert_equal([ours], [theirs])


def test_blocks_do_not_share_and_leave_nothing_behind():
    linear = kernels.Linear(2, 2)
    x = torch.randn(1, 2)
    results = []
    for _ in range(2):
        with kernels.gradients_at_once():
            total = linear(x).sum() + linear(x).sum()
        results += torch.autograd.grad(total, linear.weight)
    assert_equal(results[:1], results[1:])
    assert type(linear(x).grad_fn).__name__ == "AddmmBackward0"  # outside a block all is plain


def test_a_block_keeps_nothing_laid_out(monkeypatch):
    """Or each part of a target that is computed again would hold copies of the weights until the last gradient."""
    alive = weakref.WeakSet()
    lay_out = linear._map

    class Laid:
        def __init__(self, *arguments):
            self.map = lay_out(*arguments)
            alive.add(self)

        def __call__(self, *arguments):
            return self.map(*arguments)

    monkeypatch.setattr(linear, "_map", Laid)
    layer = kernels.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    with kernels.gradients_at_once():
        total = layer(layer(x)).sum()
        assert len(alive) == 1
    assert len(alive) == 0
    expected = torch.autograd.grad(layer(layer(x)).sum(), x)
    for _ in range(2):  # the graph, which is kept, lays out again
        assert_equal(torch.autograd.grad(total, x, retain_graph=True), expected)
    found = torch.autograd.grad(total, layer.weight)  # without what the passes before it have left
    assert_equal(found, torch.autograd.grad(layer(layer(x)).sum(), layer.weight))
    assert len(alive) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_has_its_sums_in_float32(dtype):
    """16-true and bf16-true: the fast forms sum in the model's own type, and leave such a model to the plain ones."""
    output = torch.nn.Linear(8, 50).to(dtype)
    features, tgt_out = torch.randn(4, 300, 8, dtype=dtype), torch.randint(1, 50, (4, 300))
    losses = {}
    for name in kernels.NAMES:
        with kernels.using(name), torch.no_grad():
            losses[name] = output_loss(features, output, tgt_out, pad_id=PAD, label_smoothing=0.1)
    exact = output_loss(
        features.double(), output.double(), tgt_out, pad_id=PAD, label_smoothing=0.1
    ).nll.item()
    for loss in losses.values():
        assert loss.nll.item() == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
@every_case
def test_a_whole_translator_has_the_same_loss_and_gradients(case, checkpointing):
    model = build(case, gradient_checkpointing=checkpointing)
    (src, mask), tgt_in = sources(), targets()
    tgt_out = torch.cat((tgt_in[:, 1:], torch.full((len(tgt_in), 1), EOS)), dim=1)
    tgt_out[1, 2:] = PAD

    def results(name):
        model.zero_grad()
        with kernels.using(name):
            memory = model.encode(src, mask)
            features, weights = model.read(memory, tgt_in, need_weights=True)
            loss = output_loss(features, model.output, tgt_out, pad_id=PAD, label_smoothing=0.1)
            guided = loss.smoothed if weights is None else loss.smoothed + weights.square().sum()
            guided.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        assert len(gradients) == len(list(model.parameters()))
        return [guided, loss.nll, *gradients]

    assert_equal(results("fast"), results("plain"))


@pytest.mark.parametrize("num_scores", [5, 64, 640, 1279, 1280, 4001])
@pytest.mark.parametrize("number", [1, 5])
def test_the_best_are_those_of_a_whole_sort(num_scores, number):
    generator = torch.Generator().manual_seed(num_scores)
    scores = torch.randn(3, 4, num_scores, generator=generator)
    scores[0, 0, :-2] = -torch.inf  # fewer that are finite than are asked for
    scores[1] = scores[1].round()  # many that are equal
    with kernels.using("fast"):
        values, places = kernels.best(scores, number)
    order = np.sort(scores.numpy(), axis=-1)[..., ::-1]
    np.testing.assert_array_equal(values.numpy(), order[..., :number])
    assert torch.equal(scores.gather(-1, places), values)
    assert all(len(set(row)) == number for row in places.flatten(0, 1).tolist())
