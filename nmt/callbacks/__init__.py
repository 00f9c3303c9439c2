"""When to translate, score, draw, watch, average and save during training."""

from nmt.callbacks.alignments import DrawAlignments, alignment_error, fixed_sentences, word_weights
from nmt.callbacks.averaging import ExponentialMovingAverage
from nmt.callbacks.checkpoints import AtomicCheckpointIO, Checkpoints
from nmt.callbacks.interrupts import Interrupted, SaveOnInterrupt
from nmt.callbacks.losses import StopOnNonfinite, WarnOfSpikes
from nmt.callbacks.memory import LogMemory, TryLargestBatch
from nmt.callbacks.progress import ProgressBar
from nmt.callbacks.scores import ScoreValidation
from nmt.callbacks.summary import summarize
from nmt.callbacks.writers import TensorBoard

__all__ = [
    "AtomicCheckpointIO",
    "Checkpoints",
    "DrawAlignments",
    "ExponentialMovingAverage",
    "Interrupted",
    "LogMemory",
    "ProgressBar",
    "SaveOnInterrupt",
    "ScoreValidation",
    "StopOnNonfinite",
    "TensorBoard",
    "TryLargestBatch",
    "WarnOfSpikes",
    "alignment_error",
    "fixed_sentences",
    "summarize",
    "word_weights",
]
