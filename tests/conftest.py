"""Every test starts from the same seed, on one thread: many small tensors gain nothing from more."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
