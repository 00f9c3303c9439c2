"""The format of checkpoints: keys, file names, reading, writing, and the mean of several.

Functions that need torch import it themselves: the checks before a command's start need only the names of files.
"""

import contextlib
import io
import logging
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.errors import UserError, WriteError, first_line, install

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

FORMAT = 1  # raise it if the meaning of a key changes, or a setting without which config.yaml cannot be read

# Every key of a checkpoint: its content, who writes it, who reads it (Lightning, if nobody is named)
KEYS = {
    "format": "FORMAT; by `write_checkpoint` for `read_checkpoint`",
    "state_dict": "weights, as `translator.NAME`; by Lightning or `ExponentialMovingAverage`, for `read_weights`",
    "current_model_state": "with averaging: weights of training; by and for `ExponentialMovingAverage`",
    "global_step": "optimizer steps; by Lightning, also for `cost_so_far` and `why_finished`",
    "epoch": "the open epoch",
    "loops": "counters of Lightning's loops; set by `pause_loop` for Lightning, also read by `pause_in`",
    "optimizer_states": "moments and settings by weight; checked by `check_optimizers`",
    "lr_schedulers": "steps of the schedule; checked by `check_optimizers`",
    "MixedPrecision": "with 16-mixed: the scale of the loss",
    "callbacks": "their states by class; also read by `why_finished`",
    "random": "states of the random generators by rank; by and for `Checkpoints`",
    "training": "totals and seconds so far, by rank; by and for `TranslationModule`, also for `cost_so_far`",
    "TranslationDataModule": "digests of the text; by and for this class",
    "StreamingDataModule": "digests of the text, place in it; by and for this class",
    "pytorch-lightning_version": "the version that wrote; `AtomicCheckpointIO` replaces it by the one that reads",
}
RESUMABLE = {"loops", "optimizer_states", "random", "training"}  # keys without which a run cannot be resumed
_OF_WEIGHTS = ("global_step", "state_dict")  # keys of step_NUMBER.ckpt

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
ALONE = "model.safetensors"  # in the run directory: weights without a checkpoint, to send to others
_STEP = re.compile(r"step_(\d+)\.ckpt")  # weights after this step, kept for averaging

# Names that its pickle may hold. torch would also call bytearray(10**10): a small file could take any memory.
_NAMED = re.compile(
    r"torch\._utils _rebuild_tensor_v2|torch ([A-Z]\w*Storage|device|Size|[a-z]+\d+|bool)|_codecs encode"
    r"|collections OrderedDict|__builtin__ set"
)

# Errors of reading a file that is no checkpoint, or an incomplete checkpoint
BROKEN = (
    *(pickle.UnpicklingError, OSError, RuntimeError, EOFError),
    *(LookupError, AttributeError, TypeError, ValueError, AssertionError, zipfile.BadZipFile),
)


# Files


def checkpoints_of(run_dir: Path) -> Path:
    """The folder of a run's checkpoints."""
    return run_dir / "checkpoints"


def has_checkpoints(run_dir: Path) -> bool:
    return any(checkpoints_of(run_dir).glob("*.ckpt"))


def kept_file(directory: Path, step: int) -> Path:
    return directory / f"step_{step:06d}.ckpt"


def kept_files(directory: Path) -> dict[int, Path]:
    """The checkpoints in a directory that are kept for averaging, by step, in ascending order."""
    found = [(_STEP.fullmatch(file.name), file) for file in directory.glob("step_*.ckpt")]
    return dict(sorted((int(match[1]), file) for match, file in found if match))


def checkpoint_file(run_dir: Path, checkpoint: str) -> Path:
    """The file of `checkpoint` (best, last or a path). Without a best checkpoint it is the last, with a warning."""
    file = find_checkpoint(run_dir, checkpoint)
    if checkpoint == "best" and file.name == LAST:
        log.warning("%s has no %s yet: its last checkpoint is taken", run_dir, BEST)
    return file


def find_checkpoint(run_dir: Path, checkpoint: str) -> Path:
    """The file of `checkpoint`: without a best, the last, or else ALONE. Raises UserError if there is none."""
    names = {"best": (BEST, LAST), "last": (LAST,)}.get(checkpoint, ())
    files = [checkpoints_of(run_dir) / name for name in names] or [Path(checkpoint)]
    for file in (*files, *([run_dir / ALONE] if names else [])):
        if file.is_file():
            return file
    raise UserError(f"{files[0]}: no such checkpoint; checkpoint= is best, last or a file")


