"""Training steps of small models, with batches for them, as the benchmark measures them."""

from functools import partial

import hydra
import numpy as np
import torch

from nmt.benchmark import TrainingStep
from nmt.config.build import build
from nmt.data.batching import collate
from nmt.training.module import TranslationModule
from nmt.training.schedules import constant
from tests.commands import CONFIGS

PAD, BOS, EOS, VOCAB = 0, 1, 2, 23
SIZES = {"gru": ("encoder.size=8", "decoder.size=8", "model.size=8"), "transformer": ("model.size=8",)}
SIZES["lstm"] = SIZES["gru"]


def compose(*overrides: str):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        return hydra.compose("benchmark", overrides=["name=tiny", *overrides])


def make_step(
    model: str,
    *overrides: str,
    clip_norm: float = 1.0,
    kernels: str = "fast",
    precision: str = "32-true",
) -> TrainingStep:
    cfg = compose(f"model={model}", *SIZES[model], *overrides)
    torch.manual_seed(0)
    ids = {"src_vocab_size": VOCAB, "tgt_vocab_size": VOCAB, "joint_vocabulary": True}
    special = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
    module = TranslationModule(
        build(cfg.model, "model", **ids, **special),
        optimizer=hydra.utils.instantiate(cfg.optimizer),
        scheduler=partial(constant, warmup_steps=0),
        label_smoothing=0.1,
        guided_alignment=0.0,
    )
    optimizer = module.optimizer_factory(module.parameters())
    return TrainingStep(module, optimizer, clip_norm=clip_norm, precision=precision, kernels=kernels)


def make_batches(num_batches: int = 2):
    rng = np.random.default_rng(0)
    rows = [
        {
            "index": i,
            "src_ids": [*rng.integers(3, VOCAB, n), EOS],
            "tgt_ids": [*rng.integers(3, VOCAB, m), EOS],
        }
        for i, (n, m) in enumerate(rng.integers(1, 9, (3 * num_batches, 2)))
    ]
    return [
        collate(rows[start : start + 3], pad_id=PAD, bos_id=BOS) for start in range(0, 3 * num_batches, 3)
    ]
