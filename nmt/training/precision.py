"""A warning if training in bfloat16 is slow on this CPU."""

import logging

import lightning as L
import torch

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


def has_bfloat16_products() -> bool:
    """True if this CPU multiplies in bfloat16 (x86: AVX-512 BF16 or AMX) and oneDNN may use it.

    ONEDNN_MAX_CPU_ISA can forbid it.
    """
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    cpu = torch.cpu
    is_x86 = cpu._is_avx2_supported()
    return not is_x86 or cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported()
