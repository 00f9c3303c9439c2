"""Construction of the training step that the benchmark measures."""

from functools import partial

import torch
from omegaconf import DictConfig

from nmt.benchmark import TrainingStep
from nmt.config.build import build
from nmt.data.tokenizer import Tokenizer
from nmt.run.model import build_translator
from nmt.training.module import TranslationModule
from nmt.training.muon import make_optimizer
from nmt.training.schedules import constant


def build_step(cfg: DictConfig, tokenizer: Tokenizer, device: torch.device) -> TrainingStep:
    """The training step of a configuration, with a newly initialised model."""
    torch.manual_seed(cfg.seed)
    module = TranslationModule(
        build_translator(cfg.model, tokenizer, trusted=cfg.trusted),
        optimizer=build(cfg.optimizer, "optimizer", trusted=cfg.trusted),
        scheduler=partial(constant, warmup_steps=0),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=0.0,
        r_drop=cfg.r_drop,
    ).to(device)
    return TrainingStep(
        module,
        make_optimizer(module.optimizer_factory, module.translator),
        clip_norm=cfg.gradient_clip_val,
        precision=cfg.precision,
        kernels=cfg.kernels,
    )
