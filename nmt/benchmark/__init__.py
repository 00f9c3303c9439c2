"""Measurements of training and decoding: speed, memory, start-up, and efficiency of the matrix products."""

from nmt.benchmark.corpora import Start, safe_environment, watch, write_corpus
from nmt.benchmark.growth import exponents, made_up_batches
from nmt.benchmark.markdown import (
    LABELS,
    corpora_table,
    extreme_ratio,
    growth_curves,
    growth_rows,
    growth_tables,
    measurement_tables,
    paired_ratio,
    ratio_table,
    summary,
)
from nmt.benchmark.products import Product, count_products, products_of, products_seconds
from nmt.benchmark.resources import peak_memory_of
from nmt.benchmark.steps import (
    Leave,
    TellValidations,
    TrainingStep,
    decode_seconds,
    first,
    in_turns,
    num_target_tokens,
    sampler_cost,
    train_seconds,
)
from nmt.benchmark.subjects import Decoding, Subject
