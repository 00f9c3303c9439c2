"""Each score against its published equation, a loop in float64 NumPy; then the whole of attention."""

from functools import partial

import numpy as np
import pytest
import torch

from nmt.attention import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    additive_score,
)

EXACT = {"rtol": 0, "atol": 1e-10}
B, T, S, Q, M, A = 3, 4, 5, 6, 7, 8  # all different: a transposed size cannot pass
LENGTHS = [5, 2, 1]


def scores_by_loop(score_one, query: np.ndarray, states: np.ndarray) -> np.ndarray:
    """score_one(q_t, h_j) for every sentence, target and source position."""
    scores = np.zeros((query.shape[0], query.shape[1], states.shape[1]))
    for b in range(query.shape[0]):
        for t in range(query.shape[1]):
            for j in range(states.shape[1]):
                scores[b, t, j] = score_one(query[b, t], states[b, j])
    return scores


def bahdanau_a12(attention, q, h):
    """v^T tanh(W q + U h)."""
    W, U = weight(attention.query_projection), weight(attention.key_projection)
    return sum(v * np.tanh(W[a] @ q + U[a] @ h) for a, v in enumerate(array(attention.v)))


def luong_dot(attention, q, h):
    """q^T h."""
    return sum(q[i] * h[i] for i in range(len(q)))


def luong_general(attention, q, h):
    """q^T W h."""
    W = weight(attention.key_projection)
    return sum(q[i] * W[i, k] * h[k] for i in range(len(q)) for k in range(len(h)))


def luong_concat(attention, q, h):
    """v^T tanh(W [q; h])."""
    W = weight(attention.projection)
    both = np.concatenate((q, h))
    return sum(v * np.tanh(W[a] @ both) for a, v in enumerate(array(attention.v)))


MECHANISMS = {
    "bahdanau": (partial(AdditiveAttention, size=A), M, bahdanau_a12),
    "luong_dot": (DotAttention, Q, luong_dot),
    "luong_general": (GeneralAttention, M, luong_general),
    "luong_concat": (partial(ConcatAttention, size=A), M, luong_concat),
}
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy()


def weight(linear) -> np.ndarray:
    assert linear.bias is None, "the published scores have no bias"
    return array(linear.weight)


def build(name: str):
    """A mechanism in float64, queries [B, T, Q], states [B, S, M], a mask of LENGTHS, and its equation."""
    make, key_size, equation = MECHANISMS[name]
    attention = make(query_size=Q, key_size=key_size).double()
    query = torch.randn(B, T, Q, dtype=torch.float64)
    states = torch.randn(B, S, key_size, dtype=torch.float64)
    mask = torch.tensor([[j < length for j in range(S)] for length in LENGTHS])
    return attention, query, states, mask, partial(equation, attention)


def assert_score_is_its_equation(name: str) -> None:
    attention, query, states, _, equation = build(name)
    scores = attention.score(query, attention.project_keys(states))
    np.testing.assert_allclose(array(scores), scores_by_loop(equation, array(query), array(states)), **EXACT)


def test_bahdanau_is_equation_a12():
    assert_score_is_its_equation("bahdanau")


def test_luong_dot_is_equation_8():
    assert_score_is_its_equation("luong_dot")


def test_luong_general_is_equation_8():
    assert_score_is_its_equation("luong_general")


def test_luong_concat_is_equation_8():
    assert_score_is_its_equation("luong_concat")


def test_concat_equals_additive_with_w_and_u_side_by_side():
    additive, query, states, _, _ = build("bahdanau")
    concat = build("luong_concat")[0]
    with torch.no_grad():
        W, U = additive.query_projection.weight, additive.key_projection.weight
        concat.projection.weight.copy_(torch.cat((W, U), dim=1))
        concat.v.copy_(additive.v)
    torch.testing.assert_close(
        concat.score(query, concat.project_keys(states)),
        additive.score(query, additive.project_keys(states)),
        **EXACT,
    )


