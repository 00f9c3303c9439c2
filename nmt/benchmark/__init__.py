"""Measurements of training and decoding: speed, memory, start-up, and what corpora of any size cost."""

from nmt.benchmark.corpora import Start, watch, write_corpus
from nmt.benchmark.profiles import machine, peak_memory
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
