"""The files of a run directory: checkpoints that are read as weights only, and scores that are written whole."""

import contextlib
import errno
import json
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from nmt import metrics
from nmt.errors import UserError, WriteError
from nmt.models.base import Translator
from nmt.run.checkpoints import kept_files
from nmt.run.translation import Translation

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def load_config(directory: Path) -> DictConfig:
    """The configuration that a run directory was trained with. Raises UserError naming the file where there is none."""
    file = directory / "config.yaml"
    if not file.is_file():
        raise UserError(f"{directory} is not a run directory: it has no config.yaml")
    try:
        config = OmegaConf.load(file)
        model, _ = config.model, config.data
        if not (OmegaConf.is_dict(model) and "_target_" in model):
            raise ValueError("model has no _target_")
    except (OmegaConfBaseException, OSError, ValueError, AttributeError) as error:
        raise UserError(f"{file} is broken: {' '.join(str(error).split())}") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
        raise
    assert isinstance(config, DictConfig)
    return config


@contextlib.contextmanager
def claimed(run_dir: Path) -> Iterator[None]:
    """Hold a run directory while the block runs. Raises UserError where another process holds it: runs that start in
    one second have one name."""
    if fcntl is None:
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(run_dir, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that locks nothing
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{run_dir} is where another process trains now: wait for it, or give another run_dir="
                ) from error
        yield
    finally:
        os.close(descriptor)


def checkpoint_file(directory: Path, checkpoint: str) -> Path:
    """The file that `checkpoint` (best, last or a path) names in a run directory."""
    file = (
        directory / "checkpoints" / f"{checkpoint}.ckpt"
        if checkpoint in ("best", "last")
        else Path(checkpoint)
    )
    if not file.is_file():
        raise UserError(f"{file}: no such checkpoint; checkpoint= is best, last or a file")
    return file


def load_weights(translator: Translator, file: Path) -> None:
    """Load a checkpoint's weights, and nothing else of it, into a translator. Raises UserError naming the file."""
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        state = {
            name.removeprefix("translator."): value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("translator.")
        }
    except pickle.UnpicklingError as error:  # its message advises to load the file all the same
        raise UserError(
            f"{file} is broken or no checkpoint (it holds more than weights): give another with checkpoint="
        ) from error
    except (
        RuntimeError,
        EOFError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"{file} is broken or no checkpoint ({reason}): give another with checkpoint="
        ) from error
    try:
        translator.load_state_dict(state)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])[:300]
        raise UserError(f"{file} does not fit the model in config.yaml: {reason}") from error
    if not all(torch.isfinite(weight).all() for weight in translator.parameters()):
        raise UserError(f"{file} holds weights that are no numbers, as after a training that diverged")


def files_to_average(directory: Path, number: int) -> list[Path]:
    """The last `number` checkpoints that a run has kept. Raises UserError where it has fewer."""
    if type(number) is not int or number < 1:
        raise UserError(f"average={number}: give a number of at least 1, or null")
    files = list(kept_files(directory / "checkpoints").values())
    if len(files) < number:
        raise UserError(
            f"average={number}: {directory} has kept {len(files) or 'no'} checkpoints to average; "
            + (f"give average={len(files)}" if files else f"train with callbacks.checkpoint.keep={number}")
        )
    return files[-number:]


def load_average(translator: Translator, files: Sequence[Path]) -> None:
    """Load the mean of several checkpoints' weights (Vaswani et al. 2017, 6.1), taken in float64.

    Raises UserError naming the first file that is broken or does not fit the model.
    """
    sums: dict[str, Tensor | float] = {}
    for file in files:
        load_weights(translator, file)
        for name, value in translator.state_dict().items():
            sums[name] = sums.get(name, 0.0) + value.double()
    translator.load_state_dict({name: total / len(files) for name, total in sums.items()})


