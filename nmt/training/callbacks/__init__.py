"""Callbacks of training: scores, pictures, checkpoints, averaged weights, interrupts, losses and memory."""

from nmt.training.callbacks.alignments import DrawAlignments
from nmt.training.callbacks.ema import ExponentialMovingAverage
from nmt.training.callbacks.interrupts import Interrupted, SaveOnInterrupt
from nmt.training.callbacks.largest_batch import LogMemory, TryLargestBatch
from nmt.training.callbacks.nonfinite import StopOnNonfinite
from nmt.training.callbacks.progress import LogValidations, ProgressBar
from nmt.training.callbacks.saving import AtomicCheckpointIO, Checkpoints
from nmt.training.callbacks.summary import summarize
from nmt.training.callbacks.tensorboard import TensorBoard
from nmt.training.callbacks.time_limit import EndScheduleWithTime
from nmt.training.callbacks.trackers import MLFlow, Wandb
from nmt.training.callbacks.validation_scores import ScoreValidation
