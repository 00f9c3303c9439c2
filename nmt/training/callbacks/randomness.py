"""The state of every random generator, as plain values that a checkpoint can hold."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
import numpy as np
import torch


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of the random generators of Python, NumPy, torch, and the device if it is a GPU."""
    version, numbers, gauss = random.getstate()
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    name, keys, position, has_gauss, cached = numpy_state
    state = {
        "python": (version, list(numbers), gauss),
        "numpy": (name, keys.tolist(), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the states that `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


@contextmanager
def without_trace(module: L.LightningModule) -> Iterator[None]:
    """After the block the random generators are as before it, and the parameters have no gradients."""
    state = random_state(module.device)
    try:
        yield
    finally:
        module.zero_grad(set_to_none=True)
        set_random_state(state, module.device)
