"""Checks of the states in a checkpoint against the run that resumes from it, before they are used."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, Timer
from torch import Tensor

from nmt import distributed
from nmt.checkpoint import is_plain
from nmt.errors import UserError, reason_of
from nmt.training.callbacks.randomness import random_state, set_random_state

_MOST_SECONDS = 1e12  # limit on seconds of training and other finite numbers, which are far smaller
_MOST_STEPS = 2**62  # of a count, which grows: TensorBoard takes less than 2**63
_NUMPY_KEYS = 624  # of NumPy's generator, which reads beyond them at a larger position


@contextmanager
def checkpoint_errors(file: str | Path) -> Iterator[None]:
    """Turn errors from the content of a checkpoint into UserError."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise UserError(f"{file} holds no state to go on from ({reason})") from error


def check_states(checkpoint: dict[str, Any], module: Any) -> None:
    """Raise UserError for a state with a wrong shape or type; `check_optimizers` checks optimizer and schedule.

    Removes states of unknown callbacks of Lightning: ModelCheckpoint would remove the files that its state names.
    """
    trainer, weights = module.trainer, module.state_dict()
    # Lightning's old name for MixedPrecision, which is checked below
    checkpoint.pop("native_amp_scaling_state", None)
    data: Any = trainer.datamodule
    wanted: dict[str, Any] = {
        **{"epoch": 0, "global_step": 0, "state_dict": weights},
        "training": [module.record() | {"progress": each["progress"]} for each in checkpoint["training"]],
        type(data).__qualname__: data.state_dict(),
    }
    averaged = {"current_model_state": weights, "MixedPrecision": trainer.precision_plugin.state_dict()}
    for key, state in (wanted | {key: averaged[key] for key in averaged.keys() & checkpoint.keys()}).items():
        check_like(checkpoint[key], state, key)
    check_like(checkpoint["loops"]["fit_loop"], trainer.fit_loop.state_dict(), "loops")
    random, before = checkpoint["random"][distributed.rank()], random_state(module.device)
    if not 0 <= random["numpy"][2] <= _NUMPY_KEYS:
        raise UserError("the checkpoint's state random.numpy is not as this run would have it")
    try:
        set_random_state(random, module.device)
    finally:
        set_random_state(before, module.device)
    states, checkpoint["callbacks"] = checkpoint["callbacks"], {}
    for each in trainer.callbacks:
        home, key = type(each).__module__.partition(".")[0], each.state_key
        is_known = home != "lightning" or isinstance(each, EarlyStopping | Timer)
        if key in states and is_known and not isinstance(each, ModelCheckpoint):
            if isinstance(each, Timer):  # before it starts its seconds are integers
                check_like(
                    states[key]["time_elapsed"], dict.fromkeys(each.state_dict()["time_elapsed"], 0.0), key
                )
            elif home in ("lightning", "nmt"):
                check_like(states[key], each.state_dict(), key)
            if isinstance(each, EarlyStopping):
                each.load_state_dict(states[key])  # refuses an unknown reason to stop
            checkpoint["callbacks"][key] = states[key]


def check_optimizers(checkpoint: dict[str, Any], trainer: L.Trainer) -> None:
    """Raise UserError if a state of the optimizer or its schedule does not fit the weights.

    With tensors of a wrong shape, the update would read and write out of bounds.
    """
    schedules = [each.scheduler.state_dict() for each in trainer.lr_scheduler_configs]
    check_like(checkpoint["lr_schedulers"], schedules, "lr_schedulers")
    for each, state in zip(trainer.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=True):
        each.scheduler.load_state_dict(state)  # refuses an unknown mode
    for optimizer, found in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
        groups, ours = found["param_groups"], optimizer.state_dict()["param_groups"]
        check_like([group["lr"] for group in groups], [0.0] * len(ours), "optimizer.lr")
        if [group | {"lr": None} for group in groups] != [group | {"lr": None} for group in ours]:
            raise UserError("the checkpoint's optimizer has other settings than this run would have it")
        wanted = _states_after_a_step(optimizer)
        for number, state in found["state"].items():
            name = f"optimizer.{number}"
            check_like(state, wanted[number], name)
            if not 0 <= state.get("step", 0) < _MOST_STEPS:  # also NaN
                raise UserError(f"the checkpoint's state {name}.step is not as this run would have it")


def _states_after_a_step(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The optimizer state of each weight, by number, after a step with zero gradient, which is undone."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    states = optimizer.state_dict()["state"]
    optimizer.state.clear()
    with torch.no_grad():
        for weight, value in zip(weights, before, strict=True):
            weight.copy_(value)
            weight.grad = None
    return states


def check_like(found: Any, wanted: Any, name: str) -> None:
    """Raise UserError if `found` differs from `wanted` in keys, lengths, shapes, or types of numbers."""
    if isinstance(wanted, Tensor):
        fits = is_plain(found) and found.shape == wanted.shape
        fits = fits and found.is_floating_point() == wanted.is_floating_point()
    elif isinstance(wanted, dict):
        fits = isinstance(found, dict) and found.keys() == wanted.keys()
    elif isinstance(wanted, list | tuple):
        fits = isinstance(found, list | tuple) and len(found) == len(wanted)
    elif isinstance(wanted, bool | str):
        fits = isinstance(found, type(wanted))
    elif isinstance(wanted, int):
        fits = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _MOST_STEPS
    else:  # a float, or None before there is a value
        fits = isinstance(found, float | None) or (isinstance(found, int) and abs(found) < 2**63)
        if wanted is not None and abs(wanted) < _MOST_SECONDS:
            fits = fits and found is not None and abs(found) < _MOST_SECONDS
    if not fits:
        raise UserError(f"the checkpoint's state {name} is not as this run would have it")
    places = (
        wanted if isinstance(wanted, dict) else range(len(wanted)) if isinstance(wanted, list | tuple) else ()
    )
    for place in places:
        check_like(found[place], wanted[place], f"{name}.{place}")
