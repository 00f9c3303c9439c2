"""Measurements of training, decoding and start-up: speed and memory."""

from nmt.benchmark.markdown import (
    LABELS,
    extreme_ratio,
    measurement_tables,
    paired_ratio,
    ratio_table,
    spread,
    summary,
)
from nmt.benchmark.resources import peak_memory_of
from nmt.benchmark.steps import (
    Leave,
    TrainingStep,
    batches_per_turn,
    build_step,
    decode_seconds,
    first_batches,
    num_target_tokens,
    stopwatch,
    train_seconds,
)
from nmt.benchmark.subjects import Decoding, Subject
