"""Products of few rows with a weight that many of them share, copied once into the order that the processor reads.

A product `x W^T` copies W into that order, piece by piece, before it multiplies. With thousands of rows this costs
nothing; with the few rows of a recurrence's or a search's step it is a third of the time and more.

oneDNN takes longer than a small product to begin one, and plans anew for each number of rows. So large weights alone
are packed, and a search, whose beams come in every size, rounds its rows up to few sizes.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.kernels.choice import fast, product_type

# x [..., I] and a bias [O] or None to `x W^T + b` [..., O].
Map = Callable[[Tensor, Tensor | None], Tensor]

LARGE = 2**17  # numbers in a weight: below this, packing costs more than it saves

# The weights met so far in the block: by what they are, the weight itself (kept, so that no other takes its place)
# and its map; None where it is not packed.
_Pool = dict[Hashable, tuple[Tensor, Map | None]]
_pool: ContextVar[_Pool | None] = ContextVar("packed", default=None)


def map_of(weight: Tensor, dtype: torch.dtype | None = None) -> Map:
    """The map `x W^T + b` of a weight W [O, I], copied into the processor's order where it is large and torch can;
    without gradient.

    Elsewhere (on another device, in another type than float32 and, on some CPUs, bfloat16, or without oneDNN) it is
    `F.linear`. It computes in `dtype`; None is autocast's, or the weight's own type.
    """
    dtype = product_type(weight) if dtype is None else dtype
    packs = _packs(weight, dtype)
    weight = weight.detach().to(dtype)
    if not packs:
        return lambda x, bias: F.linear(x.to(dtype), weight, _maybe(bias, dtype))
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return lambda x, bias: torch.ops.mkldnn._linear_pointwise(
        x.to(dtype), packed, _maybe(bias, dtype), "none", [], ""
    )


def _packs(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.is_cpu and weight.numel() >= LARGE and fast(weight) and _available(dtype)


def _maybe(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if bias is None else bias.to(dtype)


def _available(dtype: torch.dtype) -> bool:
    backend: Any = torch.backends.mkldnn  # oneDNN's earlier name
    if not (backend.is_available() and backend.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def padded(num_rows: int) -> int:
    """The number of rows to compute for: rounded up to an eighth of its power of two."""
    step = max(8, 1 << max(0, num_rows.bit_length() - 4))
    return -(-num_rows // step) * step


def map_of_any_rows(weight: Tensor) -> Map:
    """As `map_of`, where each call may have another number of rows."""
    packed = map_of(weight)

    def product(x: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.size(-1))
        num_rows = len(rows)
        rows = F.pad(rows, (0, 0, 0, padded(num_rows) - num_rows))
        return packed(rows, bias)[:num_rows].view(*x.shape[:-1], len(weight))

    return product


@contextmanager
def packed_weights() -> Iterator[None]:
    """Inside the block, without gradients, `linear` packs each large weight once; weights must not change there."""
    token = _pool.set({})
    try:
        yield
    finally:
        _pool.reset(token)


def pooled_map(weight: Tensor) -> Map | None:
    """The packed map of a large weight [O, I] inside `packed_weights`; None outside, with gradients, or without one."""
    pool = _pool.get()
    if pool is None or torch.is_grad_enabled() or weight.numel() < LARGE:
        return None
    key = same(weight)
    if key not in pool:
        packs = _packs(weight, product_type(weight))
        pool[key] = (weight, map_of_any_rows(weight) if packs else None)
    return pool[key][1]


def same(tensor: Tensor) -> Hashable:
    """A key that two living tensors share only if they are the same memory with the same shape and strides."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()
