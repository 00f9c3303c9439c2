"""Muon: hidden matrices against a step by singular values in float64, all else against torch's Adam."""

import copy
from functools import partial
from typing import ClassVar

import pytest
import torch
from torch import nn

from nmt.attention import GeneralAttention
from nmt.attention.masks import masked_softmax
from nmt.decoders import PoolingDecoder
from nmt.encoders.hierarchical import AttentionPooling
from nmt.layers.cells import GRULayer, LayerNormGRULayer, LSTMLayer
from nmt.layers.embedding import Embedding
from nmt.layers.initialisation import glorot_
from nmt.layers.transformer_attention import CrossAttention, LayerSettings, SelfAttention
from nmt.training.muon import Muon, hidden_matrices, make_optimizer, orthogonal
from tests.translators import transformer_translator

SETTINGS = {"lr": 0.01, "momentum": 0.9, "num_iterations": 5, "betas": (0.9, 0.98), "eps": 1e-8}


def exact(matrix):
    """`U V^T` of a matrix `U S V^T`, in float64."""
    u, _, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    return u @ v


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (64, 64)])
def test_singular_values_come_near_one_and_the_directions_stay(shape):
    matrices = torch.randn(3, *shape)
    result = orthogonal(matrices, num_iterations=5)
    for matrix, near in zip(matrices, result, strict=True):
        u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
        inside = u.T @ near.double() @ v.T  # diagonal: the singular values after
        assert (inside - inside.diagonal().diag()).abs().max() < 1e-4
        large = inside.diagonal()[s > 0.05 * s[0]]
        assert large.min() > 0.6
        assert large.max() < 1.3


def test_converged_iterations_give_the_orthogonal_factor():
    """The coefficients of Newton and Schulz, whose iterations end at 1, in the same function."""
    matrices = torch.randn(2, 5, 9, dtype=torch.float64)
    result = orthogonal(matrices, num_iterations=30, coefficients=(1.875, -1.25, 0.375))
    for matrix, near in zip(matrices, result, strict=True):
        torch.testing.assert_close(near, exact(matrix))


def test_iterations_compute_in_the_type_that_is_asked_for():
    weight = torch.randn(24, 16, dtype=torch.float64)
    steps = []
    for dtype in (None, "float32", "bfloat16"):
        linear = nn.Linear(16, 24, bias=False, dtype=torch.float64)
        linear.weight.data.zero_()
        linear.weight.grad = weight.clone()
        Muon(linear, **SETTINGS, dtype=dtype).step()
        steps.append(linear.weight.detach())
    exactly, single, half = (step.flatten() for step in steps)
    assert 1e-12 < (single - exactly).abs().max() < 1e-7
    assert torch.cosine_similarity(half, exactly, dim=0) > 0.99
    assert (half - exactly).abs().max() > 1e-6


class Parts(nn.Module):
    """A joined weight of three maps, one map alone, an embedding, a bias."""

    stacked_maps: ClassVar = {"joined": 3}

    def __init__(self):
        super().__init__()
        self.joined = nn.Parameter(torch.empty(18, 4))
        glorot_(self.joined, parts=3)
        self.linear = nn.Linear(4, 6)
        self.embedding = nn.Embedding(9, 4)

    def forward(self, ids):
        x = self.embedding(ids)
        return (x @ self.joined.T).tanh().sum() + self.linear(x).sigmoid().square().sum()


def test_each_map_of_a_weight_steps_by_itself_and_the_others_as_adam():
    model, twin = Parts(), Parts()
    twin.load_state_dict(model.state_dict())
    hidden = {"joined": 3, "linear.weight": 1}
    muon = Muon(model, **SETTINGS)
    others = [parameter for name, parameter in twin.named_parameters() if name not in hidden]
    adam = torch.optim.Adam(others, lr=0.01, betas=(0.9, 0.98), eps=1e-8, fused=True)
    momenta = dict.fromkeys(hidden, 0.0)
    for _ in range(3):
        ids = torch.randint(9, (5,))
        for each, optimizer in ((model, muon), (twin, adam)):
            optimizer.zero_grad()
            each.zero_grad()
            each(ids).backward()
        expected = {}
        for name, parts in hidden.items():
            weight = dict(model.named_parameters())[name]
            momenta[name] = 0.9 * momenta[name] + 0.1 * weight.grad.double()
            ahead = 0.9 * momenta[name] + 0.1 * weight.grad.double()
            steps = [
                orthogonal(part[None], num_iterations=5)[0] * 0.2 * max(part.shape) ** 0.5
                for part in ahead.chunk(parts)
            ]
            expected[name] = weight.detach().double() - 0.01 * torch.cat(steps)
        muon.step()
        adam.step()
        with torch.no_grad():
            for name, weight in expected.items():
                torch.testing.assert_close(
                    dict(model.named_parameters())[name].double(), weight, rtol=1e-4, atol=1e-5
                )
                dict(twin.named_parameters())[name].copy_(dict(model.named_parameters())[name])
        for name, parameter in model.named_parameters():
            if name not in hidden:
                assert torch.equal(parameter, dict(twin.named_parameters())[name]), name


