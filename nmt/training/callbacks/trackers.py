"""Loggers for Weights & Biases and MLflow, and functions that log pictures and tables to all loggers."""

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from nmt.atomic import read_at_most
from nmt.environment import launch_rank
from nmt.errors import UserError, install
from nmt.run.paths import write_atomically
from nmt.training.callbacks.tensorboard import tensorboard_writers

log = logging.getLogger(__name__)

# Read at import: MLflow later sets the variable to the store that a run of this process used
_STORE = os.environ.get("MLFLOW_TRACKING_URI")


class Wandb(WandbLogger):
    """Lightning's logger for Weights & Biases. Its files, and the run's id in `wandb.id`, are in `save_dir`.

    A resumed run keeps its id. Without a key or a network, the run is stored offline, with a warning. more: arguments
    of wandb.init, as `entity`, `group` or `tags`. Raises UserError for an unknown argument, and if the package is
    missing.
    """

    def __init__(self, *, save_dir: str, project: str, **more: Any) -> None:
        _check_installed("wandb")
        import wandb

        for key in more.keys() - {*_arguments(wandb.init), *_arguments(WandbLogger)}:
            raise UserError(f"logger.wandb.{key}: wandb.init has no such setting: leave it out")
        if (settings := Path(save_dir) / "wandb" / "settings").exists():  # W&B would read it in this folder
            raise UserError(f"{settings} names a server, which a run may not choose: remove it")
        self._id_file = Path(save_dir) / "wandb.id"
        super().__init__(save_dir=save_dir, project=project, id=_read_id(self._id_file), **more)
        del self._wandb_init["anonymous"]  # wandb warns about it

    @property
    def experiment(self) -> Any:
        """The wandb run, started at the first access; on ranks other than 0, an object that does nothing."""
        if self._experiment is None and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            import wandb

            if wandb.run is not None:  # from the previous job of a sweep; Lightning would reuse it
                wandb.finish()
            try:
                super().experiment  # noqa: B018
            except wandb.Error as error:
                log.warning("wandb: %s: the run is kept offline, send it with `wandb sync`", error)
                self._wandb_init["mode"] = "offline"
            write_atomically(self._id_file, super().experiment.id)
        return super().experiment

    def add_image(self, tag: str, image: np.ndarray, step: int) -> None:
        self.log_image(tag, [image], step)

    def add_table(self, tag: str, header: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        self.log_text(tag, columns=list(header), data=[list(row) for row in rows], step=step)


class MLFlow(MLFlowLogger):
    """Lightning's logger for MLflow. A resumed run continues its MLflow run, whose id is in `save_dir/mlflow.id`.

    If neither `tracking_uri` nor the variable MLFLOW_TRACKING_URI names a store, it is `save_dir/mlflow.db` with the
    pictures in `save_dir/mlflow`. Raises UserError if the package is missing, or if that store was moved: MLflow would
    still write to the old path.
    """

    def __init__(
        self, *, save_dir: str, experiment_name: str, run_name: str, tracking_uri: str | None
    ) -> None:
        _check_installed("mlflow")
        self._id_file, self._artifacts = Path(save_dir) / "mlflow.id", Path(save_dir) / "mlflow"
        tracking_uri = tracking_uri or _STORE
        self._is_own = tracking_uri is None
        if launch_rank() > 0:
            # An unused client: two clients of a new store would both create its tables
            tracking_uri = "http://localhost"
        super().__init__(
            experiment_name,
            run_name,
            tracking_uri or f"sqlite:///{save_dir}/mlflow.db",
            artifact_location=str(self._artifacts) if self._is_own else None,
            run_id=_read_id(self._id_file),
        )

    @property
    def experiment(self) -> Any:
        """The MLflow client; its run is started at the first access, on rank 0 only."""
        if not self._initialized and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            place = Path(super().experiment.get_run(self._run_id).info.artifact_uri.removeprefix("file://"))
            is_plain = place.is_absolute() and "%" not in str(place)  # MLflow reads others in ways of its own
            if self._is_own and not (is_plain and place.resolve().is_relative_to(self._artifacts.resolve())):
                raise UserError(
                    f"logger.mlflow: its store was moved here from {place.parent.parent.parent}, where MLflow would "
                    "go on writing: go on with other loggers (logger=tensorboard), or set MLFLOW_TRACKING_URI"
                )
            write_atomically(self._id_file, str(self._run_id))
        return super().experiment

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any]) -> None:  # type: ignore[override]
        """Log only settings that the MLflow run lacks: MLflow refuses changes, as the path of a moved run."""
        known = self.experiment.get_run(self.run_id).data.params
        super().log_hyperparams({name: value for name, value in params.items() if name not in known})

    def add_image(self, tag: str, image: np.ndarray, step: int) -> None:
        self.experiment.log_image(self.run_id, image, key=tag, step=step, synchronous=True)

    def add_table(self, tag: str, header: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        self.experiment.log_text(self.run_id, markdown_table(header, rows), f"{tag}/step_{step:06d}.md")


def log_image(trainer: L.Trainer, tag: str, image: np.ndarray, step: int) -> None:
    """Log a picture, bytes [height, width, 3], to each logger that accepts pictures; on rank 0 only."""
    for writer in tensorboard_writers(trainer):
        writer.add_image(tag, image, step, dataformats="HWC")
    for logger in _trackers(trainer):
        logger.add_image(tag, image, step)


def log_table(
    trainer: L.Trainer, tag: str, header: Sequence[str], rows: Sequence[Sequence[str]], step: int
) -> None:
    """Log a table of text to each logger that accepts text; on rank 0 only."""
    for writer in tensorboard_writers(trainer):
        writer.add_text(tag, markdown_table(header, rows), step)
    for logger in _trackers(trainer):
        logger.add_table(tag, header, rows, step)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose cells are escaped."""
    lines = [header, *([as_it_is(cell) for cell in row] for row in rows)]
    first, *others = ("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines)
    return "\n".join((first, "|" + "---|" * len(header), *others))


def as_it_is(text: str) -> str:
    """The text with entities for the special characters of Markdown and HTML, which TensorBoard renders."""
    return re.sub(r"[&<>\\`*_\[\]|~]", lambda found: f"&#{ord(found[0])};", text)


def _trackers(trainer: L.Trainer) -> list[Any]:
    return [logger for logger in trainer.loggers if isinstance(logger, Wandb | MLFlow)]


def _arguments(function: Callable[..., Any]) -> Iterable[str]:
    return inspect.signature(function).parameters


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise UserError(f"logger={package} needs the package {package}: {install(package)}")


def _read_id(file: Path) -> str | None:
    """The id of a tracker's run; None if there is no file. Raises UserError if the file holds anything else."""
    if not file.exists():
        return None
    text = read_at_most(file, 100).decode("utf-8", "replace").strip()
    if not re.fullmatch(r"[\w-]+", text):
        raise UserError(f"{file} holds no id of a run: remove it, and a new one begins")
    return text
