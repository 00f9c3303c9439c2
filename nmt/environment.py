"""The start of this process: numbers in the environment from launchers, its rank there, and a sweep of Hydra."""

import os

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from nmt.errors import UserError

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # in Lightning's order

_NUMBERS = (*_RANKS, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")


def check_variables() -> None:
    """Raise UserError for a variable that is no whole number, or for a rank beyond the number of processes."""
    for name in (*_NUMBERS, "SACREBLEU_SEED"):
        value = os.environ.get(name, "0")
        is_unseeded = name == "SACREBLEU_SEED" and value.lower() == "none"
        if not (value.isdecimal() and value.isascii() and len(value) < 19) and not is_unseeded:
            raise UserError(
                f"the variable {name}={value[:40]} is no whole number: set it to one, or unset it"
            )
    number, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if int(number) >= int(size):
        raise UserError(
            f"the variables RANK={number} and WORLD_SIZE={size} name no process: unset both without torchrun"
        )


def launch_rank() -> int:
    """The rank of this process in its launcher's variables; 0 if it is alone."""
    return next((int(os.environ[name]) for name in _RANKS if name in os.environ), 0)


def is_sweep() -> bool:
    """True if Hydra runs the jobs of a sweep (`-m`)."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