def check_folders(
    config: DictConfig,
    *files: str,
    made: Sequence[str] = (),
    folders: Sequence[str] = (),
    read: Sequence[str] = (),
) -> None:
    """Raise UserError where what a key names could not be written: one of `files`, whose folder must be there, one of
    those `made` with their folders, or one of the `folders` themselves; or where it is what another key names, which
    may be one that is `read`."""
    taken = {Path(config[key]).resolve(): key for key in read if config[key] is not None}
    for key in (key for key in (*files, *made, *folders) if config[key] is not None):
        path = Path(config[key])
        if _leads_to_itself(path):
            raise UserError(f"{key}={path}: a link that leads to itself")
        if not _is_stream(path) and (other := taken.setdefault(path.resolve(), key)) != key:
            raise UserError(f"{key}={path} is that of {other} too: give each its own")
        above = path if key in folders else path.parent
        if key in files and not above.is_dir():
            raise UserError(f"{key}={path}: there is no folder {above}")
        there = next(each for each in (above, *above.parents) if each.exists())
        if not there.is_dir():
            raise UserError(f"{key}={path}: {there} is a file, not a folder")
        if key not in folders and path.is_dir():
            raise UserError(f"{key}={path} is a folder: give a file")


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside `path`, then rename it: `path` is whole or as it was. Raises WriteError.

    What is there and no plain file, as /dev/stdout, is written to and stays what it is; so does a link to a file.
    """
    if _is_stream(path):
        try:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            raise WriteError(path, error) from error
        return
    write_together({path.resolve() if path.is_symlink() else path: text})


def _leads_to_itself(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _is_stream(path: Path) -> bool:
    """Whether it is no plain file, or names what a process has open, as /dev/stdout does where it goes to a file."""
    while True:
        path = path.parent.resolve() / path.name
        if path.is_relative_to("/proc"):
            return True
        if not path.is_symlink():
            return path.exists() and not path.is_file() and not path.is_dir()
        path = path.parent / path.readlink()


def write_together(texts: Mapping[Path, str]) -> None:
    """Write files that belong together: where one cannot be written, all are as they were. Raises WriteError."""
    own = uuid.uuid4().hex  # another process may write the same files now
    beside = {path: path.with_name(f".{path.name}.{own}.tmp") for path in texts}
    path = next(iter(texts))
    try:
        for path, text in texts.items():
            beside[path].write_text(text, "utf-8")
        for path, temporary in beside.items():
            os.replace(temporary, path)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        for temporary in beside.values():
            with contextlib.suppress(OSError):  # a file system that is read-only refuses this too
                temporary.unlink()


def score_files(directory: Path, split: str) -> tuple[Path, Path]:
    """metrics.json and hypotheses.txt; those of another split than test are named after it."""
    suffix = "" if split == "test" else f"_{split}"
    return directory / f"metrics{suffix}.json", directory / f"hypotheses{suffix}.txt"


def write_scores(
    directory: Path, split: str, scores: dict[str, Any], translations: list[Translation]
) -> None:
    """Write the `score_files` of a split."""
    scores_file, hypotheses_file = score_files(directory, split)
    text = "".join(f"{each.text}\n" for each in translations)
    content = (
        json.dumps({"split": split, **_training(directory, split), **scores}, indent=2, ensure_ascii=False)
        + "\n"
    )
    write_together({hypotheses_file: text, scores_file: content})


def _training(directory: Path, split: str) -> dict[str, Any]:
    """What training cost, as the split's own file has it, else the test set's or, of a run without one, validation's:
    scoring again does not measure it again and must not lose it."""
    for each in (split, "test", "val"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            file, _ = score_files(directory, each)
            return {"training": json.loads(file.read_text("utf-8"))["training"]}
    return {}


def report(scores: dict[str, Any]) -> str:
    """The scores as lines a person reads: `BLEU 35.1 ± 1.5  nrefs:1|…`."""
    lines = []
    for name, result in scores.items():
        if isinstance(result, dict) and "signature" in result:
            interval = "" if result["ci"] is None else f" ± {result['ci']:.2f}"
            label = metrics.LABELS.get(name, name)
            lines.append(f"{label:4} {result['score']:.2f}{interval}  {result['signature']}")
    if "aer" in scores:
        result = scores["aer"]
        lines.append(
            f"AER  {result['score']:.3f}  precision {result['precision']:.3f}  recall {result['recall']:.3f}"
        )
    return "\n".join(lines)
