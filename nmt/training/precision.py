"""The choice between float32 and bfloat16 for a training, and a warning if bfloat16 is slow on this CPU."""

import logging
import time
from typing import Final

import lightning as L
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from omegaconf import DictConfig

from nmt.data.datamodule import TranslationDataModule
from nmt.training.callbacks.randomness import without_trace
from nmt.training.memory import explain_too_large
from nmt.training.module import TranslationModule

AUTO, FLOAT32 = "auto", "32-true"
BFLOAT16: Final = "bf16-mixed"
WINS = 1.05  # bfloat16, which rounds more, must be as many times as fast
TURNS = 3  # of which the fastest counts

log = logging.getLogger(__name__)


def warn_of_slow_precision(trainer: L.Trainer) -> None:
    """Warn if the run is in bfloat16 on a CPU without instructions for it: torch then emulates the products."""
    on_cpu = trainer.strategy.root_device.type == "cpu"
    if on_cpu and str(trainer.precision).startswith("bf16") and not has_bfloat16_products():
        log.warning(
            "trainer.precision=%s: this CPU has no instructions for bfloat16, and training is many times slower than "
            "with trainer.precision=32-true",
            trainer.precision,
        )


def defer_choice(settings: DictConfig) -> bool:
    """True if `precision` of the trainer's settings is auto; it becomes 32-true until there is a model to measure."""
    defers = settings.get("precision") == AUTO
    if defers:
        settings.precision = FLOAT32
    return defers


def choose_precision(trainer: L.Trainer, module: TranslationModule, data: TranslationDataModule) -> str:
    """For `trainer.precision=auto`: bf16-mixed if that trains faster here, which is set in `trainer`, else 32-true.

    On a CPU that multiplies in bfloat16, both take turns on the largest batches, forward and backward. A GPU that does
    is always faster with it. Several processes, which must agree, take 32-true on a CPU. Weights, gradients and random
    numbers stay as they are. Raises UserError if memory runs out.
    """
    device = trainer.strategy.root_device.type
    if device == "cpu" and trainer.world_size > 1:
        wins, reason = False, "several processes on a CPU do not measure"
    elif device == "cpu" and has_bfloat16_products():
        seconds = _seconds_of_both(module, data)
        wins = seconds[BFLOAT16] * WINS < seconds[FLOAT32]
        reason = ", ".join(f"{name} {1000 * each:.0f} ms" for name, each in seconds.items()) + " a batch"
    else:
        wins = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        reason = f"this {device} has {'' if wins else 'no '}instructions for bfloat16"
    if wins:
        trainer.strategy.precision_plugin = MixedPrecision(BFLOAT16, device)
    chosen = BFLOAT16 if wins else FLOAT32
    log.info("trainer.precision=%s (%s)", chosen, reason)
    return chosen


def _seconds_of_both(module: TranslationModule, data: TranslationDataModule) -> dict[str, float]:
    """Seconds of a batch, forward and backward, in float32 and in bfloat16."""
    batches = data.largest_batches(0)
    seconds = dict.fromkeys((FLOAT32, BFLOAT16), float("inf"))
    with without_trace(module):
        for turn in range(1 + TURNS):
            for name in seconds:
                started = time.perf_counter()
                for batch in batches:
                    with explain_too_large(batch, data.max_tokens):
                        with torch.autocast("cpu", torch.bfloat16, enabled=name == BFLOAT16):
                            loss = module.loss_of(batch)
                        loss.smoothed.backward()
                if turn > 0:  # the first prepares the libraries
                    seconds[name] = min(seconds[name], (time.perf_counter() - started) / len(batches))
    return seconds


def has_bfloat16_products() -> bool:
    """True if this CPU multiplies in bfloat16 (x86: AVX-512 BF16 or AMX) and oneDNN may use it.

    ONEDNN_MAX_CPU_ISA can forbid it.
    """
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    cpu = torch.cpu
    is_x86 = cpu._is_avx2_supported()
    return not is_x86 or cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported()
