"""The choice between fast and plain kernels: a flag of the process, like torch's own for its backends."""

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
    """Whether a function of x should take its fast form: where `fast` is chosen and x is not multiplied in 16 bits.

    Autocast to bfloat16 is an exception: the fast forms keep their sums in 32 bits there.
    """
    device = x.device.type
    if _chosen != "fast":
        return False
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device) == torch.bfloat16
    return x.dtype not in (torch.float16, torch.bfloat16)


def product_type(x: Tensor) -> torch.dtype:
    """The type that products with x are computed in: autocast's, or x's own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def widened(x: Tensor) -> Tensor:
    """x in the type of states, gates and sums: under autocast float32 or more, else its own."""
    if not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.promote_types(x.dtype, torch.float32))
