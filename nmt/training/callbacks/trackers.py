"""Experiment trackers beside TensorBoard, and one way to give pictures and tables to all of them."""

import logging
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from nmt.environment import rank
from nmt.errors import UserError
from nmt.run.files import write_atomically
from nmt.training.callbacks.writers import tensorboard_writers

log = logging.getLogger(__name__)

_STORE = os.environ.get(
    "MLFLOW_TRACKING_URI"
)  # now: MLflow writes there which store a run of this process used


class Wandb(WandbLogger):
    """Lightning's logger of Weights & Biases. Its files, and the run's id in `wandb.id`, are in `save_dir`.

    A run that goes on has the same id. Where wandb has no key or no network the run is kept offline, with a warning.
    `more` is for wandb.init, as `entity`, `group` or `tags`. Raises UserError without the package.
    """

    def __init__(self, *, save_dir: str, project: str, **more: Any) -> None:
        _check_installed("wandb")
        self._id_file = Path(save_dir) / "wandb.id"
        super().__init__(save_dir=save_dir, project=project, id=_read_id(self._id_file), **more)
        del self._wandb_init["anonymous"]  # wandb warns of it

    @property
    def experiment(self) -> Any:
        """wandb's run, started when it is first asked for; on all ranks but the first one that does nothing."""
        if self._experiment is None and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            import wandb

            if wandb.run is not None:  # that of the job before in a sweep, which Lightning would go on with
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
    """Lightning's logger of MLflow. A run that goes on continues its MLflow run, whose id is `save_dir/mlflow.id`.

    Where neither `tracking_uri` nor the variable MLFLOW_TRACKING_URI names a store, it is `save_dir/mlflow.db` with
    the pictures in `save_dir/mlflow`. Raises UserError without the package, and where such a store was moved: MLflow
    would still write to the old place.
    """

    def __init__(
        self, *, save_dir: str, experiment_name: str, run_name: str, tracking_uri: str | None
    ) -> None:
        _check_installed("mlflow")
        self._id_file, self._artifacts = Path(save_dir) / "mlflow.id", Path(save_dir) / "mlflow"
        tracking_uri = tracking_uri or _STORE
        self._is_own = tracking_uri is None
        if (
            rank() > 0
        ):  # a client that is asked for nothing: two at once would both make the tables of a new store
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
        """MLflow's client, with a run that is started when it is first asked for; on rank 0 alone."""
        if not self._initialized and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            place = super().experiment.get_run(self._run_id).info.artifact_uri
            if self._is_own and not Path(place.removeprefix("file://")).is_relative_to(self._artifacts):
                raise UserError(
                    f"logger.mlflow: its store was moved here from {Path(place).parents[2]}, where MLflow would go on "
                    "writing: go on with other loggers (logger=tensorboard), or set MLFLOW_TRACKING_URI"
                )
            write_atomically(self._id_file, str(self._run_id))
        return super().experiment

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any]) -> None:  # type: ignore[override]
        """Log the settings that the MLflow run has not got: it refuses to change one, as a path of moved data."""
        known = self.experiment.get_run(self.run_id).data.params
        super().log_hyperparams({name: value for name, value in params.items() if name not in known})

    def add_image(self, tag: str, image: np.ndarray, step: int) -> None:
        self.experiment.log_image(self.run_id, image, key=tag, step=step, synchronous=True)

    def add_table(self, tag: str, header: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        self.experiment.log_text(self.run_id, markdown(header, rows), f"{tag}/step_{step:06d}.md")


def log_image(trainer: L.Trainer, tag: str, image: np.ndarray, step: int) -> None:
    """Give a picture, bytes [height, width, 3], to each logger that takes pictures; on rank 0 alone."""
    for writer in tensorboard_writers(trainer):
        writer.add_image(tag, image, step, dataformats="HWC")
    for logger in _trackers(trainer):
        logger.add_image(tag, image, step)


def log_table(
    trainer: L.Trainer, tag: str, header: Sequence[str], rows: Sequence[Sequence[str]], step: int
) -> None:
    """Give a table of text to each logger that takes text; on rank 0 alone."""
    for writer in tensorboard_writers(trainer):
        writer.add_text(tag, markdown(header, rows), step)
    for logger in _trackers(trainer):
        logger.add_table(tag, header, rows, step)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown whose cells are shown as they are."""
    lines = [header, *([as_it_is(cell) for cell in row] for row in rows)]
    first, *others = ("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines)
    return "\n".join((first, "|" + "---|" * len(header), *others))


def as_it_is(text: str) -> str:
    """The text with entities for what Markdown and HTML, which TensorBoard reads it as, would take for their own."""
    return re.sub(r"[&<>\\`*_\[\]|~]", lambda found: f"&#{ord(found[0])};", text)


def _trackers(trainer: L.Trainer) -> list[Any]:
    return [logger for logger in trainer.loggers if isinstance(logger, Wandb | MLFlow)]


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise UserError(f"logger={package} needs the package {package}: pip install -e '.[{package}]'")


def _read_id(file: Path) -> str | None:
    return file.read_text("utf-8").strip() if file.exists() else None
