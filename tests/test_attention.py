"""Each score against its published equation, a loop in float64 NumPy; then the whole of attention."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from nmt.attention import (
    AdditiveAttention,
    ConcatAttention,
    CoverageAttention,
    DotAttention,
    GeneralAttention,
    LocationAttention,
    MonotonicLocalAttention,
    MultiHeadAttention,
    NormedAdditiveAttention,
    PredictiveLocalAttention,
    ScaledDotAttention,
    ScaledGeneralAttention,
    additive,
    additive_score,
    chunked_additive_score,
)
from nmt.attention.masks import masked_entmax15, masked_softmax, masked_sparsemax

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


def normed_bahdanau(attention, q, h):
    """g v^T/|v| tanh(W q + U h + b)."""
    W, U = weight(attention.query_projection), weight(attention.key_projection)
    v = array(attention.v) / np.sqrt(sum(x * x for x in array(attention.v)))
    return array(attention.g) * np.sum(v * np.tanh(W @ q + U @ h + array(attention.b)))


def scaled_luong(attention, q, h):
    """g q^T W h."""
    return array(attention.g) * luong_general(attention, q, h)


def scaled_dot(attention, q, h):
    """q^T h / sqrt(d)."""
    return luong_dot(attention, q, h) / np.sqrt(len(q))


PLAIN = {"temperature": 1.0, "normalizer": masked_softmax}
MECHANISMS = {
    "bahdanau": (partial(AdditiveAttention, **PLAIN, size=A), M, bahdanau_a12),
    "luong_dot": (partial(DotAttention, **PLAIN), Q, luong_dot),
    "luong_general": (partial(GeneralAttention, **PLAIN), M, luong_general),
    "luong_concat": (partial(ConcatAttention, **PLAIN, size=A), M, luong_concat),
    "normed_bahdanau": (partial(NormedAdditiveAttention, **PLAIN, size=A), M, normed_bahdanau),
    "scaled_luong": (partial(ScaledGeneralAttention, **PLAIN), M, scaled_luong),
    "scaled_dot": (partial(ScaledDotAttention, **PLAIN), Q, scaled_dot),
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
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.6)  # also those that start at a constant
    query = torch.randn(B, T, Q, dtype=torch.float64)
    states = torch.randn(B, S, key_size, dtype=torch.float64)
    mask = torch.tensor([[j < length for j in range(S)] for length in LENGTHS])
    return attention, query, states, mask, partial(equation, attention)


def attend(attention, query, states, mask, values=None, start=0, past=None):
    """Attention to `states` at target positions from `start`, from the beginning of its memory."""
    positions = torch.arange(start, start + query.size(1)).expand(query.shape[:2])
    values = states if values is None else values
    keys = attention.project_keys(states)
    return attention(query, keys, values, mask, positions=positions, past=past)


@every_mechanism
def test_a_score_is_its_equation(name):
    attention, query, states, _, equation = build(name)
    scores = attention.score(query, attention.project_keys(states))
    np.testing.assert_allclose(array(scores), scores_by_loop(equation, array(query), array(states)), **EXACT)


def test_scores_with_a_factor_start_as_in_tensorflow():
    fresh = MECHANISMS["normed_bahdanau"][0](query_size=Q, key_size=M)
    assert fresh.g.item() == pytest.approx(np.sqrt(1 / A))
    assert not fresh.b.any()
    assert MECHANISMS["scaled_luong"][0](query_size=Q, key_size=M).g.item() == 1


@every_mechanism
def test_attention_is_a_softmax_over_real_states_and_their_average(name):
    attention, query, states, mask, equation = build(name)
    values = torch.randn(B, S, 9, dtype=torch.float64)  # what is averaged need not be what is scored
    context, weights, heads, past = attend(attention, query, states, mask, values)
    assert heads is past is None
    for b, length in enumerate(LENGTHS):
        for t in range(T):
            exps = [np.exp(equation(array(query)[b, t], array(states)[b, j])) for j in range(length)]
            a = [e / sum(exps) for e in exps]
            c = sum(a[j] * array(values)[b, j] for j in range(length))
            np.testing.assert_allclose(array(weights)[b, t], a + [0.0] * (S - length), **EXACT)
            np.testing.assert_allclose(array(context)[b, t], c, **EXACT)


@every_mechanism
def test_gradients_are_finite_differences(name):
    attention, query, states, mask, _ = build(name)
    query, states = query[:2, :2].clone().requires_grad_(), states[:2].clone().requires_grad_()

    def run(query, states, *parameters):  # gradcheck moves the parameters in place
        return tuple(attend(attention, query, states, mask[:2]))[:2]

    assert torch.autograd.gradcheck(run, (query, states, *attention.parameters()))


# --- the additive score in chunks -------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 2 * B * S * A, 10**6])
def test_chunked_additive_score_equals_the_plain_one_gradients_included(chunk, monkeypatch):
    monkeypatch.setattr(additive, "CHUNK", chunk)
    arguments = [torch.randn(size, dtype=torch.float64) for size in ((B, T, A), (B, S, A), (A,))]
    probe = torch.randn(B, T, S, dtype=torch.float64)
    results = []
    for function in (additive_score, chunked_additive_score):
        leaves = [argument.clone().requires_grad_() for argument in arguments]
        scores = function(*leaves)
        results.append((scores, *torch.autograd.grad(scores, leaves, probe)))
    torch.testing.assert_close(results[0], results[1], **EXACT)


@pytest.mark.parametrize("name", ["bahdanau", "luong_concat", "normed_bahdanau"])
def test_a_mechanism_gives_the_same_scores_in_chunks(name, monkeypatch):
    attention, query, states, _, _ = build(name)
    keys = attention.project_keys(states)
    whole = attention.score(query, keys)
    monkeypatch.setattr(additive, "WHOLE", 0)
    monkeypatch.setattr(additive, "CHUNK", 1)
    torch.testing.assert_close(attention.score(query, keys), whole, **EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bahdanau", "luong_concat", "normed_bahdanau"])
def test_chunks_under_autocast_are_as_near_to_exact_as_the_whole(name, dtype, monkeypatch):
    """Also where there are many of them, whose gradients are summed up one by one."""
    exact, _, states, _, _ = build(name)
    query = torch.randn(B, 200, Q, dtype=torch.float64)
    attention = copy.deepcopy(exact).float()

    def results(module, query, states):
        leaves = [each.detach().clone().requires_grad_() for each in (query, states)]
        score = module.score(leaves[0], module.project_keys(leaves[1]))
        return torch.autograd.grad(score.sum(), leaves)

    def errors():
        with torch.autocast("cpu", dtype):
            found = results(attention, query.float(), states.float())
        return [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]

    expected = results(exact, query, states)
    whole = errors()
    monkeypatch.setattr(additive, "WHOLE", 0)
    monkeypatch.setattr(additive, "CHUNK", 1)
    for ours, theirs in zip(errors(), whole, strict=True):
        assert ours < 1.5 * theirs + 0.002


def test_what_chunks_keep_for_the_gradient_does_not_hold_the_hidden_layer():
    query, keys = torch.randn(1, 64, 32, requires_grad=True), torch.randn(1, 64, 32, requires_grad=True)
    v = torch.randn(32, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.numel()), x)[1], lambda x: x):
        chunked_additive_score(query, keys, v)
    assert max(kept) == 64 * 32


# --- mechanisms that look at positions, at several subspaces, at the past -----------------------------------


def softmax(scores):
    exps = np.exp(np.array(scores) - max(scores))
    return exps / exps.sum()


def randomised(attention):
    attention = attention.double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.6)
    return attention


def inputs(key_size=M):
    mask = torch.tensor([[j < length for j in range(S)] for length in LENGTHS])
    return (
        torch.randn(B, T, Q, dtype=torch.float64),
        torch.randn(B, S, key_size, dtype=torch.float64),
        mask,
    )


@pytest.mark.parametrize("max_positions", [3, 9])
def test_location_is_equation_6(max_positions):
    """softmax(W q_t): a row of W for each position, and nothing for positions that W does not know."""
    make = partial(LocationAttention, **PLAIN, max_positions=max_positions)
    attention = randomised(make(query_size=Q, key_size=M))
    query, states, mask = inputs()
    weights = array(attend(attention, query, states, mask).weights)
    W = weight(attention.projection)
    for b, length in enumerate(LENGTHS):
        known = min(length, max_positions)
        for t in range(T):
            expected = softmax([W[j] @ array(query)[b, t] for j in range(known)])
            np.testing.assert_allclose(weights[b, t], [*expected] + [0.0] * (S - known), **EXACT)


@pytest.mark.parametrize("score", ["luong_general", "bahdanau", "scaled_luong"])
@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("predictive", [False, True])
def test_local_attention_is_equations_9_and_10(score, window, predictive):
    make, _, equation = MECHANISMS[score]
    kind = PredictiveLocalAttention if predictive else MonotonicLocalAttention
    attention = randomised(kind(query_size=Q, key_size=M, content=make, window=window))
    query, states, mask = inputs()
    context, weights, *_ = attend(attention, query, states, mask, start=1)
    for b, length in enumerate(LENGTHS):
        for t in range(T):
            q = array(query)[b, t]
            if predictive:  # p_t = S sigmoid(v^T tanh(W q))
                hidden = np.tanh(weight(attention.position_projection) @ q)
                centre = length / (1 + np.exp(-weight(attention.position_score)[0] @ hidden))
            else:  # p_t = t, no further than the last word
                centre = min(t + 1, length - 1)
            inside = [j for j in range(length) if abs(j - centre) <= window]
            aligned = softmax([equation(attention.content, q, array(states)[b, j]) for j in inside])
            expected = np.zeros(S)
            for j, a in zip(inside, aligned, strict=True):
                gaussian = np.exp(-((j - centre) ** 2) / (2 * (window / 2) ** 2)) if predictive else 1.0
                expected[j] = a * gaussian
            np.testing.assert_allclose(array(weights)[b, t], expected, **EXACT)
            np.testing.assert_allclose(array(context)[b, t], expected @ array(states)[b], **EXACT)


def test_the_predicted_centre_learns():
    """The window is hard, but the Gaussian carries the gradient to W_p and v_p."""
    attention = randomised(
        PredictiveLocalAttention(query_size=Q, key_size=M, content=MECHANISMS["luong_general"][0], window=2)
    )
    attend(attention, *inputs()).context.square().sum().backward()
    assert attention.position_projection.weight.grad.any()
    assert attention.position_score.weight.grad.any()


@pytest.mark.parametrize("num_heads", [1, 2, 3])
@pytest.mark.parametrize("score", ["scaled_dot", "bahdanau"])
def test_multi_head_is_a_loop_over_heads(num_heads, score):
    """W_o [c_1; …; c_K], each head over its own rows of the projections."""
    make, _, equation = MECHANISMS[score]
    attention = randomised(MultiHeadAttention(query_size=Q, key_size=M, content=make, num_heads=num_heads))
    query, states, mask = inputs()
    context, weights, heads, _ = attend(attention, query, states, mask)
    W_q, W_k = weight(attention.query_projection), weight(attention.key_projection)
    W_v, W_o = weight(attention.value_projection), weight(attention.output_projection)
    d = Q // num_heads
    for b, length in enumerate(LENGTHS):
        for t in range(T):
            contexts = []
            for k in range(num_heads):
                rows = slice(k * d, (k + 1) * d)
                q = W_q[rows] @ array(query)[b, t]
                h = [array(states)[b, j] for j in range(length)]
                a = softmax([equation(attention.content, q, W_k[rows] @ x) for x in h])
                contexts.append(sum(w * (W_v[rows] @ x) for w, x in zip(a, h, strict=True)))
                np.testing.assert_allclose(array(heads)[b, k, t, :length], a, **EXACT)
            np.testing.assert_allclose(array(context)[b, t], W_o @ np.concatenate(contexts), **EXACT)
    torch.testing.assert_close(heads.mean(dim=1), weights, **EXACT)
    assert not heads.masked_select(~mask[:, None, None]).any()


@pytest.mark.parametrize("max_fertility", [None, 2.0])
def test_coverage_is_tus_accumulated_and_linguistic_form(max_fertility):
    """e_tj = v^T tanh(W q + U h + z C), C_tj = C_{t-1,j} + a_tj / (N sigmoid(u^T h_j)), or + a_tj."""
    attention = randomised(
        CoverageAttention(**PLAIN, query_size=Q, key_size=M, size=A, max_fertility=max_fertility)
    )
    query, states, mask = inputs()
    past = attention.init_past(mask).double().unsqueeze(1)  # one query a sentence
    W, U = weight(attention.query_projection), weight(attention.key_projection)
    z, v = array(attention.coverage_projection), array(attention.v)
    coverage = np.zeros((B, S))
    for t in range(T):
        step = attend(attention, query[:, t : t + 1], states, mask, start=t, past=past)
        past = step.past
        for b, length in enumerate(LENGTHS):
            h = array(states)[b]
            q = array(query)[b, t]
            a = softmax([v @ np.tanh(W @ q + U @ h[j] + z * coverage[b, j]) for j in range(length)])
            np.testing.assert_allclose(array(step.weights)[b, 0], [*a] + [0.0] * (S - length), **EXACT)
            for j in range(length):
                fertility = 1.0
                if max_fertility is not None:
                    u = weight(attention.fertility_projection)[0]
                    fertility = max_fertility / (1 + np.exp(-u @ h[j]))
                coverage[b, j] += a[j] / fertility
            np.testing.assert_allclose(array(past)[b, 0, :length], coverage[b, :length], **EXACT)


# --- temperature and normalisers ----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_temperature_divides_the_scores(temperature):
    plain, query, states, mask, _ = build("bahdanau")
    make = partial(AdditiveAttention, temperature=temperature, normalizer=masked_softmax, size=A)
    warm = make(query_size=Q, key_size=M).double()
    warm.load_state_dict(plain.state_dict())
    scores = plain.score(query, plain.project_keys(states)) / temperature
    expected = masked_softmax(scores, mask.unsqueeze(1))
    torch.testing.assert_close(attend(warm, query, states, mask).weights, expected, **EXACT)


@pytest.mark.parametrize("normalizer", [masked_sparsemax, masked_entmax15])
def test_a_sparse_normaliser_takes_the_place_of_softmax(normalizer):
    make = partial(GeneralAttention, temperature=0.2, normalizer=normalizer)
    attention = randomised(make(query_size=Q, key_size=M))
    query, states, mask = inputs()
    weights = attend(attention, query, states, mask).weights
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), **EXACT)
    assert (weights[0] == 0).any(), "some real position should weigh nothing"
    assert not weights.masked_select(~mask.unsqueeze(1)).any()


# --- refusals ------------------------------------------------------------------------------------------------


def test_heads_must_divide_the_query():
    with pytest.raises(ValueError, match=rf"must divide the query size {Q}, got 4"):
        MultiHeadAttention(query_size=Q, key_size=M, content=MECHANISMS["scaled_dot"][0], num_heads=4)


def test_what_remembers_or_looks_at_positions_is_no_content_score():
    coverage = partial(CoverageAttention, **PLAIN, size=A, max_fertility=None)
    location = partial(LocationAttention, **PLAIN, max_positions=4)
    for content in (coverage, location):
        with pytest.raises(
            ValueError, match=r"builds on a content score .* not (Coverage|Location)Attention"
        ):
            PredictiveLocalAttention(query_size=Q, key_size=M, content=content, window=2)
        with pytest.raises(ValueError, match=r"builds on a content score"):
            MultiHeadAttention(query_size=Q, key_size=M, content=content, num_heads=1)


def test_dot_refuses_unequal_sizes_and_names_both():
    with pytest.raises(ValueError, match=r"query_size == key_size, got 256 and 512"):
        DotAttention(**PLAIN, query_size=256, key_size=512)
