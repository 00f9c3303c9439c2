"""Starting and ending the processes of a run together, under Lightning, torchrun or SLURM, and their errors."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import lightning as L
import torch.distributed as dist
from lightning.fabric.plugins.environments import ClusterEnvironment, LightningEnvironment
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

from nmt.errors import UserError
from nmt.training.memory import is_out_of_memory

_LONGEST_WAIT = timedelta(days=7)  # while rank 0 prepares the data: torch's default is half an hour


def check_launch(trainer: L.Trainer, *, num_before: int | None, sweep: bool) -> None:
    """Raise UserError if the number of processes differs from the `trainer` settings or from the resumed run.

    num_before: the number of processes of the resumed run, as batches and random numbers belong to ranks; None in a new
    run. sweep: True if Hydra runs several jobs in this process.
    """
    wanted = trainer.num_devices * trainer.num_nodes
    num_started = int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else wanted
    if wanted != num_started:
        raise UserError(
            f"torchrun started {num_started} processes, but trainer.devices={trainer.num_devices} on "
            f"trainer.num_nodes={trainer.num_nodes} makes {wanted}: give trainer=ddp, and as many as there are"
        )
    if num_before not in (None, wanted):
        raise UserError(
            f"the run had {num_before} processes and would go on with {wanted}: trainer.devices x "
            f"trainer.num_nodes must be {num_before}"
        )
    # Lightning would repeat the command of the whole sweep in every process.
    if sweep and wanted > 1 and not _started_by_others(trainer):
        raise UserError(
            "a sweep (-m) over runs of several processes needs torchrun or hydra/launcher=submitit_slurm"
        )


@contextmanager
def first_rank_first(trainer: L.Trainer) -> Iterator[None]:
    """Run the block on rank 0, then on all other ranks, so that they find whole files.

    Lightning starts the other processes after the block anyway; processes of torchrun or SLURM wait here.
    """
    if trainer.world_size == 1 or not _started_by_others(trainer):
        yield
        return
    trainer.strategy.setup_environment()
    group = dist.new_group(backend="gloo", timeout=_LONGEST_WAIT)
    if not trainer.is_global_zero:
        dist.barrier(group)
    yield
    if trainer.is_global_zero:
        dist.barrier(group)


def destroy_process_group() -> None:
    """Leave the process group after the last exchange, as torch asks, rather than at the interpreter's exit."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end_children(trainer: L.Trainer) -> None:
    """End the processes that Lightning started: they would wait for gradients that never come."""
    kill = getattr(trainer.strategy.launcher, "kill", None)
    if kill is not None:
        kill(getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows SIGTERM does the same


@contextmanager
def errors_of_training(cfg: DictConfig, trainer: L.Trainer) -> Iterator[None]:
    """End the run's other processes after an error, and raise UserError for errors that the user can fix."""
    try:
        yield
    except SystemExit as end:  # Lightning's reaction to an interrupt
        raise KeyboardInterrupt from end
    except Exception as error:
        end_children(trainer)
        if advice := advise(error, cfg, trainer):
            raise UserError(advice) from error
        raise


def advise(error: Exception, cfg: DictConfig, trainer: L.Trainer) -> str | None:
    """Advice for errors that the user can fix; None for others."""
    if isinstance(error, MisconfigurationException):
        return f"trainer: {error}"
    if isinstance(error, ValueError) and "`val_check_interval`" in str(error):
        return (
            f"trainer.val_check_interval={cfg.trainer.val_check_interval}: an epoch has only "
            f"{trainer.num_training_batches:.0f} batches; give fewer, or trainer.check_val_every_n_epoch=null "
            "beside it to count batches over epochs"
        )
    if is_out_of_memory(error):
        return (
            f"memory ran out at step {trainer.global_step}, though the largest batch had fitted at the start: "
            "see in TensorBoard whether train/memory grows, and what else runs here; "
            f"go on with resume={cfg.run_dir}, or lower data.max_tokens={cfg.data.max_tokens} in a new run"
        )
    if advice := port_in_use(error):  # asked first: torch raises the same type for a lost process
        return advice
    if has_lost_another(error):
        return f"another process of the run has ended, see its error ({str(error).splitlines()[0]})"
    return None


def port_in_use(error: Exception) -> str | None:
    """Advice if another program uses the port of the process group; None for other errors."""
    if "EADDRINUSE" not in str(error):
        return None
    port = os.environ.get("MASTER_PORT")
    return f"port {port}, where the run's processes meet, is in use: set MASTER_PORT to a free one, or end that program"


def has_lost_another(error: Exception) -> bool:
    """True if the error only reports that another process has ended. That process has printed the cause."""
    return isinstance(error, dist.DistError) or any(
        words in str(error) for words in ("Connection closed by peer", "Connection reset by peer")
    )


def _started_by_others(trainer: L.Trainer) -> bool:
    environment: ClusterEnvironment | None = getattr(trainer.strategy, "cluster_environment", None)
    return environment is not None and not isinstance(environment, LightningEnvironment)
