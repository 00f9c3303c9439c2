"""The device that a command runs on."""

import torch

from nmt.errors import UserError


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the GPU if there is any. Raises UserError if the device cannot be used."""
    here = [each for each in ("cuda", "mps") if getattr(torch, each).is_available()] + ["cpu"]
    if name == "auto":
        name = "cuda" if "cuda" in here else "cpu"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise UserError(f"device={name} cannot be used here: give {' or '.join(here)}") from error
    if device.type == "meta":
        raise UserError(f"device=meta has no numbers: give {' or '.join(here)}")
    return device
