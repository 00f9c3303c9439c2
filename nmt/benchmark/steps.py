"""Timing of whole training steps and of fixed-length translations, and the callback that ends a measured start."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch import Tensor

from nmt import kernels
from nmt.attention.masks import padding_mask
from nmt.config.build import build
from nmt.data.batching import Batch
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings, search
from nmt.kernels import using
from nmt.models.base import Translator
from nmt.run.model import build_translator
from nmt.training.losses import LossSum
from nmt.training.module import TranslationModule
from nmt.training.muon import make_optimizer
from nmt.training.schedules import constant


class TrainingStep:
    """A whole optimizer step: forward, loss, backward, mean over the target tokens, clipping and update."""

    def __init__(
        self,
        module: TranslationModule,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float,
        precision: str,
        kernels: str,
    ) -> None:
        self.module, self.optimizer = module.train(), optimizer
        self.clip_norm, self.precision, self.kernels = clip_norm, precision, kernels
        self.device = next(module.parameters()).device

    def __call__(self, batch: Batch) -> None:
        loss = self.loss(batch)
        with using(self.kernels):  # gradient checkpointing computes layers again
            loss.smoothed.backward()
        parameters = list(self.module.parameters())
        torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1 / loss.num_tokens)
        torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, batch: Batch) -> LossSum:
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed")
        with autocast, using(self.kernels):
            return self.module.loss_of(batch)


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
        make_optimizer(module.optimizer_factory, module.translator, precision=cfg.precision),
        clip_norm=cfg.gradient_clip_val,
        precision=cfg.precision,
        kernels=cfg.kernels,
    )


def train_seconds(step: TrainingStep, batches: Sequence[Batch]) -> float:
    """Seconds of one optimizer step on each of `batches`."""
    step.module.train()
    with stopwatch(step.device) as seconds:
        for batch in batches:
            step(batch)
    return seconds[0]


@torch.inference_mode()
@kernels.packed_weights()
def decode_seconds(
    translator: Translator, sources: Sequence[Tensor], *, beam_size: int, length: int
) -> float:
    """Seconds to translate all `sources` [B, S]. All translations have `length` pieces, whatever the weights."""
    translator.eval()
    with stopwatch(sources[0].device) as seconds:
        for src in sources:
            search(
                translator,
                src,
                DecodingSettings(
                    beam_size=beam_size, min_length=length, max_length_ratio=0.0, max_length_extra=length
                ),
            )
    return seconds[0]


def first_batches(batches: Iterable[Batch], num_batches: int, device: torch.device) -> list[Batch]:
    """The first `num_batches` of `batches`, on `device`."""
    return [
        Batch(*(None if part is None else part.to(device) for part in batch))  # type: ignore[arg-type]
        for batch in itertools.islice(batches, num_batches)
    ]


def batches_per_turn(batches: Sequence[Batch], num_turns: int, num_batches: int) -> list[list[Batch]]:
    """`num_batches` of `batches` per turn: new batches while there are any, then again from the first."""
    endless = itertools.cycle(batches)
    return [list(itertools.islice(endless, min(num_batches, len(batches)))) for _ in range(num_turns)]


def num_target_tokens(batches: Iterable[Batch], pad_id: int) -> int:
    """The number of target pieces, end of sentence included, without padding."""
    return sum(int(padding_mask(batch.tgt_out, pad_id).sum()) for batch in batches)


class Leave(Callback):
    """Ends the process after the first batch, to measure the start-up of a run."""

    def on_train_batch_end(self, *_: Any) -> None:
        os._exit(0)


@contextmanager
def stopwatch(device: torch.device) -> Iterator[list[float]]:
    """A list that receives the seconds of the block at its end, when the device has finished its work."""
    seconds: list[float] = []
    _synchronize(device)
    started = time.perf_counter()
    yield seconds
    _synchronize(device)
    seconds.append(time.perf_counter() - started)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
