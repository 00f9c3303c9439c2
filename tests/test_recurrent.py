"""The recurrent translator against float64 NumPy loops, and the claims that any translator must keep.

The reference below translates one sentence at a time, unpadded, from the model's weights by name. It knows
the equations of Cho et al. (2014), Bahdanau et al. (2015, A) and Luong et al. (2015, §3), and nothing of the
package.
"""

from collections import Counter
from functools import partial
from itertools import cycle, product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from nmt.attention import (
    AdditiveAttention,
    ConcatAttention,
    CoverageAttention,
    DotAttention,
    GeneralAttention,
    LocationAttention,
    MonotonicLocalAttention,
    MultiHeadAttention,
    PredictiveLocalAttention,
    ScaledDotAttention,
)
from nmt.attention.masks import masked_softmax
from nmt.decoders import RecurrentDecoder
from nmt.decoders.wirings import (
    AttendThenUpdate,
    Conditional,
    Memory,
    RecurrentState,
    UpdateThenAttend,
    Wiring,
)
from nmt.encoders import RecurrentEncoder
from nmt.layers.cells import GRULayer, LayerNormGRULayer, LSTMLayer
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding
from nmt.models import EncoderDecoder, select
from tests.translators import recurrent_translator

EXACT = {"rtol": 0, "atol": 1e-10}
PAD, BOS, EOS = 0, 1, 2
E, H, ENCODER_H, V = 5, 6, 4, 11  # widths that a transposed or swapped matrix cannot fit
LENGTHS = [5, 2, 4]
B, S, T, K = 3, 5, 4, 3

PLAIN = {"temperature": 1.0, "normalizer": masked_softmax}
general = partial(GeneralAttention, **PLAIN)
ATTENTIONS = {
    "bahdanau": partial(AdditiveAttention, **PLAIN, size=7),
    "luong_dot": partial(DotAttention, **PLAIN),
    "luong_general": general,
    "luong_concat": partial(ConcatAttention, **PLAIN, size=7),
    "none": None,
}
# Their equations are tested apart from the decoder; here they keep every claim of a translator.
WIDER = {
    "location": partial(LocationAttention, **PLAIN, max_positions=4),
    "local_m": partial(MonotonicLocalAttention, content=general, window=1),
    "local_p": partial(PredictiveLocalAttention, content=general, window=2),
    "multi_head": partial(MultiHeadAttention, content=partial(ScaledDotAttention, **PLAIN), num_heads=2),
    "coverage": partial(CoverageAttention, **PLAIN, size=7, max_fertility=None),
    "coverage_fertility": partial(CoverageAttention, **PLAIN, size=7, max_fertility=2.0),
}
WIRINGS = {
    "attend_then_update": AttendThenUpdate,
    "update_then_attend": partial(UpdateThenAttend, input_feeding=False),
    "input_feeding": partial(UpdateThenAttend, input_feeding=True),
    "conditional": Conditional,
}


class Case(NamedTuple):
    score: str
    wiring: str
    num_layers: int
    cell: str = "gru"
    residual: bool = False


CASES = [
    Case(score, wiring, num_layers)
    for score, wiring, num_layers in product(ATTENTIONS, WIRINGS, (1, 2))
    if score != "none" or wiring not in ("input_feeding", "conditional")
]
STACKS = [
    Case("bahdanau", "attend_then_update", 1, "lstm"),
    Case("luong_general", "update_then_attend", 2, "lstm"),
    Case("luong_general", "input_feeding", 3, "lstm", residual=True),
    Case("luong_general", "input_feeding", 3, "gru", residual=True),
    Case("none", "update_then_attend", 2, "gru", residual=True),
    Case("bahdanau", "attend_then_update", 2, "gru", residual=True),
    Case("luong_general", "conditional", 2, "lstm", residual=True),
    Case("bahdanau", "conditional", 2, "lstm"),
    Case("bahdanau", "attend_then_update", 2, "norm"),
    Case("luong_general", "update_then_attend", 1, "norm"),
    Case("luong_general", "input_feeding", 2, "norm", residual=True),
    Case("luong_general", "conditional", 1, "norm"),
    Case("none", "update_then_attend", 1, "norm"),
]
every_equation = pytest.mark.parametrize("case", CASES + STACKS, ids=lambda case: "-".join(map(str, case)))
SHAPES = [
    ("attend_then_update", 2, "lstm", True),
    ("update_then_attend", 2, "norm"),
    ("input_feeding", 1, "lstm"),
    ("conditional", 2, "gru", True),
    ("attend_then_update", 1),
    ("update_then_attend", 1),
]
# Every score, and every wiring with each cell, one layer, a stack and a residual stack
VARIETY = [
    Case("bahdanau", "attend_then_update", 1),
    Case("bahdanau", "conditional", 2, "lstm"),
    Case("luong_dot", "update_then_attend", 1, "lstm"),
    Case("luong_general", "input_feeding", 3, "gru", residual=True),
    Case("luong_general", "conditional", 1, "norm"),
    Case("luong_concat", "input_feeding", 2, "norm", residual=True),
    Case("none", "attend_then_update", 2, "norm"),
    Case("none", "update_then_attend", 2, "gru", residual=True),
    *(Case(score, *shape) for score, shape in zip(WIDER, cycle(SHAPES))),
]
every_case = pytest.mark.parametrize("case", VARIETY, ids=lambda case: "-".join(map(str, case)))