def test_additive_score_is_a_loop():
    query, keys = torch.randn(B, T, A, dtype=torch.float64), torch.randn(B, S, A, dtype=torch.float64)
    v = torch.randn(A, dtype=torch.float64)
    expected = scores_by_loop(lambda q, k: np.sum(array(v) * np.tanh(q + k)), array(query), array(keys))
    np.testing.assert_allclose(array(additive_score(query, keys, v)), expected, **EXACT)


@every_mechanism
def test_attention_is_a_softmax_over_real_states_and_their_average(name):
    attention, query, states, mask, equation = build(name)
    values = torch.randn(B, S, 9, dtype=torch.float64)  # what is averaged need not be what is scored
    context, weights = attention(query, attention.project_keys(states), values, mask)
    for b, length in enumerate(LENGTHS):
        for t in range(T):
            exps = [np.exp(equation(array(query)[b, t], array(states)[b, j])) for j in range(length)]
            a = [e / sum(exps) for e in exps]
            c = sum(a[j] * array(values)[b, j] for j in range(length))
            np.testing.assert_allclose(array(weights)[b, t], a + [0.0] * (S - length), **EXACT)
            np.testing.assert_allclose(array(context)[b, t], c, **EXACT)


@every_mechanism
def test_weights_sum_to_one_and_padding_weighs_exactly_nothing(name):
    attention, query, states, mask, _ = build(name)
    _, weights = attention(query, attention.project_keys(states), states, mask)
    assert weights.shape == (B, T, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), **EXACT)
    assert not weights.masked_select(~mask.unsqueeze(1)).any()


@every_mechanism
def test_rewriting_the_padded_states_changes_nothing(name):
    attention, query, states, mask, _ = build(name)
    rewritten = torch.where(mask.unsqueeze(-1), states, torch.full_like(states, 1e3))
    before = attention(query, attention.project_keys(states), states, mask)
    after = attention(query, attention.project_keys(rewritten), rewritten, mask)
    torch.testing.assert_close(tuple(after), tuple(before), **EXACT)


@every_mechanism
def test_many_queries_at_once_equal_one_at_a_time(name):
    attention, query, states, mask, _ = build(name)
    keys = attention.project_keys(states)
    torch.testing.assert_close(
        attention.score(query, keys),
        torch.cat([attention.score(query[:, t : t + 1], keys) for t in range(T)], dim=1),
        **EXACT,
    )
    contexts = [attention(query[:, t : t + 1], keys, states, mask).context for t in range(T)]
    torch.testing.assert_close(
        attention(query, keys, states, mask).context, torch.cat(contexts, dim=1), **EXACT
    )


@every_mechanism
def test_attention_remembers_nothing_between_calls(name):
    attention, query, states, mask, _ = build(name)
    before = attention(query, attention.project_keys(states), states, mask)
    other = torch.randn_like(states)
    attention(query[:1], attention.project_keys(other)[:1], other[:1], mask[:1])
    after = attention(query, attention.project_keys(states), states, mask)
    torch.testing.assert_close(tuple(after), tuple(before), rtol=0, atol=0)


@every_mechanism
def test_gradients_are_finite_differences(name):
    attention, query, states, mask, _ = build(name)
    query, states = query[:2, :2].clone().requires_grad_(), states[:2].clone().requires_grad_()

    def run(query, states, *parameters):  # gradcheck moves the parameters in place
        return tuple(attention(query, attention.project_keys(states), states, mask[:2]))

    assert torch.autograd.gradcheck(run, (query, states, *attention.parameters()))


def test_dot_refuses_unequal_sizes_and_names_both():
    with pytest.raises(ValueError, match=r"query_size == key_size, got 256 and 512"):
        DotAttention(query_size=256, key_size=512)


@every_mechanism
def test_sizes_have_no_defaults(name):
    make = MECHANISMS[name][0]
    with pytest.raises(TypeError):
        make(query_size=Q)
    with pytest.raises(TypeError):
        make(key_size=Q)
