"""The name of a new run, the same in all its processes, and the arguments for Hydra in this process."""

import functools
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from nmt.commands.arguments import parse_setting
from nmt.commands.reference import choices_of
from nmt.environment import is_sweep, launch_rank
from nmt.errors import UserError
from nmt.run.paths import load_config


def make_run_name() -> str:
    """A name for a run: the time when this process began, and in a sweep the number of the job.

    Tasks of a SLURM job step cannot communicate yet, so the name has the numbers of job and step instead.
    """
    if _is_slurm_step():
        return f"job_{os.environ['SLURM_JOB_ID']}_{os.environ['SLURM_STEP_ID']}"
    return f"{_begin():%Y-%m-%d_%H-%M-%S}" + (f"_{HydraConfig.get().job.num}" if is_sweep() else "")


@functools.cache
def _begin() -> datetime:
    return datetime.now()


def _is_slurm_step() -> bool:
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1 and "TORCHELASTIC_RUN_ID" not in os.environ


def agree_on(run_dir: str) -> str:
    """Rank 0's run directory, in every process of a run: from torchrun's store, or from Lightning's environment."""
    if _is_slurm_step():
        return run_dir
    if "TORCHELASTIC_RUN_ID" in os.environ:
        store = _store()
        if launch_rank() == 0:
            store.set("nmt/run_dir", run_dir)
        return store.get("nmt/run_dir").decode()
    if launch_rank() == 0:
        os.environ["NMT_RUN_DIR"] = run_dir
    return os.environ["NMT_RUN_DIR"]


@functools.cache
def _store() -> Any:
    """The store of torchrun's processes, kept open: it may live in rank 0, and other ranks may read it later."""
    import torch.distributed as dist

    return next(dist.rendezvous("env://"))[0]


def arguments_for_training(arguments: list[str]) -> list[str]:
    """The arguments for Hydra: those of the command line, and the stored choices of a resumed run.

    A resumed run may have keys that the default choices lack (`data.path`). They are set by force (`++`), and resuming
    refuses keys that the run lacks. Raises UserError for resume= with -m.
    """
    if launch_rank() > 0:
        arguments = [*arguments, "hydra/job_logging=stderr"]
    given = [argument for argument in arguments if argument.startswith("resume=")]
    if not given or given[-1] in ("resume=", "resume=null"):
        return arguments
    if {"-m", "--multirun"} & set(arguments):
        raise UserError(f"{given[-1]}: one run is resumed at a time, without -m")
    named = {each.partition("=")[0] for each in arguments}
    parsed = parse_setting(given[-1])
    directory = Path(str(parsed.value() if parsed else given[-1].removeprefix("resume=")))
    stored = stored_choices(load_config(directory)) if (directory / "config.yaml").is_file() else []
    brought = [each for each in stored if each.partition("=")[0] not in named]
    return brought + [
        f"++{each}" if "." in each.split("=")[0] and each[0].isalpha() and "=" in each else each
        for each in arguments
    ]


def stored_choices(stored: DictConfig) -> list[str]:
    """The stored choices of a run in the groups logger, callbacks and trainer that are choices here, as overrides."""
    loggers = stored.logger if OmegaConf.is_dict(stored.get("logger")) else {}
    known = [name for name in choices_of("logger") if loggers.get(name) is not None]
    chosen = {"logger": f"[{','.join(known or ['none'])}]"}
    for group in ("callbacks", "trainer"):
        if (name := (stored.get("choices") or {}).get(group)) in choices_of(group):
            chosen[group] = name
    return [f"{group}={choice}" for group, choice in chosen.items()]
