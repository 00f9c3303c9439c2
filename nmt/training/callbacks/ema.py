"""Exponential moving average of the weights."""

from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from nmt.config.types import Count, Share
from nmt.errors import UserError


class ExponentialMovingAverage(Callback):
    """Validates and saves an exponential moving average of the weights (Polyak & Juditsky 1992).

    After every `every_n_steps`-th optimizer step the average a, at first the initial weights, follows the weights w:
    `a <- d_t a + (1 - d_t) w`, in float32 or better. t counts the updates from 0; `d_t` is `decay`, or with `warmup`
    `min(decay, (1 + t) / (10 + t))`, which soon forgets the initial weights. If `every_n_steps` is above 1, d_0 is 0: a
    validation or checkpoint before the first update sets a to w, which must not change what follows.

    The model has the averaged weights during each validation. A checkpoint has them as `state_dict`, and the weights of
    training as `current_model_state`, as with Lightning's `WeightAveraging`. That callback is not used: it overwrites
    the weights of training before the last checkpoint is written, and exchanges the two in a checkpoint saved during a
    validation. Raises UserError if a checkpoint has no averaged weights.
    """

    def __init__(self, *, decay: Share, warmup: bool, every_n_steps: Count) -> None:
        self.decay, self.warmup, self.every_n_steps = decay, warmup, every_n_steps
        self.num_updates = 0
        self._averages: list[Tensor] = []  # of each parameter
        self._training: list[Tensor] | None = None  # weights of training, while the model has the averages
        self._step = 0  # after the last batch: not every batch ends with an optimizer step

    def state_dict(self) -> dict[str, Any]:
        return {"num_updates": self.num_updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_updates = state_dict["num_updates"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        weights = list(pl_module.parameters())
        self._averages = [
            start.detach().to(weight.device, torch.promote_types(weight.dtype, torch.float32), copy=True)
            for start, weight in zip(self._averages or weights, weights, strict=True)
        ]

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._step = trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._step % self.every_n_steps == 0:
            is_first = self.num_updates == 0 and self.every_n_steps > 1
            decay = 0.0 if is_first else decay_after(self.num_updates, self.decay, warmup=self.warmup)
            update(self._averages, list(pl_module.parameters()), decay)
            self.num_updates += 1

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._start_averages(pl_module)
        self._training = [weight.detach().clone() for weight in pl_module.parameters()]
        _copy(self._averages, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        assert self._training is not None
        _copy(self._training, pl_module)
        self._training = None

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._training is None:
            self._start_averages(pl_module)
            checkpoint["current_model_state"] = checkpoint["state_dict"]
        else:
            checkpoint["current_model_state"] = _state(pl_module, self._training)
        checkpoint["state_dict"] = _state(pl_module, self._averages)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if "current_model_state" not in checkpoint:
            raise UserError("the checkpoint has no averaged weights: it was saved without averaging=ema")
        self._averages = [checkpoint["state_dict"][name] for name, _ in pl_module.named_parameters()]
        pl_module.load_state_dict(checkpoint["current_model_state"])

    def _start_averages(self, pl_module: Any) -> None:
        """Set the averages to the weights, if no update did."""
        if self.num_updates == 0:
            update(self._averages, list(pl_module.parameters()), 0.0)


def decay_after(num_updates: int, decay: float, *, warmup: bool) -> float:
    """d_t after t updates: `min(decay, (1 + t) / (10 + t))` with `warmup`, else `decay`."""
    return min(decay, (1 + num_updates) / (10 + num_updates)) if warmup else decay


@torch.no_grad()
def update(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """`a <- decay * a + (1 - decay) * w`, in place, in the precision of the averages."""
    targets = [weight.to(average.dtype) for weight, average in zip(weights, averages, strict=True)]
    torch._foreach_lerp_(list(averages), targets, 1 - decay)


@torch.no_grad()
def _copy(values: Sequence[Tensor], module: Any) -> None:
    for weight, value in zip(module.parameters(), values, strict=True):
        weight.copy_(value)


def _state(module: Any, values: Sequence[Tensor]) -> dict[str, Tensor]:
    """The module's state with these values for its parameters. A tied parameter appears under all its names."""
    of = {id(weight): value for weight, value in zip(module.parameters(), values, strict=True)}
    state = module.state_dict(keep_vars=True)
    return {name: of.get(id(own), own).detach() for name, own in state.items()}
