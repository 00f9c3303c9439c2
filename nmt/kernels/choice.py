"""The choice between fast and plain kernels: a flag of the process, like those of torch's backends."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nmt.errors import UserError

NAMES = ("fast", "plain")
_chosen = "fast"


def use(name: str) -> None:
    """Run the kernels `name` from now on. Raises UserError unless `name` is `fast` or `plain`."""
    global _chosen
    if name not in NAMES:
        raise UserError(f"kernels={name}: choose one of {', '.join(NAMES)}")
    _chosen = name


@contextmanager
def using(name: str) -> Iterator[None]:
    """Run the kernels `name` inside the block."""
    before = _chosen
    use(name)
    try:
        yield
    finally:
        use(before)


def fast(x: Tensor) -> bool:
    """True if a function of x should take its fast form: `fast` is chosen, and x is not multiplied in 16 bits.

    Autocast to bfloat16 is an exception: there the fast forms keep their sums in 32 bits.
    """
    device = x.device.type
    if _chosen != "fast":
        return False
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device) == torch.bfloat16
    return x.dtype not in (torch.float16, torch.bfloat16)


def product_type(x: Tensor) -> torch.dtype:
    """The type of products with x: that of autocast, or else of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def promote(x: Tensor) -> Tensor:
    """Convert x to the type of states, gates and sums: under autocast float32 or wider, else unchanged."""
    if not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.promote_types(x.dtype, torch.float32))
