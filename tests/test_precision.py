"""`trainer.precision=auto` takes what trains faster here; bfloat16 on a CPU that is slow at it is warned of."""

from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch

from nmt.run.paths import load_config
from nmt.training import precision
from nmt.training.precision import choose_precision, has_bfloat16_products, warn_of_slow_precision
from tests.commands import run_composed
from tests.small import TINY


@pytest.mark.parametrize(
    ("has_products", "seconds_in_bfloat16", "chosen"),
    [(True, 0.9, "bf16-mixed"), (True, 0.99, "32-true"), (False, 0.5, "32-true")],
)
def test_bfloat16_is_chosen_if_it_is_clearly_faster(
    monkeypatch, caplog, has_products, seconds_in_bfloat16, chosen
):
    monkeypatch.setattr(precision, "has_bfloat16_products", lambda: has_products)
    seconds = {"32-true": 1.0, "bf16-mixed": seconds_in_bfloat16}
    monkeypatch.setattr(precision, "_seconds_of_both", lambda *_: seconds)
    caplog.set_level("INFO")
    trainer = L.Trainer(accelerator="cpu", precision="32-true", logger=False, enable_checkpointing=False)
    assert choose_precision(trainer, SimpleNamespace(), SimpleNamespace()) == trainer.precision == chosen
    assert caplog.messages[-1].startswith(f"trainer.precision={chosen} (")


def test_a_run_keeps_the_choice_and_is_as_if_it_had_been_given(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "has_bfloat16_products", lambda: True)
    monkeypatch.setattr(precision, "WINS", 0.0)
    weights: dict[str, Any] = {}
    for given in ("auto", "bf16-mixed"):
        run = tmp_path / given
        run_composed("train", *TINY, "trainer.max_epochs=1", f"trainer.precision={given}", f"run_dir={run}")
        assert load_config(run).trainer.precision == "bf16-mixed"
        weights[given] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(weights["auto"][name], value) for name, value in weights["bf16-mixed"].items())


def test_several_processes_do_not_measure(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16_products", lambda: True)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False
    )
    assert choose_precision(trainer, SimpleNamespace(), SimpleNamespace()) == trainer.precision == "32-true"


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
