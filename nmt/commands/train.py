"""Train a translator or resume a run, keep its best checkpoint, and score its test set."""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf

from nmt.atomic import check_folder
from nmt.checkpoint import has_checkpoints
from nmt.commands.early_checks import check_start
from nmt.commands.entry import LogFile, program
from nmt.commands.run_names import agree_on, stored_choices
from nmt.config.commands import check_settings
from nmt.environment import launch_rank
from nmt.errors import UserError, WriteError
from nmt.run.paths import claim_directory, load_config
from nmt.training.callbacks import Interrupted
from nmt.training.resume import resume_run
from nmt.training.train import silence_warnings, train


def main(cfg: DictConfig) -> float | None:
    """Train or resume a run; return the best validation score of a new run, which hyper-parameter search needs."""
    silence_warnings()
    with _run_directory(cfg) as run_dir:
        try:
            if cfg.resume is None:
                return train(cfg).get("best")
            stored = load_config(run_dir)
            brought = stored_choices(stored)  # by `arguments_for_training`
            given = [each for each in HydraConfig.get().overrides.task if each not in brought]
            resume_run(cfg, stored, given, _check_resumed)
            return None
        except (Interrupted, KeyboardInterrupt) as ended:
            if launch_rank() == 0 and has_checkpoints(run_dir):
                with contextlib.suppress(OSError):  # the terminal may be closed
                    print(f"{program()}: interrupted: go on with resume={run_dir}", file=sys.stderr)
            sys.exit(128 + (ended.number if isinstance(ended, Interrupted) else signal.SIGINT))
        except WriteError as error:
            if has_checkpoints(run_dir):
                raise UserError(f"{error}, then go on with resume={run_dir}") from error
            raise


def _check_resumed(cfg: DictConfig) -> None:
    check_settings(cfg, "train")
    check_start(cfg)


@contextlib.contextmanager
def _run_directory(cfg: DictConfig) -> Iterator[Path]:
    """Lock the directory of the run, put it into `cfg`, and write its train.log."""
    if cfg.resume is not None:
        place, is_named = Path(cfg.resume), True
    else:
        # Absolute: a relative path could equal the value of another setting
        place, is_named = Path(to_absolute_path(cfg.run_dir)), not OmegaConf.is_interpolation(cfg, "run_dir")
    with contextlib.ExitStack() as stack:
        if launch_rank() == 0:
            place = stack.enter_context(claim_directory(place, may_rename=not is_named))
            check_folder(place)  # before a log is written there
            handler = LogFile(place / "train.log")
            handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
            logging.getLogger().addHandler(handler)
            stack.callback(handler.close)
            stack.callback(logging.getLogger().removeHandler, handler)
        if not is_named:
            place = Path(agree_on(str(place)))
        if cfg.resume is None:
            cfg.run_dir = str(place)
        yield place
