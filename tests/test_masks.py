"""Masks, the softmax over them, and reversal, against loops in float64 NumPy."""

import numpy as np
import pytest
import torch

from nmt.attention.masks import (
    causal_mask,
    masked_entmax15,
    masked_softmax,
    masked_sparsemax,
    padding_mask,
    reverse_within_length,
)

EXACT = {"rtol": 0, "atol": 1e-10}
LENGTHS = [5, 1, 3]


def lengths_to_mask(lengths: list[int], size: int) -> torch.Tensor:
    return torch.tensor([[j < length for j in range(size)] for length in lengths])


def reference_softmax(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """exp(e_j) / sum over real k of exp(e_k), a row at a time, without any shift."""
    weights = np.zeros_like(scores)
    for row in range(scores.shape[0]):
        total = sum(np.exp(scores[row, k]) for k in range(scores.shape[1]) if mask[row, k])
        for j in range(scores.shape[1]):
            if mask[row, j]:
                weights[row, j] = np.exp(scores[row, j]) / total
    return weights


def test_padding_mask_is_true_on_real_tokens():
    ids = torch.tensor([[7, 4, 3, 0, 0], [5, 3, 0, 0, 0], [4, 4, 4, 4, 3]])
    mask = padding_mask(ids, pad_id=0)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [True, True, True, False, False],
        [True, True, False, False, False],
        [True, True, True, True, True],
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_causal_mask_lets_a_position_look_at_itself_and_its_past(size):
    mask = causal_mask(size)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[u <= t for u in range(size)] for t in range(size)]


def test_masked_softmax_takes_a_mask_with_holes_and_broadcasts_it_over_queries():
    scores = torch.randn(2, 4, 3, dtype=torch.float64)  # [B, T, S]
    mask = torch.tensor([[True, False, True], [False, True, True]])
    weights = masked_softmax(scores, mask.unsqueeze(1))
    for t in range(4):
        expected = reference_softmax(scores[:, t].numpy(), mask.numpy())
        np.testing.assert_allclose(weights[:, t].numpy(), expected, **EXACT)


@pytest.mark.parametrize("padding_score", [0.0, 1e30, -1e30, float("inf"), float("nan")])
def test_padding_weighs_exactly_nothing_whatever_its_score(padding_score):
    mask = lengths_to_mask(LENGTHS, 5)
    scores = torch.randn(3, 5, dtype=torch.float64)
    weights = masked_softmax(scores.masked_fill(~mask, padding_score), mask)
    assert weights[~mask].tolist() == [0.0] * 6
    torch.testing.assert_close(weights, masked_softmax(scores, mask), rtol=0, atol=0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("shift", [-1e3, 1e3])
def test_masked_softmax_is_invariant_to_a_shift_of_the_scores(shift):
    mask = lengths_to_mask(LENGTHS, 5)
    scores = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(masked_softmax(scores + shift, mask), masked_softmax(scores, mask), **EXACT)


def test_masked_softmax_gradient_is_its_finite_difference():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    mask = lengths_to_mask(LENGTHS, 5)
    assert torch.autograd.gradcheck(lambda e: masked_softmax(e, mask), scores)


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)])
def test_reverse_within_length_is_a_loop_over_sentences(trailing):
    x = torch.randn(3, 5, *trailing, dtype=torch.float64)
    expected = x.numpy().copy()
    for i, length in enumerate(LENGTHS):
        for j in range(length):
            expected[i, j] = x[i, length - 1 - j].numpy()
    reversed_x = reverse_within_length(x, torch.tensor(LENGTHS))
    assert np.array_equal(reversed_x.numpy(), expected)


def by_bisection(scores: np.ndarray, weigh) -> np.ndarray:
    """Weights weigh(e_j - tau) >= 0 with the tau that makes them sum to one, found by halving an interval."""
    low, high = scores.min() - 2, scores.max()
    for _ in range(100):
        tau = (low + high) / 2
        low, high = (tau, high) if weigh(scores - tau).sum() > 1 else (low, tau)
    return weigh(scores - tau)


SPARSE = {
    "sparsemax": (masked_sparsemax, lambda scores: by_bisection(scores, lambda x: np.maximum(x, 0))),
    "entmax15": (masked_entmax15, lambda scores: by_bisection(scores / 2, lambda x: np.maximum(x, 0) ** 2)),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_normalisers_are_their_definitions_over_real_positions(name):
    function, reference = SPARSE[name]
    scores = 2 * torch.randn(3, 4, 5, dtype=torch.float64)
    weights = function(scores, lengths_to_mask(LENGTHS, 5).unsqueeze(1)).numpy()
    for b, length in enumerate(LENGTHS):
        for t in range(4):
            np.testing.assert_allclose(
                weights[b, t, :length], reference(scores[b, t, :length].numpy()), **EXACT
            )
            assert not weights[b, t, length:].any()
    assert (weights[0] == 0).any(), "something real should weigh nothing"


@pytest.mark.parametrize("name", SPARSE)
def test_gradients_of_sparse_normalisers_are_finite_differences(name):
    mask = lengths_to_mask(LENGTHS, 5).unsqueeze(1)
    scores = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: SPARSE[name][0](x, mask), (scores,))


@pytest.mark.parametrize("function", [masked_sparsemax, masked_entmax15])
def test_sparse_weights_of_half_precision_are_those_of_the_rounded_scores(function):
    scores = (3 * torch.randn(50, 12)).bfloat16()
    mask = torch.arange(12) < torch.randint(1, 13, (50, 1))
    found = function(scores, mask)
    assert found.dtype == torch.bfloat16
    assert found.equal(function(scores.float(), mask).bfloat16())
