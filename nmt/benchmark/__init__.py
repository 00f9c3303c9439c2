"""What training and decoding cost here, and how near that is to what this machine can multiply."""

from nmt.benchmark.products import (
    Cost,
    Product,
    count_products,
    measure_products,
    measure_square,
    products_of,
)
from nmt.benchmark.profiles import machine, operator_shares, peak_memory
from nmt.benchmark.steps import (
    PRECISIONS,
    TrainingStep,
    decode_seconds,
    first,
    leave,
    num_target_tokens,
    padding_shares,
    train_seconds,
)
from nmt.benchmark.subjects import Decoding, Subject
from nmt.benchmark.tables import LABELS, compare, extreme_ratio, paired_ratio, report, summary

__all__ = [
    "LABELS",
    "PRECISIONS",
    "Cost",
    "Decoding",
    "Product",
    "Subject",
    "TrainingStep",
    "compare",
    "count_products",
    "decode_seconds",
    "extreme_ratio",
    "first",
    "leave",
    "machine",
    "measure_products",
    "measure_square",
    "num_target_tokens",
    "operator_shares",
    "padding_shares",
    "paired_ratio",
    "peak_memory",
    "products_of",
    "report",
    "summary",
    "train_seconds",
]
