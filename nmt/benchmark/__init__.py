"""What training and decoding cost here, and how near that is to what this machine can multiply."""

from nmt.benchmark.corpora import Start, watch, write_corpus
from nmt.benchmark.products import (
    Cost,
    Product,
    count_products,
    measure_products,
    measure_square,
    products_of,
)
from nmt.benchmark.profiles import operator_shares, peak_memory
from nmt.benchmark.steps import (
    Leave,
    TrainingStep,
    decode_seconds,
    first,
    in_turns,
    num_target_tokens,
    padding_shares,
    sampler_cost,
    train_seconds,
)
from nmt.benchmark.subjects import Decoding, Subject
from nmt.benchmark.tables import (
    LABELS,
    compare,
    corpora_table,
    extreme_ratio,
    paired_ratio,
    report,
    summary,
)
