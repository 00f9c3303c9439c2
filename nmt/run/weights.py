"""Loading weights from checkpoints, one or the mean of several."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.run.checkpoints import BROKEN


def load_weights(translator: Translator, file: Path) -> None:
    """Load a checkpoint's weights, and nothing else of it, into a translator. Raises UserError naming the file."""
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        state = {
            name.removeprefix("translator."): value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("translator.")
        }
    except BROKEN as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, pickle.UnpicklingError):  # its message advises to load the file all the same
            reason = "it holds more than weights"
        raise UserError(
            f"{file} is broken or no checkpoint ({reason}): give another with checkpoint="
        ) from error
    try:
        translator.load_state_dict(state)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])[:300]
        raise UserError(f"{file} does not fit the configured model: {reason}") from error
    if not all(torch.isfinite(weight).all() for weight in translator.parameters()):
        raise UserError(f"{file} holds weights that are no numbers, as after a training that diverged")


def load_average(translator: Translator, files: Sequence[Path]) -> None:
    """Load the mean of several checkpoints' weights (Vaswani et al. 2017, 6.1), taken in float64. Raises UserError."""
    sums: dict[str, Tensor | float] = {}
    for file in files:
        load_weights(translator, file)
        for name, value in translator.state_dict().items():
            sums[name] = sums.get(name, 0.0) + value.double()
    translator.load_state_dict({name: total / len(files) for name, total in sums.items()})