def build(case: Case, *, projected: bool | None = None, **changes) -> EncoderDecoder:
    """A small translator in float64, every parameter (biases, norms and the padding's embedding too) random.

    Encoder states are projected to the decoder's size for dot scores, which need it, unless told otherwise.
    """
    projected = case.score == "luong_dot" if projected is None else projected
    options = {
        "src_vocab_size": V + 2,
        "tgt_vocab_size": V,
        "joint_vocabulary": False,
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
        "embedding_size": E,
        "hidden_size": H,
        "num_layers": case.num_layers,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "residual": case.residual,
        "tie_output": False,
        "tie_source": False,
        "gradient_checkpointing": False,
        "attention_dropout": 0.0,
        "cell": {"gru": GRULayer, "lstm": LSTMLayer, "norm": LayerNormGRULayer}[case.cell],
        "encoder_size": ENCODER_H,
        "num_encoder_layers": case.num_layers,
        "output_size": H if projected else None,
        "wiring": WIRINGS[case.wiring],
        "attention": (ATTENTIONS | WIDER)[case.score],
    }
    model = recurrent_translator(**(options | changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model


def sources() -> tuple[torch.Tensor, torch.Tensor]:
    """src [B, S], each sentence of its own length ending in EOS, and its mask."""
    mask = torch.tensor([[j < length for j in range(S)] for length in LENGTHS])
    src = torch.randint(3, V, (B, S)).masked_fill(~mask, PAD)
    for b, length in enumerate(LENGTHS):
        src[b, length - 1] = EOS
    return src, mask


def targets(num: int = B) -> torch.Tensor:
    """tgt_in [num, T], which begins with BOS."""
    return torch.cat((torch.full((num, 1), BOS), torch.randint(3, V, (num, T - 1))), dim=1)


def teacher_forced(model: EncoderDecoder, src, mask, tgt_in):
    return model(model.encode(src, mask), tgt_in, need_weights=True)


# --- the reference: NumPy alone -------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_cell(W, U, b, c, x, h):
    """z h + (1 - z) n, where r, z = σ(W x + b + U h + c) and n = tanh(W_n x + b_n + r (U_n h + c_n))."""
    (W_r, W_z, W_n), (U_r, U_z, U_n) = np.split(W, 3), np.split(U, 3)
    (b_r, b_z, b_n), (c_r, c_z, c_n) = np.split(b, 3), np.split(c, 3)
    r = sigmoid(W_r @ x + b_r + U_r @ h + c_r)
    z = sigmoid(W_z @ x + b_z + U_z @ h + c_z)
    n = np.tanh(W_n @ x + b_n + r * (U_n @ h + c_n))
    return z * h + (1 - z) * n


def lstm_cell(W, U, b, c, x, state):
    """h = σ(o) tanh(m) of the new memory m = σ(f) m' + σ(i) tanh(g)."""
    i, f, g, o = np.split(W @ x + b + U @ state[0] + c, 4)
    memory = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(memory), memory


def layer_norm_gru_cell(p, prefix, x, h):
    """Ba et al. (2016), appendix: r and z of one norm, n of another, on either side."""
    rz_and_n = []
    for side, read in (("input", x), ("hidden", h)):
        projected = p[f"{prefix}.from_{side}.weight"] @ read
        parts = (projected[: 2 * len(h)], projected[2 * len(h) :])
        rz_and_n.append([norm(p, f"{prefix}.{side}_norms.{i}", part) for i, part in enumerate(parts)])
    (x_gates, x_n), (h_gates, h_n) = rz_and_n
    r, z = np.split(sigmoid(x_gates + h_gates), 2)
    return z * h + (1 - z) * np.tanh(x_n + r * h_n)


def cell_of(p, prefix, kind):
    """A function (x, state) -> state of a layer, whose output is state[0]."""
    if kind == "norm":
        return lambda x, state: (layer_norm_gru_cell(p, prefix, x, state[0]),)
    weights = [p[f"{prefix}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    if kind == "lstm":
        return partial(lstm_cell, *weights)
    return lambda x, state: (gru_cell(*weights, x, state[0]),)


def affine(p, prefix, x):
    return p[f"{prefix}.weight"] @ x + p[f"{prefix}.bias"]


def norm(p, prefix, x):
    """(x - mean) / sqrt(variance + 1e-5), scaled and moved."""
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{prefix}.weight"] + p[f"{prefix}.bias"]


def reference_encode(p, src, case):
    """Encoder states [S, M], and the top layer's last state of either direction, of one unpadded sentence."""
    states = [p["encoder.embedding.weight"][i] for i in src]
    for layer in range(case.num_layers):
        right = cell_of(p, f"encoder.forwards.{layer}", case.cell)
        left = cell_of(p, f"encoder.backwards.{layer}", case.cell)
        rightward, state = [], (np.zeros(ENCODER_H),) * 2
        for x in states:
            state = right(x, state)
            rightward.append(state[0])
        leftward, state = [], (np.zeros(ENCODER_H),) * 2
        for x in reversed(states):
            state = left(x, state)
            leftward.insert(0, state[0])
        below = states
        states = [np.concatenate(pair) for pair in zip(rightward, leftward, strict=True)]
        if case.residual and layer > 0:
            states = [x + y for x, y in zip(states, below, strict=True)]
    summary = np.concatenate((rightward[-1], leftward[0]))
    if "encoder.projection.weight" in p:
        states = [affine(p, "encoder.projection", x) for x in states]
    return np.array(states), summary


def reference_score(p, score, q, h):
    a = "decoder.wiring.attention"
    if score == "bahdanau":  # A.1.2
        return p[f"{a}.v"] @ np.tanh(
            p[f"{a}.query_projection.weight"] @ q + p[f"{a}.key_projection.weight"] @ h
        )
    if score == "luong_dot":  # section 3.1, and the two below
        return q @ h
    if score == "luong_general":
        return q @ p[f"{a}.key_projection.weight"] @ h
    assert score == "luong_concat"
    return p[f"{a}.v"] @ np.tanh(p[f"{a}.projection.weight"] @ np.concatenate((q, h)))


def reference_attend(p, score, query, states):
    """Context (nothing without attention) and weights."""
    if score == "none":
        return np.zeros(0), None
    exps = np.exp([reference_score(p, score, query, h) for h in states])
    weights = exps / exps.sum()
    return sum(a * h for a, h in zip(weights, states, strict=True)), weights


def reference_forward(model: nn.Module, case: Case, src, tgt_in):
    """Logits [T, V] and weights [T, S] of one unpadded sentence."""
    p = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    states, summary = reference_encode(p, src, case)
    first = np.split(affine(p, "decoder.bridge", summary), {"gru": 1, "lstm": 2, "norm": 1}[case.cell])
    first[0] = np.tanh(first[0])
    layers = [np.split(part, case.num_layers) for part in first]
    state = [tuple(part[layer] for part in layers) for layer in range(case.num_layers)]
    cells = [cell_of(p, f"decoder.wiring.rnn.layers.{layer}", case.cell) for layer in range(case.num_layers)]
    top = state[-1][0]
    fed = np.zeros(E)
    logits, all_weights = [], []
    for piece in tgt_in:
        embedded = p["decoder.embedding.weight"][piece]
        if case.wiring == "attend_then_update":
            context, weights = reference_attend(p, case.score, top, states)
            x = np.concatenate((embedded, context))
        else:
            x = np.concatenate((embedded, fed)) if case.wiring == "input_feeding" else embedded
        for layer, cell in enumerate(cells):
            below = x
            state[layer] = cell(x, state[layer])
            x = state[layer][0] + (below if case.residual and layer > 0 else 0)
        if case.wiring == "conditional":
            context, weights = reference_attend(p, case.score, x, states)
            state[-1] = cell_of(p, "decoder.wiring.transition", case.cell)(context, state[-1])
            features = np.concatenate((state[-1][0], context, embedded))
        elif case.wiring == "attend_then_update":
            top = state[-1][0]
            features = np.concatenate((x, context, embedded))
        else:
            context, weights = reference_attend(p, case.score, x, states)
            features = np.concatenate((context, x))
        fed = np.tanh(affine(p, "decoder.wiring.readout", features))
        logits.append(affine(p, "output", fed))
        all_weights.append(weights)
    return np.array(logits), all_weights


def assert_equals_reference(model: EncoderDecoder, case: Case) -> None:
    src, mask = sources()
    tgt_in = targets()
    with torch.no_grad():
        logits, weights = teacher_forced(model, src, mask, tgt_in)
    for b, length in enumerate(LENGTHS):
        expected, expected_weights = reference_forward(
            model, case, src[b, :length].tolist(), tgt_in[b].tolist()
        )
        np.testing.assert_allclose(logits[b].numpy(), expected, **EXACT)
        if case.score == "none":
            assert weights is None
        else:
            np.testing.assert_allclose(weights[b, :, :length].numpy(), expected_weights, **EXACT)
            assert not weights[b, :, length:].any()


# --- the equations --------------------------------------------------------------------------------------


@every_equation
def test_translator_is_its_equations(case):
    assert_equals_reference(build(case), case)


@every_equation
def test_translator_with_projected_states_is_its_equations(case):
    assert_equals_reference(build(case, projected=True), case)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_encoder_is_torchs_bidirectional_gru_on_packed_sequences(num_layers):
    encoder = RecurrentEncoder(
        embedding=Embedding(V, E, pad_id=PAD),
        size=H,
        num_layers=num_layers,
        dropout=0.0,
        residual=False,
        output_size=None,
        cell=GRULayer,
    ).double()
    reference = nn.GRU(E, H, num_layers, bidirectional=True, batch_first=True).double()
    with torch.no_grad():
        for layer in range(num_layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                ours = (encoder.forwards[layer], encoder.backwards[layer])
                for half, suffix in zip(ours, ("", "_reverse"), strict=True):
                    getattr(half, f"{name}_l0").copy_(getattr(reference, f"{name}_l{layer}{suffix}"))
    src, mask = sources()
    embedded = torch.randn(B, S, E, dtype=torch.float64, requires_grad=True)
    encoder.embedding.register_forward_hook(lambda *_: embedded)
    states, _, summary, _ = encoder(src, mask)

    packed = nn.utils.rnn.pack_padded_sequence(embedded, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, h_n = reference(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)  # zero on padding
    expected_summary = torch.cat((h_n[-2], h_n[-1]), dim=-1)  # the top layer's forward, backward
    torch.testing.assert_close(states, expected, **EXACT)
    torch.testing.assert_close(summary, expected_summary, **EXACT)

    probes = torch.randn_like(states), torch.randn_like(summary)
    (gradient,) = torch.autograd.grad((states, summary), embedded, probes)
    (expected_gradient,) = torch.autograd.grad((expected, expected_summary), embedded, probes)
    torch.testing.assert_close(gradient, expected_gradient, **EXACT)


# --- attention and encoder states -----------------------------------------------------------------------


@pytest.mark.parametrize("score", [name for name in ATTENTIONS | WIDER if "coverage" not in name])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_fast_unroll_equals_the_plain_loop_gradients_included(score, num_layers):
    model = build(Case(score, "update_then_attend", num_layers))
    src, mask = sources()
    embedded = torch.randn(B, T, E, dtype=torch.float64, requires_grad=True)
    inputs = {"embedded": embedded, **dict(model.named_parameters())}
    results = []
    for unroll in (type(model.decoder.wiring).unroll, Wiring.unroll):
        memory = model.encode(src, mask)
        readouts, weights, _ = unroll(model.decoder.wiring, embedded, model.init_state(memory), memory)
        loss = (
            readouts * torch.linspace(-1, 1, readouts.numel(), dtype=torch.float64).view_as(readouts)
        ).sum()
        if weights is not None:
            loss = loss + (weights * torch.linspace(-1, 1, weights.numel()).view_as(weights)).sum()
        gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
        results.append((readouts, weights, dict(zip(inputs, gradients, strict=True))))
    (fast, fast_weights, fast_gradients), (plain, plain_weights, plain_gradients) = results
    assert type(model.decoder.wiring).unroll is not Wiring.unroll
    torch.testing.assert_close(fast, plain, **EXACT)
    assert (fast_weights is None) == (plain_weights is None) == (score == "none")
    if fast_weights is not None:
        torch.testing.assert_close(fast_weights, plain_weights, **EXACT)
    for name, gradient in fast_gradients.items():
        torch.testing.assert_close(
            gradient, plain_gradients[name], **EXACT, msg=lambda m, n=name: f"{n}: {m}"
        )


@every_case
def test_weights_come_on_request_alone(case):
    model, (src, mask), tgt_in = build(case), sources(), targets()
    with torch.no_grad():
        memory = model.encode(src, mask)
        assert model(memory, tgt_in).weights is None
        assert model.step(tgt_in[:, 0], model.init_state(memory), memory).weights is None
        weights = model(memory, tgt_in, need_weights=True).weights
    assert model.has_attention == (case.score != "none") == (weights is not None)
    if weights is not None:
        assert weights.shape == (B, T, S)
        if case.score == "local_p":  # as published
            assert (weights.sum(-1) < 1).all()
        else:
            torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), **EXACT)


@every_case
def test_each_heads_weights_have_the_mean_that_forward_gives(case):
    model, (src, mask), tgt_in = build(case), sources(), targets()
    with torch.no_grad():
        cross, encoder_self, decoder_self = model.attentions(src, mask, tgt_in)
        weights = teacher_forced(model, src, mask, tgt_in).weights
    assert encoder_self is decoder_self is None
    assert (cross is None) == (weights is None)
    if cross is not None:
        assert cross.shape == (B, 1, 2 if case.score == "multi_head" else 1, T, S)
        torch.testing.assert_close(cross.mean(dim=(1, 2)), weights, **EXACT)


@every_case
def test_gradient_checkpointing_changes_no_output_and_no_gradient(case):
    """Not even with dropout, which must be drawn the same the second time."""
    src, mask = sources()
    long_target = torch.cat((targets(), targets(), targets()), dim=1)  # sqrt(12) is no whole number
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(1)
        model = build(case, dropout=0.3, gradient_checkpointing=checkpointing).train()
        torch.manual_seed(2)
        logits, weights = teacher_forced(model, src, mask, long_target)
        loss = logits.square().sum() + (0 if weights is None else weights.square().sum())
        loss.backward()
        results.append((logits, {name: p.grad for name, p in model.named_parameters()}))
    torch.testing.assert_close(results[0], results[1], **EXACT)


@every_case
def test_only_attention_reads_the_encoder_states(case):
    """The bottleneck baseline knows the source by the encoder's last state alone."""
    model, (src, mask), tgt_in = build(case), sources(), targets()
    with torch.no_grad():
        memory = model.encode(src, mask)
        before = model(memory, tgt_in).logits
        states = torch.randn_like(memory.states)
        keys = None if memory.keys is None else model.decoder.attention.project_keys(states)
        after = model(memory._replace(states=states, keys=keys), tgt_in).logits
        assert torch.equal(after, before) == (case.score == "none")
        assert (memory.keys is None) == (case.score == "none")
        summary = torch.randn_like(memory.summary)
        assert not torch.isclose(model(memory._replace(summary=summary), tgt_in).logits, before).all()


# --- options --------------------------------------------------------------------------------------------


DEFAULT = Case("luong_general", "input_feeding", 2)


def test_tied_output_is_the_target_embedding():
    model = build(DEFAULT, tie_output=True)
    assert model.output.weight is model.decoder.embedding.weight
    untied = sum(p.numel() for p in build(DEFAULT).parameters())
    assert sum(p.numel() for p in model.parameters()) == untied - V * E
    assert_equals_reference(model, DEFAULT)


def test_tied_source_is_the_target_embedding():
    model = build(DEFAULT, tie_source=True, joint_vocabulary=True, src_vocab_size=V)
    assert model.encoder.embedding.weight is model.decoder.embedding.weight
    assert_equals_reference(model, DEFAULT)


def test_tied_source_without_a_joint_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"tie_source=true needs one joint vocabulary"):
        build(DEFAULT, tie_source=True, joint_vocabulary=False)


def test_input_feeding_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"input feeding .* attention=none"):
        build(Case("none", "input_feeding", 1))


def test_the_conditional_wiring_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"conditional wiring .* attention=none"):
        build(Case("none", "conditional", 1))


def test_residual_layers_without_a_stack_are_refused():
    shared = {"embedding": Embedding(V, E, pad_id=PAD), "size": H, "num_layers": 1, "dropout": 0.0}
    shared |= {"residual": True, "cell": GRULayer}
    with pytest.raises(ValueError, match=r"encoder\.residual=true needs a stack: set encoder\.num_layers"):
        RecurrentEncoder(**shared, output_size=None)
    of_decoder = {"attention_dropout": 0.0, "gradient_checkpointing": False}
    with pytest.raises(ValueError, match=r"decoder\.residual=true needs a stack: set decoder\.num_layers"):
        RecurrentDecoder(
            **shared, **of_decoder, memory_size=H, summary_size=H, wiring=AttendThenUpdate, attention=general
        )


def test_dot_scores_on_unprojected_states_are_refused_naming_both_sizes():
    with pytest.raises(ValueError, match=rf"got {H} and {2 * ENCODER_H}"):
        build(Case("luong_dot", "update_then_attend", 1), projected=False)


def untouched(*, embedding_size: int, hidden_size: int, cell: type = GRULayer) -> EncoderDecoder:
    """A translator as it starts, states projected to the decoder's size."""
    return recurrent_translator(
        src_vocab_size=V,
        tgt_vocab_size=V,
        joint_vocabulary=True,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        num_layers=1,
        dropout=0.0,
        word_dropout=0.0,
        residual=False,
        tie_output=True,
        tie_source=True,
        gradient_checkpointing=False,
        attention_dropout=0.0,
        cell=cell,
        encoder_size=hidden_size,
        num_encoder_layers=1,
        output_size=hidden_size,
        wiring=WIRINGS["update_then_attend"],
        attention=general,
    )


def test_embeddings_start_at_unit_norm_and_padding_at_zero():
    model = untouched(embedding_size=4096, hidden_size=1)
    norms = model.decoder.embedding.weight.norm(dim=1)
    assert norms[PAD] == 0
    torch.testing.assert_close(norms[PAD + 1 :], torch.ones(V - 1), rtol=0, atol=0.1)
    assert not model.output.bias.any()


def test_maps_start_as_glorot_and_bengio_say_and_their_biases_at_zero():
    """2010, eq. 16: uniform within sqrt(6 / (in + out)), whose variance is a third of its square."""
    model = untouched(embedding_size=96, hidden_size=64)
    maps = [
        model.decoder.bridge,
        model.encoder.projection,
        model.decoder.wiring.readout,
        model.decoder.wiring.attention.key_projection,
    ]
    for layer in maps:
        bound = (6 / sum(layer.weight.shape)) ** 0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.1)
        assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize(("cell", "gates"), [(GRULayer, 3), (LSTMLayer, 4), (LayerNormGRULayer, 3)])
