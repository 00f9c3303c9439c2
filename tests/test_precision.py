"""A run in bfloat16 on a CPU that is slow at it is warned of."""

import lightning as L
import pytest
import torch

from nmt.training import precision
from nmt.training.precision import has_bfloat16_products, warn_of_slow_precision


@pytest.mark.parametrize(
    ("chosen", "has_products", "warned"),
    [
        ("bf16-mixed", False, True),
        ("bf16-true", False, True),
        ("32-true", False, False),
        ("bf16-mixed", True, False),
    ],
)
def test_a_run_in_bfloat16_is_warned_of_where_the_cpu_emulates_it(
    monkeypatch, caplog, chosen, has_products, warned
):
    monkeypatch.setattr(precision, "has_bfloat16_products", lambda: has_products)
    trainer = L.Trainer(accelerator="cpu", precision=chosen, logger=False, enable_checkpointing=False)
    caplog.clear()
    warn_of_slow_precision(trainer)
    said = [f"trainer.precision={chosen}: this CPU has no instructions for bfloat16"] if warned else []
    assert [each.split(",")[0] for each in caplog.messages] == said


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize(
    ("may", "abilities", "has"),
    [
        (True, ("avx2", "avx512_bf16"), True),
        (True, ("avx2", "amx_tile"), True),
        (True, ("avx2",), False),  # AVX-512 without BF16: oneDNN converts
        (True, (), True),  # Arm with BF16
        (False, ("avx2", "avx512_bf16", "amx_tile"), False),  # ONEDNN_MAX_CPU_ISA=AVX2
    ],
)
def test_the_instructions_that_count(monkeypatch, may, abilities, has):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: may)
    for name in ("avx2", "avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in abilities)
    assert has_bfloat16_products() == has
