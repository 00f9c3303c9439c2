"""The device that a command runs on."""

import torch

from nmt.errors import UserError


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the GPU where there is one. Raises UserError where it cannot be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "meta":
        raise UserError("device=meta has no numbers: give cpu or cuda")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={name} cannot be used here: {str(error).splitlines()[0]}") from error