def test_each_gate_starts_by_itself_with_orthogonal_recurrences(cell, gates):
    model = untouched(embedding_size=96, hidden_size=64, cell=cell)
    for layer in (model.encoder.forwards[0], model.encoder.backwards[0], model.decoder.wiring.rnn.layers[0]):
        if cell is LayerNormGRULayer:
            from_input, from_hidden = layer.from_input.weight, layer.from_hidden.weight
        else:
            from_input, from_hidden = layer.weight_ih_l0, layer.weight_hh_l0
            assert not layer.bias_ih_l0.any()
            assert not layer.bias_hh_l0.any()
        bound = (6 / (96 + 64)) ** 0.5
        assert from_input.abs().max() <= bound
        assert from_input.var().item() == pytest.approx(bound**2 / 3, rel=0.1)
        for gate in from_hidden.chunk(gates):
            torch.testing.assert_close(gate @ gate.T, torch.eye(64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("option", [{"dropout": 0.5}, {"word_dropout": 0.5}, {"attention_dropout": 0.5}])
def test_an_option_of_dropout_takes_effect_in_training_alone(option):
    model, (src, mask), tgt_in = build(DEFAULT, **option), sources(), targets()
    with torch.no_grad():
        assert_equals_reference(model, DEFAULT)
        model.train()
        first, second = (teacher_forced(model, src, mask, tgt_in).logits for _ in range(2))
    assert not torch.equal(first, second)


def test_dropout_is_at_every_place_that_it_is_said_to_be():
    """Embeddings of source and target, states of each of two encoder layers, between decoder layers, readouts."""
    assert sources()[0].size(1) != targets().size(1)
    case = Case("luong_general", "update_then_attend", 2)
    model = build(case, dropout=0.5).train()
    (src, mask), tgt_in = sources(), targets()
    seen = []

    def note(_, inputs, output):
        dropped = (output == 0) & (inputs[0] != 0)
        is_target = dropped.size(1) == tgt_in.size(1)
        assert not (dropped == dropped[:, :1]).all()
        seen.append((is_target, dropped if is_target else dropped[mask]))

    for module in model.modules():
        if isinstance(module, Dropout) and module.p:
            module.register_forward_hook(note)
    teacher_forced(model, src, mask, tgt_in)
    assert Counter(is_target for is_target, _ in seen) == {False: 3, True: 3}
    assert all(0.2 < each.double().mean() < 0.8 for _, each in seen)


@every_case
@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropped_weights_leave_the_context_and_are_told_whole(case, checkpointing):
    if case.score == "none":
        with pytest.raises(
            ValueError, match=r"attention_dropout=0.5 drops attention: attention=none has none"
        ):
            build(case, attention_dropout=0.5)
        return
    model = build(case, attention_dropout=0.5, gradient_checkpointing=checkpointing).train()
    (src, mask), tgt_in = sources(), targets()
    seen = []
    model.decoder.attention.dropout.register_forward_hook(
        lambda _, inputs, output: seen.append((*inputs, output))
    )
    dropped = teacher_forced(model, src, mask, tgt_in)
    before, after = (torch.cat([each[i].flatten() for each in seen]) for i in (0, 1))
    kept = after != 0
    torch.testing.assert_close(after[kept], 2 * before[kept], **EXACT)
    assert 0.2 < (kept & (before != 0)).sum() / (before != 0).sum() < 0.8
    whole = dropped.weights.sum(dim=-1)
    if case.score not in ("local_p", "location"):
        torch.testing.assert_close(whole, torch.ones_like(whole), **EXACT)
    assert not torch.equal(dropped.logits, teacher_forced(model.eval(), src, mask, tgt_in).logits)


# --- select ---------------------------------------------------------------------------------------------


def test_select_takes_rows_of_every_tensor_in_nested_containers():
    x, y, z = torch.randn(3, 2), torch.randn(3), torch.randn(3, 2, 2)
    index = torch.tensor([2, 0, 0, 1])
    tree = {"a": [x, None], "b": (y, {"c": z}), "d": RecurrentState((x,), y, None, None), "e": ()}
    picked = select(tree, index)
    assert list(picked) == list(tree)
    assert isinstance(picked["a"], list)
    assert type(picked["b"]) is tuple
    assert type(picked["d"]) is RecurrentState
    assert picked["a"][1] is None
    assert picked["d"].fed is None
    assert picked["e"] == ()
    assert torch.equal(picked["a"][0], torch.stack([x[i] for i in (2, 0, 0, 1)]))
    assert torch.equal(picked["b"][0], torch.stack([y[i] for i in (2, 0, 0, 1)]))
    assert torch.equal(picked["b"][1]["c"], torch.stack([z[i] for i in (2, 0, 0, 1)]))
    assert torch.equal(picked["d"].hidden[0], picked["a"][0])


def test_select_drops_sentences_from_a_memory():
    model, (src, mask), tgt_in = build(DEFAULT), sources(), targets()
    kept = torch.tensor([0, 2])
    with torch.no_grad():
        memory = model.encode(src, mask)
        smaller = select(memory, kept)
        assert type(smaller) is Memory
        torch.testing.assert_close(
            model(smaller, tgt_in[kept]).logits, model(memory, tgt_in).logits[kept], **EXACT
        )


@pytest.mark.parametrize("leaf", [3, "h", np.zeros(3)])
def test_select_refuses_what_it_cannot_reorder(leaf):
    with pytest.raises(TypeError, match=type(leaf).__name__):
        select((torch.zeros(3), [leaf]), torch.tensor([0]))
