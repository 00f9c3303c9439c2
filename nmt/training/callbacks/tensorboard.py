"""TensorBoard writers without a background thread: an event is in the file when the call returns."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import FileWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams

from nmt.errors import WriteError

# TensorBoard sorts tags by name: copies of these are in a group that comes first, its pictures (one a run) last in it
OVERVIEW = {f"{split}/{name}": f"overview/{split}_{name}" for split, name in (
    ("train", "loss"), ("val", "bleu"), ("val", "aer"), ("val", "macro_f1"))}  # fmt: skip
NUM_COLUMNS = 5  # of settings, which HPARAMS shows at first


class TensorBoard(TensorBoardLogger):
    """Lightning's logger of TensorBoard, without the library's thread, with an overview that comes first.

    If the disk is full that thread dies, and the error at the next call or at the end names no file. Here events are
    written at once, and WriteError ends the run, which can be resumed when there is room.
    """

    def __init__(
        self,
        *,
        save_dir: str,
        name: str,
        version: str,
        default_hp_metric: bool = False,
        purge_step: int | None = None,
    ) -> None:
        super().__init__(
            save_dir, name=name, version=version, default_hp_metric=default_hp_metric, purge_step=purge_step
        )

    @property
    def experiment(self) -> Any:
        """The writer, made at the first access; on ranks other than 0, an object that does nothing."""
        if self._experiment is None and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            self._experiment = _Writer(self.log_dir, **self._kwargs)
        return super().experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        copies = {OVERVIEW[name]: value for name, value in metrics.items() if name in OVERVIEW}
        try:
            super().log_metrics({**metrics, **copies}, step)
        except ValueError as error:  # Lightning wraps every error in one that blames the value
            if isinstance(error.__cause__, WriteError):
                raise error.__cause__ from None
            raise

    def log_hyperparams(  # type: ignore[override]
        self, params: dict[str, Any], metrics: dict[str, float] | None = None, step: int | None = None
    ) -> None:
        """Log a row of HPARAMS with the scores `metrics`. Its first columns are the first of `params`."""
        if not metrics:
            return
        self.log_metrics(metrics, step)
        columns, *session = hparams(params, metrics)
        plugin_data = columns.value[0].metadata.plugin_data
        content = HParamsPluginData.FromString(plugin_data.content)
        for info in content.experiment.hparam_infos[:NUM_COLUMNS]:
            info.differs = True  # TensorBoard sorts the columns by it, then by name
        plugin_data.content = content.SerializeToString()
        for each in (columns, *session):
            self.experiment._get_file_writer().add_summary(each, step)

    def save(self) -> None:
        """Do nothing: config.yaml has the settings."""


class _Writer(SummaryWriter):
    file_writer: Any
    all_writers: Any
    _first_alignment: str | None = None  # its tag, which ends in the number of the sentence

    def add_image(self, tag: str, *image: Any, **how: Any) -> None:
        super().add_image(tag, *image, **how)
        if self._first_alignment is None and tag.startswith("val/alignment/"):
            self._first_alignment = tag
        if tag == self._first_alignment:
            super().add_image("overview/word_alignment", *image, **how)

    def _get_file_writer(self) -> Any:
        """The open file, or a new file if it was closed, as in the library, but without a thread."""
        if self.file_writer is None:
            self.file_writer = _File(self.log_dir)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:  # TensorBoard discards older events of this step and later steps
                start = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, session_log=start))
                self.purge_step = None
        return self.file_writer


class _File(FileWriter):
    def __init__(self, log_dir: str) -> None:
        self.event_writer = EventFile(Path(log_dir))


class EventFile:
    """A file of TensorBoard events. When `add_event` returns, the whole event is in the file.

    If an event cannot be written, its written part is removed, as TensorBoard could not read past it, and WriteError
    is raised.
    """

    def __init__(self, directory: Path) -> None:
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}"
        self.directory = directory
        number = len(list(directory.glob(f"{name}.*")))
        self.path = directory / f"{name}.{number}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise WriteError(self.path, error) from error
        self._records = RecordWriter(self)
        self.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add_event(self, event: Event) -> None:
        self._records.write(event.SerializeToString())

    def write(self, record: bytes) -> None:
        whole = self._file.tell()
        try:
            while record:
                record = record[self._file.write(record) :]
        except OSError as error:
            self._file.truncate(whole)
            self._file.seek(whole)
            raise WriteError(self.path, error) from error

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self._file.close()

    def get_logdir(self) -> str:
        return str(self.directory)


def tensorboard_writers(trainer: L.Trainer) -> list[Any]:
    """The TensorBoard writers among the loggers."""
    loggers: list[Any] = list(trainer.loggers)
    return [logger.experiment for logger in loggers if hasattr(logger.experiment, "add_image")]
