"""Timing of whole training steps and of fixed-length translations, and callbacks for measured runs."""

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from datasets import Dataset
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from nmt.attention.masks import padding_mask
from nmt.data.batching import Batch, TokenBatchSampler
from nmt.decoding import DecodingSettings, search
from nmt.kernels import using
from nmt.models.base import Translator
from nmt.training.losses import LossSum
from nmt.training.module import TranslationModule

_LOADED_BATCHES = 500


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


def train_seconds(step: TrainingStep, batches: Sequence[Batch]) -> float:
    """Seconds of one optimizer step on each of `batches`."""
    step.module.train()
    with stopwatch(step.device) as seconds:
        for batch in batches:
            step(batch)
    return seconds[0]


@torch.inference_mode()
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


def first(batches: Iterable[Batch], num_batches: int, device: torch.device) -> list[Batch]:
    """The first `num_batches` of `batches`, on `device`."""
    return [
        Batch(*(None if part is None else part.to(device) for part in batch))  # type: ignore[arg-type]
        for batch in itertools.islice(batches, num_batches)
    ]


def in_turns(batches: Sequence[Batch], num_turns: int, num_batches: int) -> list[list[Batch]]:
    """`num_batches` of `batches` per turn: new batches while there are any, then again from the first."""
    endless = itertools.cycle(batches)
    return [list(itertools.islice(endless, min(num_batches, len(batches)))) for _ in range(num_turns)]


def num_target_tokens(batches: Iterable[Batch], pad_id: int) -> int:
    """The number of target pieces, end of sentence included, without padding."""
    return sum(int(padding_mask(batch.tgt_out, pad_id).sum()) for batch in batches)


def sampler_cost(sampler: TokenBatchSampler, rows: Dataset) -> dict[str, float]:
    """Costs of an epoch's batches: number, seconds to form them, bytes per pair, and pairs loaded per second."""
    started = time.perf_counter()
    num_batches = len(sampler)
    dealt = time.perf_counter()
    loaded = sum(len(rows.__getitems__(chosen)) for chosen in itertools.islice(sampler, _LOADED_BATCHES))
    ended = time.perf_counter()
    return {
        "num_batches": num_batches,
        "deal_seconds": dealt - started,
        "sampler_bytes_per_pair": sampler.num_bytes() / len(sampler.src_lengths),
        "load_pairs_per_second": loaded / (ended - dealt),
    }


class Leave(Callback):
    """Ends the process after the first batch, to measure the start-up of a run."""

    def on_train_batch_end(self, *_: Any) -> None:
        os._exit(0)


class TellValidations(Callback):
    """Prints the step and BLEU of each validation as a line of JSON; ends the process after training."""

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        bleu = float(trainer.callback_metrics["val/bleu"])
        print(json.dumps({"step": trainer.global_step, "bleu": bleu}), flush=True)

    def on_fit_end(self, *_: Any) -> None:
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
