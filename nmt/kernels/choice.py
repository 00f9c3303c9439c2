"""Which kernels run: a flag of the process, like torch's own for its backends."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nmt.errors import UserError

NAMES = ("fast", "plain")
_chosen = "fast"


def use(name: str) -> None:
    """Run these kernels from now on. Raises UserError, a ValueError, for any but `fast` and `plain`."""
    global _chosen
    if name not in NAMES:
        raise UserError(f"kernels={name}: choose one of {', '.join(NAMES)}")
    _chosen = name


@contextmanager
def using(name: str) -> Iterator[None]:
    """Run these kernels inside the block."""
    before = _chosen
    use(name)
    try:
        yield
    finally:
        use(before)


def fast(x: Tensor) -> bool:
    """Whether what reads x should take the fast form: where it was chosen, and precision is x's own."""
    return _chosen == "fast" and not torch.is_autocast_enabled(x.device.type)
