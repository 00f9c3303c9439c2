"""Every test starts from the same seed, on one thread: many small tensors gain nothing from more."""

from collections.abc import Iterator

import hydra
import pytest
import torch

from tests.commands import by_choices

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def compose_once() -> Iterator[None]:
    """Composing takes longer than most tests: Hydra is asked once for each set of choices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra, "compose", by_choices)
        yield
