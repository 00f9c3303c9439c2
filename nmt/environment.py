"""The rank of this process among those that a launcher started, by the environment."""

import os

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # in Lightning's order


def rank() -> int:
    """This process' rank by the environment of whoever launched it; 0 where it is alone."""
    return next((int(os.environ[name]) for name in _RANKS if name in os.environ), 0)
