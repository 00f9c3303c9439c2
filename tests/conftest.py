"""Every test starts from the same seed, on one thread: many small tensors gain nothing from more."""

import os
from collections.abc import Iterator

import hydra
import pytest
import torch

from tests.commands import by_choices

torch.set_num_threads(1)
# Processes that end by Unix's signals, and a file that shares their helpers
UNIX = ("averaging", "ddp", "interrupt", "resume", "trackers")
collect_ignore = [f"test_{name}.py" for name in UNIX if os.name == "nt"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def started_by_script() -> Iterator[None]:
    """The variable by which `nmt COMMAND` names itself outlives no test."""
    yield
    os.environ.pop("NMT_COMMAND", None)


@pytest.fixture(autouse=True, scope="session")
def compose_once() -> Iterator[None]:
    """Composing takes longer than most tests: Hydra is asked once for each set of choices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra, "compose", by_choices)
        yield
