"""Before Hydra starts: when the run began, and the arguments that Hydra gets in this process."""

import functools
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from nmt.environment import rank
from nmt.errors import UserError


def started(form: str) -> str:
    """When the run started, by rank 0's clock and as strftime writes it: the same in each process of the run.

    Tasks of a SLURM job step cannot ask each other before they join: they take the numbers of job and step instead.
    """
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1 and not under_torchrun:
        return f"job_{os.environ['SLURM_JOB_ID']}_{os.environ['SLURM_STEP_ID']}"
    return _start(under_torchrun)[0].strftime(form)


@functools.cache
def _start(under_torchrun: bool) -> tuple[datetime, Any]:
    """When the run started, and the store that said so: rank 0 may hold it for all, and the others may ask later."""
    now = datetime.now()
    if not under_torchrun:
        return now, None
    import torch.distributed as dist  # only torchrun's processes need it so early

    store, number, _ = next(dist.rendezvous("env://"))
    if number == 0:
        store.set("nmt/started", now.isoformat())
    return datetime.fromisoformat(store.get("nmt/started").decode()), store


def arguments_for_training(arguments: list[str]) -> list[str]:
    """The arguments that Hydra gets: those of the command line, and those that follow from them for this process.

    Only rank 0 writes Hydra's files, for a given `run_dir` or a resumed run into its directory. A resumed run may have
    keys that the default choices lack (`data.path`): each is set by force, and resuming refuses those that the run
    lacks.
    """
    if rank() > 0:
        arguments = [*arguments, "hydra.output_subdir=null", "hydra/job_logging=stderr"]
    sweeps = bool({"-m", "--multirun"} & set(arguments))
    given = [argument for argument in arguments if argument.startswith("resume=")]
    if not given or given[-1] in ("resume=", "resume=null"):
        places = [each.removeprefix("run_dir=") for each in arguments if each.startswith("run_dir=")]
        if not places or sweeps or rank() > 0 or (_path(places[-1]) / "config.yaml").exists():
            return arguments  # the last is of a run that is there already, whose files stay as they are
        return [*arguments, f"hydra.run.dir={places[-1]}"]
    directory = given[-1].removeprefix("resume=")
    if sweeps:
        raise UserError(f"resume={directory}: one run is resumed at a time, without -m")
    config = _path(directory) / "config.yaml"
    if not config.is_file():  # before Hydra makes the directory
        ended = (
            "; it ended before it was trained: start it anew" if (config.parent / ".hydra").is_dir() else ""
        )
        raise UserError(f"{config.parent} is no run to resume: it has no config.yaml{ended}")
    forced = [
        f"++{each}" if "." in each.split("=")[0] and each[0].isalpha() and "=" in each else each
        for each in arguments
    ]
    # .hydra/ keeps what the run was started with
    return [*forced, f"hydra.run.dir={directory}", "hydra.output_subdir=null"]


def _path(argument: str) -> Path:
    return Path(argument.strip("'\""))
