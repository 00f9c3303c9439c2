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
    build_step,
    decode_seconds,
    first,
    in_turns,
    num_target_tokens,
    stopwatch,
    train_seconds,
)
from nmt.benchmark.subjects import Decoding, Subject
