"""The convolutional encoder against a loop in float64 NumPy, and what any encoder must keep."""

from functools import partial

import numpy as np
import pytest
import torch

from nmt.encoders.convolutional import ConvolutionalEncoder
from nmt.layers.embedding import Embedding
from nmt.layers.positions import LearnedPositions, RotaryPositions

E, H, PIECES = 5, 6, 11
LENGTHS = [5, 2, 4]


LEARNED = partial(LearnedPositions, max_length=7)


def encoder(
    num_layers: int = 2, kernel_size: int = 3, dropout: float = 0.0, positions=LEARNED
) -> ConvolutionalEncoder:
    built = ConvolutionalEncoder(
        embedding=Embedding(PIECES, E, pad_id=0),
        size=H,
        num_layers=num_layers,
        kernel_size=kernel_size,
        dropout=dropout,
        positions=positions,
    ).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=0.5)
    return built


def sources() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[j < length for j in range(max(LENGTHS))] for length in LENGTHS])
    return torch.randint(3, PIECES, mask.shape).masked_fill(~mask, 0), mask


def reference(p: dict[str, np.ndarray], ids: list[int], num_layers: int) -> np.ndarray:
    """One sentence, unpadded: Gehring et al. (2017), section 3, position by position and tap by tap."""
    x = [p["enter.weight"] @ (p["embedding.weight"][i] + p["positions.table"][t]) + p["enter.bias"]
         for t, i in enumerate(ids)]  # fmt: skip
    for layer in range(num_layers):
        weight, bias = p[f"convolutions.{layer}.weight"], p[f"convolutions.{layer}.bias"]  # [2H, H, k]
        after = []
        for t in range(len(x)):
            total = bias.copy()
            for tap in range(weight.shape[2]):
                neighbour = t + tap - weight.shape[2] // 2
                if 0 <= neighbour < len(x):
                    total += weight[:, :, tap] @ x[neighbour]
            a, b = total[:H], total[H:]
            after.append(np.sqrt(0.5) * (x[t] + a / (1 + np.exp(-b))))
        x = after
    return np.array([p["leave.weight"] @ each + p["leave.bias"] for each in x])


@pytest.mark.parametrize(("num_layers", "kernel_size"), [(1, 1), (2, 3), (3, 5)])
def test_states_are_those_of_the_equations(num_layers, kernel_size):
    model, (src, mask) = encoder(num_layers, kernel_size), sources()
    parameters = {name: value.detach().numpy() for name, value in model.named_parameters()}
    states, returned_mask, summary, _ = model(src, mask)
    assert summary is None
    assert torch.equal(returned_mask, mask)
    for row, length in enumerate(LENGTHS):
        expected = reference(parameters, src[row, :length].tolist(), num_layers)
        np.testing.assert_allclose(states[row, :length].detach().numpy(), expected, rtol=0, atol=1e-10)
        assert not states[row, length:].any()


def test_dropout_takes_effect_in_training_alone():
    model, (src, mask) = encoder(dropout=0.5), sources()
    assert not torch.equal(model(src, mask).states, model(src, mask).states)
    model.eval()
    assert torch.equal(model(src, mask).states, model(src, mask).states)


def test_rotary_positions_are_refused():
    with pytest.raises(
        ValueError, match="encoder=convolutional has no queries to turn: give positions=learned"
    ):
        encoder(positions=RotaryPositions)


def test_an_even_kernel_is_refused():
    with pytest.raises(ValueError, match=r"encoder\.kernel_size must be odd, got 4"):
        encoder(kernel_size=4)
