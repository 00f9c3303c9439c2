"""Train a translator or resume a run, keep its best checkpoint, and score its test set."""

import contextlib
import signal
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.utils import to_absolute_path
from omegaconf import DictConfig

from nmt.environment import rank
from nmt.errors import UserError, WriteError
from nmt.run.files import claimed
from nmt.training.callbacks import Interrupted
from nmt.training.train import quieten, resume_run, train


def main(cfg: DictConfig) -> float | None:
    """Train, or resume, and return the best validation score of a new run, by which a search goes on."""
    quieten()
    if cfg.resume is None:
        cfg.run_dir = to_absolute_path(cfg.run_dir)  # a relative one could be mistaken for a setting's value
    run_dir = Path(cfg.run_dir if cfg.resume is None else cfg.resume)
    try:
        with claimed(run_dir) if rank() == 0 else contextlib.nullcontext():
            if cfg.resume is None:
                return train(cfg).get("best")
            resume_run(cfg, list(HydraConfig.get().overrides.task))
            return None
    except (Interrupted, KeyboardInterrupt) as ended:
        if rank() == 0 and any(run_dir.glob("checkpoints/*.ckpt")):
            with contextlib.suppress(OSError):  # the terminal may be closed
                print(f"train.py: interrupted: go on with resume={run_dir}", file=sys.stderr)
        sys.exit(128 + (ended.number if isinstance(ended, Interrupted) else signal.SIGINT))
    except WriteError as error:
        if any(Path(cfg.run_dir).glob("checkpoints/*.ckpt")):
            raise UserError(f"{error}, then go on with resume={cfg.run_dir}") from error
        raise
