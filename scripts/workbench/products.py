"""Measure the time that this machine takes for the matrix products of a training step alone, beside the whole step.

python scripts/workbench/products.py [KEY=VALUE …]

KEY=VALUE: settings of benchmark.py, `data=multi30k model=transformer` among them.

    efficiency = seconds of the matrix products of a step alone / seconds of the whole step

A product `C = A B` of the forward pass needs two more for the gradient: `dA = dC B^T` and `dB = A^T dC`. All are
measured with their shapes, repeatedly on operands in cache.
"""

import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from nmt import benchmark as measure
from nmt.benchmark import TrainingStep, build_step, spread, stopwatch
from nmt.commands.benchmark import make_data
from nmt.commands.composing import compose
from nmt.commands.entry import errors_in_one_line
from nmt.config.commands import check_settings
from nmt.data.batching import Batch
from nmt.run.device import pick_device

_MOST_CALLS, _ROUND_SECONDS = 10, 0.0004  # per round of a shape
_MOST_ROUNDS, _ENOUGH_SECONDS = 5, 0.02


class Product(NamedTuple):
    """`num` products [rows, inner] @ [inner, columns] in one call."""

    num: int
    rows: int
    inner: int
    columns: int
    dtype: torch.dtype

    def with_gradients(self) -> tuple["Product", "Product", "Product"]:
        """The product, `dA = dC B^T` and `dB = A^T dC`."""
        num, rows, inner, columns, dtype = self
        return (
            self,
            Product(num, rows, columns, inner, dtype),
            Product(num, inner, rows, columns, dtype),
        )


class _Recorder(TorchDispatchMode):
    """Counts the computed products by shape."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"):
            left, right = [each for each in args if isinstance(each, Tensor)][-2:]
            columns = right.size(-1) if right.dim() > 1 else 1
            num = left.size(0) if left.dim() == 3 else 1
            rows = left.size(-2) if left.dim() > 1 else 1
            self.products[Product(num, rows, left.size(-1), columns, left.dtype)] += 1
        return func(*args, **(kwargs or {}))


def count_products(run: Callable[[], Any]) -> Counter[Product]:
    """The matrix products of `run()`, with the number of calls, on any device.

    Fused kernels that hide their products (oneDNN's LSTM, cuDNN's recurrence, fused attention) are switched off.
    Attention counts the whole [T, S], although a fused kernel may skip masked parts.
    """
    recorder = _Recorder()
    with (
        warnings.catch_warnings(action="ignore"),  # setting oneDNN's flag warns of missing GPUs
        torch.backends.mkldnn.flags(enabled=False),
        torch.backends.cudnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        recorder,
    ):
        run()
    return recorder.products


def products_of(step: TrainingStep, batches: Iterable[Batch]) -> Counter[Product]:
    """The forward products of a training step on `batches`. Layers that are computed again for gradients count once."""
    products: Counter[Product] = Counter()
    for batch in batches:
        # Without gradients: a forward pass of a fused kernel may compute them too
        with torch.random.fork_rng(), torch.no_grad():
            products += count_products(partial(step.loss, batch))
    return products


def products_seconds(products: Mapping[Product, int], device: torch.device) -> float:
    """Seconds of the forward products and of the products for their gradients, measured alone."""
    return sum(
        count * sum(_seconds_a_call(part, device) for part in product.with_gradients())
        for product, count in products.items()
    )


def _seconds_a_call(product: Product, device: torch.device) -> float:
    """Seconds of a call: the median of the means of a few rounds, so that an interrupted round does not count."""
    num, rows, inner, columns, dtype = product
    left = torch.ones(num, rows, inner, dtype=dtype, device=device)
    right = torch.ones(num, inner, columns, dtype=dtype, device=device)
    multiply: Callable[[Tensor, Tensor], Tensor] = torch.bmm
    if num == 1:
        left, right, multiply = left[0], right[0], torch.mm

    def seconds_of(calls: int) -> float:
        with stopwatch(device) as seconds:
            for _ in range(calls):
                multiply(left, right)
        return seconds[0]

    seconds_of(1)
    calls = min(_MOST_CALLS, 1 + int(_ROUND_SECONDS / seconds_of(1)))
    means: list[float] = []
    while not means or (len(means) < _MOST_ROUNDS and sum(means) * calls < _ENOUGH_SECONDS):
        means.append(seconds_of(calls) / calls)
    return statistics.median(means)


def efficiencies(overrides: Sequence[str]) -> list[float]:
    """The efficiency in each turn but the first, which warms up.

    The products are measured after training, because preparing the libraries for new shapes is part of training.
    """
    cfg = compose("benchmark", list(overrides))
    check_settings(cfg, "benchmark")
    device = pick_device(cfg.device)
    data = make_data(cfg)
    num_turns = cfg.repeats + 1
    batches = measure.first_batches(data.train_dataloader(), num_turns * cfg.num_batches, device)
    step, found = build_step(cfg, data.tokenizer, device), []
    for turn in tqdm(
        measure.batches_per_turn(batches, num_turns, cfg.num_batches), unit="turn", disable=None
    ):
        seconds = measure.train_seconds(step, turn)
        found.append(products_seconds(products_of(step, turn), device) / seconds)
    return found[1:]


def main() -> None:
    if "--help" in sys.argv:
        print(__doc__)
        return
    with errors_in_one_line("benchmark"):
        print(f"efficiency {spread(measure.summary(efficiencies(sys.argv[1:])), '.1%')}")


if __name__ == "__main__":
    main()