def checkpoint_name(run_dir: Path, checkpoint: str) -> str:
    """The name of `checkpoint` in files of scores: best or last if it is the run's, best for ALONE, else as given."""
    file, folder = find_checkpoint(run_dir, checkpoint).resolve(), checkpoints_of(run_dir).resolve()
    alone = file == (run_dir / ALONE).resolve() and not has_checkpoints(run_dir)
    return "best" if alone else {folder / BEST: "best", folder / LAST: "last"}.get(file, checkpoint)


def files_to_average(run_dir: Path, number: int) -> list[Path]:
    """The last `number` checkpoints that a run has kept. Raises UserError if it has fewer."""
    if type(number) is not int or number < 1:
        raise UserError(f"average={number}: give a number of at least 1, or null")
    files = list(kept_files(checkpoints_of(run_dir)).values())
    if len(files) < number:
        raise UserError(
            f"average={number}: {run_dir} has kept {len(files) or 'no'} checkpoints to average; "
            + (f"give average={len(files)}" if files else f"train with callbacks.checkpoint.keep={number}")
        )
    return files[-number:]


# Reading


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of tensors and plain containers. Raises UserError for another format, else an error of BROKEN.

    A file that unpacks to more than its size is broken too: it may be packed, or containers may hold the same part many
    times. A checkpoint of this program does neither. torch reads a copy, as its reader may find other records in a file
    than Python's.
    """
    import torch

    plain, room = io.BytesIO(), 0
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(plain, "w") as copy:
        if sum(each.file_size for each in archive.infolist()) > file.stat().st_size:
            raise ValueError("it unpacks to more than it is")
        if any(each.compress_type for each in archive.infolist()):
            raise ValueError("it is packed")
        for each in archive.infolist():
            content = archive.read(each)
            copy.writestr(each.filename, content)
            if each.filename.endswith("data.pkl"):
                check_names(content)
                room = max(room, len(content))  # each part takes a byte of it
    plain.seek(0)
    checkpoint = torch.load(plain, map_location="cpu", weights_only=True)
    if not isinstance(checkpoint, dict):
        raise TypeError("it holds no dictionary")
    parts = [checkpoint]
    while parts:
        part = parts.pop()
        values = [*part, *part.values()] if isinstance(part, dict) else part
        if isinstance(part, dict | list | tuple | set):
            parts += values
            room -= len(values)
        if room < 0:
            raise ValueError("it unpacks to more than it is")
    found = checkpoint.get("format")
    if type(found) is not int or found != FORMAT:
        raise UserError(
            f"{file} has {f'format {found}' if type(found) is int else 'no format number'}, and this program reads "
            f"format {FORMAT}: use the version that wrote it, or train the run anew"
        )
    return checkpoint


def check_names(pickled: bytes) -> None:
    """Raise UnpicklingError if a pickle holds a name that no checkpoint of this program has."""
    for operation, name, _ in pickletools.genops(pickled):
        if "GLOBAL" in operation.name and not _NAMED.fullmatch(str(name)):
            raise pickle.UnpicklingError(f"it names {name}")


def read_weights(file: Path, checkpoint: Mapping[str, Any] | None = None) -> dict[str, "Tensor"]:
    """The translator's weights in a `checkpoint`, read from `file` if not given. Raises UserError naming it."""
    import torch

    floating = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    try:
        if file.suffix == ".safetensors":
            weights = _read_safetensors(file)
        else:
            checkpoint = read_checkpoint(file) if checkpoint is None else checkpoint
            weights = {
                name.removeprefix("translator."): value
                for name, value in checkpoint["state_dict"].items()
                if name.startswith("translator.")
            }
        for name, value in weights.items():
            if not is_plain(value) or value.dtype not in floating:
                raise TypeError(f"{name} is no plain tensor of numbers")
    except UserError:
        raise
    except BROKEN as error:
        reason = first_line(error)
        if isinstance(error, pickle.UnpicklingError):  # its message advises to load the file anyway
            reason = "it holds more than weights"
        raise UserError(
            f"{file} is broken or no checkpoint ({reason}): give another with checkpoint="
        ) from error
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise UserError(f"{file} holds weights that are no numbers, as after a training that diverged")
    return weights


def _read_safetensors(file: Path) -> dict[str, "Tensor"]:
    """The weights that `export.py format=safetensors` wrote; the file's metadata name tied weights, stored once."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UserError(f"{file} needs safetensors: {install('export')}") from error
    try:
        with safe_open(file, framework="pt") as stored:
            weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            tied = stored.metadata() or {}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return weights | {name: weights[other] for name, other in tied.items() if other in weights}


def mean_weights(files: Sequence[Path]) -> dict[str, "Tensor"]:
    """The mean of several checkpoints' weights (Vaswani et al. 2017, 6.1), taken in float64. Raises UserError."""
    first, *others = files
    sums = {name: value.double() for name, value in read_weights(first).items()}
    for file in others:
        weights = read_weights(file)
        for name in sums.keys() | weights.keys():
            if name not in sums or name not in weights or sums[name].shape != weights[name].shape:
                raise UserError(
                    f"{file} and {first.name} differ in the shape of {name}: they cannot be averaged"
                )
            sums[name] += weights[name]
    return {name: total / len(files) for name, total in sums.items()}


