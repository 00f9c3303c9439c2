"""Muon: hidden matrices against a step by singular values in float64, all else against torch's Adam."""

from functools import partial

import pytest
import torch
from torch import nn

from nmt.layers.initialisation import glorot_, initialise_linear
from nmt.training.muon import Muon, orthogonal

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
        linear = nn.Linear(16, 24, dtype=torch.float64)
        initialise_linear(linear)
        linear.weight.data.zero_()
        linear.weight.grad = weight.clone()
        Muon([linear.weight], **SETTINGS, dtype=dtype).step()
        steps.append(linear.weight.detach())
    exactly, single, half = (step.flatten() for step in steps)
    assert 1e-12 < (single - exactly).abs().max() < 1e-7
    assert torch.cosine_similarity(half, exactly, dim=0) > 0.99
    assert (half - exactly).abs().max() > 1e-6


class Parts(nn.Module):
    """A joined weight of three maps, one map alone, an embedding, a bias."""

    def __init__(self):
        super().__init__()
        self.joined = nn.Parameter(torch.empty(18, 4))
        glorot_(self.joined, parts=3)
        self.linear = nn.Linear(4, 6)
        initialise_linear(self.linear)
        self.embedding = nn.Embedding(9, 4)

    def forward(self, ids):
        x = self.embedding(ids)
        return (x @ self.joined.T).tanh().sum() + self.linear(x).sigmoid().square().sum()


def test_each_map_of_a_weight_steps_by_itself_and_the_others_as_adam():
    model, twin = Parts(), Parts()
    twin.load_state_dict(model.state_dict())
    hidden = {"joined": 3, "linear.weight": 1}
    muon = Muon(model.parameters(), **SETTINGS)
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


def test_a_saved_state_goes_on_as_if_it_had_not_stopped():
    make = partial(Muon, **SETTINGS)
    model = Parts()
    optimizer = make(model.parameters())

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
    optimizer = make(model.parameters())
    optimizer.load_state_dict(state)
    step(second)
    assert all(torch.equal(ended[name], value) for name, value in model.state_dict().items())
