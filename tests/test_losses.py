"""The summed loss against PyTorch's own and against the formula in float64 NumPy."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt import kernels
from nmt.training.losses import cross_entropy, output_r_drop, r_drop

EXACT = {"rtol": 0, "atol": 1e-10}
PAD = 0
TARGETS = torch.tensor([[4, 2, 6, 3], [5, 3, PAD, PAD], [3, PAD, PAD, PAD]])
every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9, 1.0])


@pytest.fixture
def logits(seed) -> torch.Tensor:
    return (torch.randn(3, 4, 7, dtype=torch.float64) * 3).requires_grad_()


@every_smoothing
def test_smoothed_is_the_formula(logits, smoothing):
    """(1 - e) * -log p(y) + e * mean_v -log p(v), summed over real targets."""
    smoothed, nll = 0.0, 0.0
    for b in range(3):
        for t in range(4):
            if TARGETS[b, t] != PAD:
                scores = logits[b, t].detach().numpy()
                log_p = np.array([s - np.log(sum(np.exp(u) for u in scores)) for s in scores])
                nll -= log_p[TARGETS[b, t]]
                smoothed += (1 - smoothing) * -log_p[TARGETS[b, t]] + smoothing * np.mean(-log_p)
    loss = cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=smoothing)
    assert loss.smoothed.item() == pytest.approx(smoothed, rel=0, abs=1e-10)
    assert loss.nll.item() == pytest.approx(nll, rel=0, abs=1e-10)


@every_smoothing
def test_smoothed_and_its_gradient_equal_pytorchs(logits, smoothing):
    loss = cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=smoothing)
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        TARGETS.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )
    torch.testing.assert_close(loss.smoothed, expected, **EXACT)
    (gradient,) = torch.autograd.grad(loss.smoothed, logits)
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(gradient, expected_gradient, **EXACT)
    assert not gradient[TARGETS == PAD].any()


@every_smoothing
def test_num_tokens_counts_the_end_and_not_the_padding(logits, smoothing):
    assert cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=smoothing).num_tokens.item() == 7


@every_smoothing
def test_nll_has_no_gradient_and_no_smoothing(logits, smoothing):
    loss = cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=smoothing)
    plain = cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=0.0)
    assert loss.smoothed.requires_grad
    assert not loss.nll.requires_grad
    torch.testing.assert_close(loss.nll, plain.smoothed.detach(), **EXACT)


def test_another_padding_id_is_honoured(logits):
    targets = torch.where(TARGETS == PAD, 6, torch.where(TARGETS == 6, PAD, TARGETS))
    loss = cross_entropy(logits, targets, pad_id=6, label_smoothing=0.1)
    assert loss.num_tokens.item() == 7


def test_a_batch_of_padding_alone_is_zero():
    loss = cross_entropy(
        torch.randn(1, 2, 7), torch.zeros(1, 2, dtype=torch.long), pad_id=PAD, label_smoothing=0.1
    )
    assert [part.item() for part in loss] == [0.0, 0.0, 0]


def test_half_precision_logits_are_summed_in_float32(logits):
    half = logits.detach().bfloat16()
    loss = cross_entropy(half, TARGETS, pad_id=PAD, label_smoothing=0.1)
    expected = cross_entropy(half.float(), TARGETS, pad_id=PAD, label_smoothing=0.1)
    assert loss.smoothed.dtype == loss.nll.dtype == torch.float32
    torch.testing.assert_close(loss.smoothed, expected.smoothed, rtol=0, atol=0)


# R-Drop: two passes [2, B, T, V]


@pytest.fixture
def passes(seed) -> torch.Tensor:
    return (torch.randn(2, 3, 4, 7, dtype=torch.float64) * 2).requires_grad_()


@pytest.mark.parametrize("alpha", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_is_half_of_the_papers_equation(passes, smoothing, alpha):
    """Liang et al. 2021, eq. 3 is -log p(y) - log q(y) + alpha/2 (KL(p|q) + KL(q|p)), at each real target."""
    paper, nll = 0.0, 0.0
    for b in range(3):
        for t in range(4):
            if TARGETS[b, t] != PAD:
                scores = passes[:, b, t].detach().numpy()
                p, q = (np.exp(each) / sum(np.exp(each)) for each in scores)
                for each in (p, q):
                    nll -= np.log(each[TARGETS[b, t]]) / 2
                    paper -= (1 - smoothing) * np.log(each[TARGETS[b, t]]) + smoothing * np.mean(np.log(each))
                kl = sum(x * np.log(x / y) for x, y in zip(p, q, strict=True))
                reverse = sum(y * np.log(y / x) for x, y in zip(p, q, strict=True))
                paper += alpha / 2 * (kl + reverse)
    loss = r_drop(passes, TARGETS, pad_id=PAD, label_smoothing=smoothing, alpha=alpha)
    assert loss.smoothed.item() == pytest.approx(paper / 2, rel=0, abs=1e-10)
    assert loss.nll.item() == pytest.approx(nll, rel=0, abs=1e-10)
    assert loss.num_tokens.item() == 7
    assert not loss.nll.requires_grad


def test_equal_passes_leave_the_cross_entropy_alone(logits):
    twice = torch.stack((logits, logits))
    loss = r_drop(twice, TARGETS, pad_id=PAD, label_smoothing=0.1, alpha=3.0)
    plain = cross_entropy(logits, TARGETS, pad_id=PAD, label_smoothing=0.1)
    torch.testing.assert_close(tuple(loss), tuple(plain), **EXACT)
    (gradient,) = torch.autograd.grad(loss.smoothed, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain.smoothed, logits)[0], **EXACT)


def test_r_drop_does_not_see_the_padding(passes):
    rewritten = torch.where((TARGETS == PAD).unsqueeze(-1), torch.full_like(passes, 40.0), passes)
    rewritten = rewritten * torch.tensor([1.0, 2.0]).view(2, 1, 1, 1).where((TARGETS == PAD)[..., None], 1.0)
    for name in ("fast", "plain"):
        with kernels.using(name):
            output = torch.nn.Linear(7, 7).double()
            torch.nn.init.eye_(output.weight)
            ours, theirs = (
                output_r_drop(each, output, TARGETS, pad_id=PAD, label_smoothing=0.1, alpha=2.0)
                for each in (passes, rewritten)
            )
        torch.testing.assert_close(tuple(ours), tuple(theirs), **EXACT)


def test_half_precision_passes_are_compared_in_float32(passes):
    half = passes.detach().bfloat16()
    loss = r_drop(half, TARGETS, pad_id=PAD, label_smoothing=0.1, alpha=5.0)
    expected = r_drop(half.float(), TARGETS, pad_id=PAD, label_smoothing=0.1, alpha=5.0)
    torch.testing.assert_close(tuple(loss), tuple(expected), rtol=0, atol=0)
