"""Dropout: its distribution, its scale, its shapes, and that it is a function of the seed."""

import math

import pytest
import torch

from nmt.layers.dropout import Dropout, WordDropout, dropout_mask


@pytest.mark.parametrize("p", [0.002, 0.1, 0.3, 0.5, 0.9])
def test_a_mask_keeps_its_share_and_has_mean_one(p):
    torch.manual_seed(1)
    size = 200_000
    mask = dropout_mask((size,), p, like=torch.zeros(1, dtype=torch.float64))
    kept = min(round(256 * (1 - p)), 255) / 256
    assert set(mask.unique().tolist()) == {0.0, 1 / kept}
    share = (mask > 0).double().mean().item()
    assert abs(share - kept) < 5 * math.sqrt(kept * (1 - kept) / size)
    assert abs(kept - (1 - p)) <= 1 / 256


def test_a_probability_next_to_one_keeps_something():
    torch.manual_seed(1)
    mask = dropout_mask((10_000,), 0.999, like=torch.zeros(1))
    assert set(mask.unique().tolist()) == {0.0, 256.0}


def test_every_place_of_a_mask_is_drawn_alike():
    """Eight masks come out of one draw: none of them may be special, nor follow its neighbour."""
    torch.manual_seed(1)
    mask = (dropout_mask((20_000, 8), 0.5, like=torch.zeros(1)) > 0).double()
    assert (mask.mean(dim=0) - 0.5).abs().max() < 0.02
    assert (torch.corrcoef(mask.T) - torch.eye(8)).abs().max() < 0.04


@pytest.mark.parametrize("size", [1, 7, 8, 9])
def test_sizes_that_eight_does_not_divide(size):
    assert dropout_mask((size,), 0.5, like=torch.zeros(1)).shape == (size,)


@pytest.mark.parametrize("make", [Dropout, WordDropout])
def test_shapes_gradient_and_seed(make):
    x = torch.ones(6, 50, 40, requires_grad=True)
    layer = make(0.5)
    torch.manual_seed(3)
    y = layer(x)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    torch.manual_seed(3)
    assert torch.equal(layer(x), y)
    assert not torch.equal(layer(x), y)
    along_time, along_units = (y == y[:, :1]).all(), (y == y[:, :, :1]).all()
    assert not along_time
    assert along_units == (make is WordDropout)
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(make(0.0)(x), x)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2])
def test_probabilities_are_refused_by_name(p):
    with pytest.raises(ValueError, match=rf"from 0 to below 1, got {p}"):
        Dropout(p)