def is_plain(tensor: Any) -> bool:
    """True for a dense tensor in memory that holds all of its numbers."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return tensor.nbytes <= tensor.untyped_storage().nbytes()


# Writing


def write_checkpoint(checkpoint: Mapping[str, Any], file: Path) -> None:
    """Write a checkpoint to a temporary file, flush it, then rename it, so that no file is ever half-written.

    The old `last.ckpt` becomes `previous.ckpt`. A `step_NUMBER.ckpt` gets only weights and step. Raises WriteError.
    """
    import torch

    keys = _OF_WEIGHTS if _STEP.fullmatch(file.name) else checkpoint.keys()
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as handle:
            torch.save({key: checkpoint[key] for key in keys} | {"format": FORMAT}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        if file.name == LAST and file.exists():
            file.replace(file.with_name(PREVIOUS))
        temporary.replace(file)
    except (OSError, RuntimeError) as error:  # torch's writer turns a failed write into a RuntimeError
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, OSError):
            raise WriteError(file, cause) from error
        raise UserError(f"{file}: cannot write ({first_line(error)})") from error
    finally:
        with contextlib.suppress(OSError):  # a file system that is read-only refuses this too
            temporary.unlink()


def check_plain(state: Any, name: str = "") -> None:
    """Raise UserError naming the first part of a state that a checkpoint cannot store and load."""
    import torch

    file = io.BytesIO()
    try:
        torch.save(state, file)
        with zipfile.ZipFile(file) as archive:
            check_names(archive.read("archive/data.pkl"))
    except (pickle.PickleError, AttributeError, TypeError) as error:
        keys: Any = (
            state if isinstance(state, dict) else range(len(state)) if isinstance(state, list | tuple) else ()
        )
        for key in keys:
            check_plain(state[key], f"{name}.{key}")
        raise UserError(
            f"{name[1:]} is a {type(state).__name__}, with which a checkpoint could not be read back: checkpoints hold "
            "tensors, numbers, text, and lists and dicts of them"
        ) from error


# The counters of Lightning's loops


class Pause(NamedTuple):
    """The place of a checkpoint in training: complete epochs and batches of the open epoch.

    validation_due: True if a run resumed from here validates first.
    """

    epochs: int
    batches: int
    validation_due: bool


def pause_in(checkpoint: Mapping[str, Any]) -> Pause:
    loop = checkpoint["loops"]["fit_loop"]
    return Pause(
        epochs=loop["epoch_progress"]["current"]["completed"],
        batches=loop["epoch_loop.batch_progress"]["current"]["completed"],
        validation_due=loop["epoch_loop.val_loop.batch_progress"]["total"]["ready"] > 0,
    )


def pause_loop(checkpoint: Mapping[str, Any], *, num_batches: int, validation_due: bool) -> None:
    """Set the counters of Lightning's fit loop, in place, to a pause between two batches of an open epoch.

    Lightning resumes correctly from only some states of its counters. After this call, b of `num_batches` batches are
    complete, and validation is done or, with `validation_due`, not begun. A closed epoch becomes the next epoch with
    b = 0; an epoch that a limit on steps or time closed early is opened again.
    """
    loop = checkpoint["loops"]["fit_loop"]
    batches, epochs = loop["epoch_loop.batch_progress"], loop["epoch_progress"]
    for count in (batches["total"], batches["current"]):
        count["ready"] = count["started"] = count["processed"] = count["completed"]
    closed = epochs["current"]["processed"] == epochs["current"]["started"]
    cut = closed and 0 < batches["current"]["completed"] < num_batches
    if closed and not cut:
        batches["current"] = dict.fromkeys(batches["current"], 0)
    for count in (epochs["total"], epochs["current"]):
        done = count["processed"] - cut
        count.update(ready=done + 1, started=done + 1, processed=done, completed=done)
    batches["is_last_batch"] = batches["current"]["completed"] == num_batches
    # Lightning runs a validation from its start if one batch is begun and none is processed.
    begun = int(validation_due)
    validation = loop["epoch_loop.val_loop.batch_progress"]
    for count in (validation["total"], validation["current"]):
        count.update(ready=begun, started=begun, processed=0, completed=0)
    validation["is_last_batch"] = False