LAYERS = LayerSettings(
    **{"size": 8, "memory_size": 6, "feedforward_size": 12, "num_heads": 2, "pre_norm": True},
    **{"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0},
)
OF_LAYERS = {
    "gru": (GRULayer(input_size=4, hidden_size=5), {"weight_ih_l0": 3, "weight_hh_l0": 3}),
    "lstm": (LSTMLayer(input_size=4, hidden_size=5), {"weight_ih_l0": 4, "weight_hh_l0": 4}),
    "gru_layer_norm": (
        LayerNormGRULayer(input_size=4, hidden_size=5),
        {"from_input.weight": 3, "from_hidden.weight": 3},
    ),
    "self-attention": (SelfAttention(LAYERS), {"output.weight": None, "projection.weight": 3}),
    "cross-attention": (
        CrossAttention(LAYERS),
        {"output.weight": None, "query_projection.weight": 1, "states_projection.weight": 2},
    ),
    "pooling of an encoder": (AttentionPooling(4), {"projection.weight": 1}),
    "torch's cell": (nn.LSTMCell(4, 5), {"weight_ih": 4, "weight_hh": 4}),
    "torch's layers": (
        nn.GRU(4, 5, num_layers=2),
        {f"weight_{of}_l{layer}": 3 for layer in (0, 1) for of in ("ih", "hh")},
    ),
    "torch's attention": (nn.MultiheadAttention(8, 2), {"in_proj_weight": 3, "out_proj.weight": 1}),
    "a score": (nn.Linear(4, 1), {}),
    "a convolution": (nn.Conv1d(4, 4, 3), {}),
}


@pytest.mark.parametrize("name", OF_LAYERS)
def test_hidden_matrices_of_a_layer(name):
    layer, expected = OF_LAYERS[name]
    of = dict(layer.named_parameters())
    # As part of a model, whose layer `output` alone is no map between hidden vectors
    found = hidden_matrices(nn.Sequential(layer))
    assert {name for name in of if of[name] in found} == set(expected)
    assert all(found[of[name]] == (num or 1) for name, num in expected.items())


def transformer(**options):
    return transformer_translator(
        **{"size": 8, "num_encoder_layers": 1, "num_decoder_layers": 1, "alignment_layer": None},
        **{"feedforward_size": 12, "num_heads": 2, "pre_norm": True, "gradient_checkpointing": False},
        **{"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "word_dropout": 0.0},
        **{"src_vocab_size": 9, "tgt_vocab_size": 9, "pad_id": 0, "bos_id": 1, "eos_id": 2},
        **{"joint_vocabulary": True, "tie_source": False, "positions": lambda *, size: nn.Embedding(9, size)},
        **options,
    )


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_and_the_output_layer_of_a_model_are_left_to_adam(tied):
    model = transformer(tie_output=tied)
    left = {name for name, each in model.named_parameters() if each not in hidden_matrices(model)}
    apart = {"encoder.embedding.weight", "encoder.positions.weight", "decoder.embedding.weight"}
    apart |= {"decoder.positions.weight"} | (set() if tied else {"output.weight"})
    matrices = {name for name, each in model.named_parameters() if each.dim() == 2}
    assert left & matrices == apart


def test_a_copied_model_has_the_same_matrices():
    model = transformer(tie_output=True)
    there = copy.deepcopy(model)
    named = [
        {name: found.get(each) for name, each in of.named_parameters()}
        for of, found in ((model, hidden_matrices(model)), (there, hidden_matrices(there)))
    ]
    assert named[0] == named[1]
    assert sum(num or 0 for num in named[0].values()) == 4 + 2 + 4 + 4 + 2  # self, ff, self, cross, ff


def test_the_attention_of_a_pooling_decoder_starts_as_glorot_and_steps_by_muon():
    decoder = PoolingDecoder(
        embedding=Embedding(9, 64, pad_id=0, word_dropout=0.0),
        **{"memory_size": 64, "summary_size": None, "size": 64, "dropout": 0.0, "attention_dropout": 0.0},
        attention=partial(GeneralAttention, temperature=1.0, normalizer=masked_softmax),
    )
    weight = decoder.attention.key_projection.weight
    assert weight in hidden_matrices(decoder)
    assert 0.95 < weight.abs().max() / (6 / 128) ** 0.5 <= 1  # uniform, of variance 2 / (in + out)


def test_the_optimizer_says_what_is_updated_by_which_rule():
    said = str(make_optimizer(partial(Muon, **SETTINGS), Parts()))
    assert "4 hidden matrices" in said
    assert f"{18 * 4 + 6 * 4} numbers" in said
    assert f"{9 * 4 + 6} other numbers" in said


@pytest.mark.parametrize(
    ("given", "precision", "found"),
    [
        (None, "32-true", None),
        (None, "bf16-mixed", torch.bfloat16),
        ("float32", "bf16-mixed", torch.float32),
    ],
)
def test_iterations_compute_in_the_type_of_the_products_if_none_is_given(given, precision, found):
    muon = make_optimizer(partial(Muon, **SETTINGS, dtype=given), Parts(), precision=precision)
    assert muon.dtype is found


def test_a_saved_state_goes_on_as_if_it_had_not_stopped():
    make = partial(Muon, **SETTINGS)
    model = Parts()
    optimizer = make(model)

    def step(ids):
        optimizer.zero_grad()
        model(ids).backward()
        optimizer.step()

    first, second = torch.randint(9, (2, 5))
    step(first)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = optimizer.state_dict()
    state = {
        "state": {k: {n: v.clone() for n, v in each.items()} for k, each in state["state"].items()},
        **{"param_groups": state["param_groups"]},
    }
    step(second)
    ended = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(weights)
    optimizer = make(model)
    optimizer.load_state_dict(state)
    step(second)
    assert all(torch.equal(ended[name], value) for name, value in model.state_dict().items())
