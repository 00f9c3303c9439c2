"""Products by oneDNN where MKL is slow: the same values and gradients, and only there."""

import pytest
import torch
from torch.nn import functional as F

from nmt import kernels
from nmt.kernels import onednn

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="this torch has no oneDNN")


@pytest.fixture
def forced(monkeypatch):
    """Use oneDNN on every processor and for every size; the sizes [N, O] of the products that it computed."""
    computed = []
    multiply = onednn.multiply

    def counted(x, weight, bias=None):
        computed.append((len(x), len(weight)))
        return multiply(x, weight, bias)

    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "LEAST", 0)
    monkeypatch.setattr(onednn, "multiply", counted)
    return computed


def gradients(function, *inputs):
    leaves = [None if each is None else each.clone().requires_grad_() for each in inputs]
    y = function(*leaves)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    return [y.detach(), *(each.grad for each in leaves if each is not None)]


@needs_onednn
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("shape", "out_size"), [((5, 7), 3), ((2, 4, 7), 11), ((1, 3), 3)])
def test_values_and_gradients_are_those_of_torch(forced, shape, out_size, has_bias):
    torch.manual_seed(1)
    x, weight, bias = torch.randn(shape), torch.randn(out_size, shape[-1]), torch.randn(out_size)
    inputs = (x, weight, bias if has_bias else None)
    for own, other in zip(gradients(kernels.affine, *inputs), gradients(F.linear, *inputs), strict=True):
        torch.testing.assert_close(own, other)
    assert len(forced) == 3


@needs_onednn
def test_a_part_of_a_weight_and_what_needs_no_gradient(forced):
    torch.manual_seed(1)
    x, weight = torch.randn(6, 4), torch.randn(5, 8, requires_grad=True)
    own = torch.autograd.grad(kernels.affine(x, weight[:, 4:]).square().sum(), weight)[0]
    torch.testing.assert_close(own, torch.autograd.grad(F.linear(x, weight[:, 4:]).square().sum(), weight)[0])
    assert len(forced) == 2  # the product and the gradient of the weight, none of x


@needs_onednn
@pytest.mark.parametrize(("in_size", "out_size"), [(3, 9), (9, 3)])
def test_gradients_of_weights_are_sums_of_outer_products(forced, in_size, out_size):
    torch.manual_seed(1)
    grad, x, total = torch.randn(20, out_size), torch.randn(20, in_size), torch.randn(out_size, in_size)
    expected = torch.einsum("no,ni->oi", grad, x)
    torch.testing.assert_close(onednn.weight_gradient(grad, x), expected)
    added = total.clone()
    onednn.add_weight_gradient(added, grad, x)
    torch.testing.assert_close(added, total + expected)


@needs_onednn
def test_matrices_side_by_side_are_multiplied_each_by_its_own(forced):
    torch.manual_seed(1)
    x, weights = torch.randn(3, 5, 4), torch.randn(3, 6, 4)
    torch.testing.assert_close(onednn.multiply_each(x, weights), torch.einsum("nri,noi->nro", x, weights))
    assert forced == [(5, 6)] * 3


@needs_onednn
def test_the_products_of_the_loss_are_of_the_faster_library(forced):
    torch.manual_seed(1)
    features, weight, bias = torch.randn(4, 3), torch.randn(7, 3), torch.randn(7)
    targets = torch.tensor([0, 6, 2, 2])

    def loss(*inputs):
        return kernels.linear_cross_entropy(*inputs, targets, label_smoothing=0.1)[0]

    def plain(features, weight, bias):
        logits = F.linear(features, weight, bias)
        return F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")

    inputs = (features, weight, bias)
    for own, other in zip(gradients(loss, *inputs), gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(own, other)
    assert len(forced) == 3  # logits, gradients of the features and of the weight


@pytest.mark.parametrize(
    ("name", "capability", "chosen"),
    [("AMD EPYC", "AVX512", True), ("AMD EPYC", "AVX2", False), ("Intel(R) Xeon(R)", "AVX512", False)],
)
def test_it_is_chosen_on_amd_processors_with_avx_512(monkeypatch, name, capability, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name}, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert onednn.is_faster.__wrapped__() is chosen


@needs_onednn
def test_other_products_are_torch_s(forced, monkeypatch):
    x, weight = torch.randn(4, 3), torch.randn(2, 3)
    kernels.affine(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        kernels.affine(x, weight)
    with kernels.using("plain"):
        kernels.affine(x, weight)
    monkeypatch.setattr(onednn, "available", lambda: False)
    kernels.affine(x, weight)
    assert not forced
