"""Products of few rows with a weight that many of them share, copied once into the order that the processor reads.

A product `x W^T` copies W into that order, block by block, before it multiplies. With thousands of rows this costs
nothing. With the few rows of a step of a recurrence or a search it is a third of the time or more.

oneDNN takes longer to start than a small product takes, and plans anew for each number of rows. So it packs only large
weights, and a search, which has beams of all sizes, rounds its rows up to few sizes. Small weights are copied in order
of their columns, which MKL multiplies faster by few rows.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.kernels import onednn
from nmt.kernels.choice import fast, product_type

# Maps x [..., I] and a bias [O] or None to `x W^T + b` [..., O].
Map = Callable[[Tensor, Tensor | None], Tensor]

LARGE = 2**17  # elements of a weight: below this, packing costs more than it saves
LARGE_IN_SEARCH = 2**19  # the same for a search, whose number of rows changes
MOST_ROWS = 512  # above this, a copy saves nothing
_APART = 16  # elements between the rows of a small weight's copy: at strides of 2 ** n they would share cache lines

# For each weight used in the block, by the key of `same`: the weight, so that its memory is not reused, and its
# map, or None if it is not packed.
_Pool = dict[Hashable, tuple[Tensor, Map | None]]
_pool: ContextVar[_Pool | None] = ContextVar("packed", default=None)


def map_of(weight: Tensor, dtype: torch.dtype | None = None) -> Map:
    """The map `x W^T + b` of a weight W [O, I], without gradient; W is packed if it is large and torch can.

    The map is `onednn.affine` on another device than the CPU, in another type than float32 (and on some CPUs bfloat16),
    and without oneDNN. It computes in `dtype`; None is the type of autocast, or of the weight.
    """
    dtype = product_type(weight) if dtype is None else dtype
    packs = _packs(weight, dtype)
    weight = weight.detach().to(dtype)
    if not packs:
        return lambda x, bias: onednn.affine(x.to(dtype), weight, _maybe(bias, dtype))
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return lambda x, bias: onednn.multiply(x.to(dtype), packed, _maybe(bias, dtype))


def _packs(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.is_cpu and weight.numel() >= LARGE and fast(weight) and _available(dtype)


def _maybe(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if bias is None else bias.to(dtype)


def _available(dtype: torch.dtype) -> bool:
    if not onednn.available():
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def round_up_rows(num_rows: int) -> int:
    """The number of rows to compute: `num_rows` rounded up to an eighth of its power of two, at least to 8."""
    step = max(8, 1 << max(0, num_rows.bit_length() - 4))
    return -(-num_rows // step) * step


def map_of_any_rows(weight: Tensor) -> Map:
    """`map_of` for calls with different numbers of rows."""
    packed = map_of(weight)

    def product(x: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.size(-1))
        num_rows = len(rows)
        rows = F.pad(rows, (0, 0, 0, round_up_rows(num_rows) - num_rows))
        return packed(rows, bias)[:num_rows].view(*x.shape[:-1], len(weight))

    return product


def map_by_columns(weight: Tensor) -> Map:
    """The map `x W^T + b` of a small weight W [O, I], without gradient, for few rows and for MKL."""
    outputs, inputs = weight.shape
    columns = weight.new_empty(inputs, outputs + _APART)[:, :outputs].copy_(weight.detach().t())

    def product(x: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, inputs)
        y = rows @ columns if bias is None else torch.addmm(bias, rows, columns)
        return y.view(*x.shape[:-1], outputs)

    return product


@contextmanager
def packed_weights() -> Iterator[None]:
    """Inside the block, without gradients, `fast_linear` copies each weight once. Weights must not change.

    A block inside another takes part in it.
    """
    outer = _pool.get()
    token = _pool.set({} if outer is None else outer)
    try:
        yield
    finally:
        _pool.reset(token)


def pooled_map(weight: Tensor, num_rows: int) -> Map | None:
    """The map of a weight [O, I] copied inside `packed_weights`, for a product with few rows.

    None outside the block, with gradients, for many rows, and for a weight that no copy makes faster.
    """
    pool = _pool.get()
    if pool is None or torch.is_grad_enabled() or num_rows > MOST_ROWS:
        return None
    key = same(weight)
    if key not in pool:
        pool[key] = (weight, _map_for_search(weight))
    return pool[key][1]


def _map_for_search(weight: Tensor) -> Map | None:
    dtype = product_type(weight)
    if weight.numel() >= LARGE_IN_SEARCH:
        return map_of_any_rows(weight) if _packs(weight, dtype) else None
    return map_by_columns(weight) if _mkl_is_faster(weight, dtype) else None


def _mkl_is_faster(weight: Tensor, dtype: torch.dtype) -> bool:
    """True if MKL is the faster library for products of the weight in `dtype`."""
    served = weight.is_cpu and weight.dtype == dtype == torch.float32 and torch.backends.mkl.is_available()
    return served and fast(weight) and not onednn.is_faster()


def same(tensor: Tensor) -> Hashable:
    """A key that two living tensors share only if they have the same memory, shape and strides."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()
