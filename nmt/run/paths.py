"""The files of a run directory: how they are found, checked before the work, and written."""

import contextlib
import glob
import io
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.atomic import check_folder, read_at_most, replace_file
from nmt.config.types import flat, say
from nmt.errors import UserError, WriteError
from nmt.lines import opener
from nmt.run.checkpoints import kept_files

log = logging.getLogger(__name__)

_OTHER_PACKED = {".zst", ".zip", ".7z", ".lz4", ".br", ".Z", ".rar", ".tar", ".tgz"}
_MOST_YAML = 2**17  # bytes
_MOST_PARTS = 5_000  # of a YAML file: its values, lists and keys; a configuration has a thousand
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_config(directory: Path) -> DictConfig:
    """The configuration that a run directory was trained with.

    Raises UserError naming the file if there is none, if a setting is a reference, which could compute something, and
    if the directory holds anything but plain files and folders.
    """
    file = directory / "config.yaml"
    if not file.is_file():
        raise UserError(f"{directory} is not a run directory: it has no config.yaml")
    check_folder(directory)
    try:
        config = read_yaml(file)
        written = flat(OmegaConf.to_container(config, resolve=False))
        for key, value in written.items():
            if "${" in str(value):
                raise UserError(f"{file}: a run may compute no setting: {key}={value}")
        model, _ = config.model, config.data
        if not (OmegaConf.is_dict(model) and "_target_" in model):
            raise ValueError("model has no _target_")
        for key in ("data", "choices", "decoding", "metrics"):
            if config.get(key) is not None and not OmegaConf.is_dict(config[key]):
                raise ValueError(f"{key} holds no settings")
        if not all(isinstance(each, str) for each in (config.get("choices") or {}).values()):
            raise ValueError("choices are names")
    except UserError:
        raise
    except (OmegaConfBaseException, OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is broken: {' '.join(str(error).split())[:300]}") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
        raise
    assert isinstance(config, DictConfig)
    return config


def stored_settings(runs: Mapping[str | Path, DictConfig], group: str) -> DictConfig:
    """The settings of a group that runs, by their directories, store. Raises UserError if two differ, naming both."""
    (first, config), *others = runs.items()
    stored = config.get(group)
    for run, config in others:
        if config.get(group) != stored:
            both = (stored, config.get(group))
            here, there = (flat(OmegaConf.to_container(each or OmegaConf.create())) for each in both)
            key = next((key for key in {**here, **there} if here.get(key) != there.get(key)), "")
            raise UserError(
                f"{first} and {run} store different {group} ({key}: {say(here.get(key))} and {say(there.get(key))}): "
                f"give {group}=CHOICE, with {group}.KEY=VALUE for what it should be"
            )
    return stored


def read_yaml(file: Path) -> Any:
    """What a small YAML file holds. Raises UserError if it is large or has aliases, which could unpack to anything."""
    text = read_at_most(file, _MOST_YAML).decode("utf-8")
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if number > _MOST_PARTS:
            raise UserError(f"{file} is too large: more than {_MOST_PARTS:,} keys and values")
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{file} has an alias, *{event.anchor}, which this program does not write")
    return OmegaConf.load(io.StringIO(text))


@contextlib.contextmanager
def claim_directory(run_dir: Path, *, may_rename: bool) -> Iterator[Path]:
    """Make a run directory and hold it while the block runs; remove what was made of it if nothing was written there.

    A name that is taken gets a number if it may: NAME_2, NAME_3, … Raises UserError if another process holds it.
    """
    for number in itertools.count(1):
        place = run_dir if number == 1 else run_dir.with_name(f"{run_dir.name}_{number}")
        made = [each for each in (place, *place.parents) if not each.exists()]
        with contextlib.suppress(*[FileExistsError] if may_rename else []):
            place.mkdir(parents=True, exist_ok=not may_rename)
            break
    try:
        with _lock(place):
            yield place
    finally:
        with contextlib.suppress(OSError):  # of one that is not empty, or has gone
            for each in made:
                each.rmdir()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # on Windows, whose folders take no lock
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that locks nothing
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{folder} is where another process trains now: wait for it, or give another run_dir="
                ) from error
        yield
    finally:
        os.close(descriptor)


def check_run(config: DictConfig, key: str = "run") -> None:
    """Raise UserError where a command's `run`, or one of its list, is no run directory or lacks the checkpoint."""
    if (paths := config[key]) is None:
        raise UserError(f"{key} is required: give {key}=RUN_DIR")
    for each in paths if OmegaConf.is_list(paths) else [paths]:
        directory = Path(each)
        if not directory.is_dir():
            raise UserError(f"{directory}: no such run directory")
        load_config(directory)
        if config.average is None:
            find_checkpoint(directory, config.checkpoint)


def checkpoint_file(directory: Path, checkpoint: str) -> Path:
    """The file that `checkpoint` (best, last or a path) names; without a best one the last, with a warning."""
    file = find_checkpoint(directory, checkpoint)
    if checkpoint == "best" and file.stem != "best":
        log.warning("%s has no best.ckpt yet: its last checkpoint is taken", directory)
    return file


def find_checkpoint(directory: Path, checkpoint: str) -> Path:
    """The file that `checkpoint` names; without a best one the last."""
    names = {"best": ("best", "last"), "last": ("last",)}.get(checkpoint, ())
    files = [directory / "checkpoints" / f"{name}.ckpt" for name in names] or [Path(checkpoint)]
    for file in files:
        if file.is_file():
            return file
    raise UserError(f"{files[0]}: no such checkpoint; checkpoint= is best, last or a file")


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
        if not _is_stream(path) and (other := taken.setdefault(path.resolve(), key)) != key:
            raise UserError(f"{key}={path} is that of {other} too: give each its own")
        above = path if key in folders else path.parent
        if key in files and _OTHER_PACKED & {*path.suffixes[-2:]}:
            raise UserError(
                f"{key}={path}: text is packed as .gz, .xz or .bz2: give a name with one of these ends"
            )
        if key in files and not above.is_dir():
            raise UserError(f"{key}={path}: there is no folder {above}")
        there = next(each for each in (above, *above.parents) if each.exists())
        if not there.is_dir():
            raise UserError(f"{key}={path}: {there} is a file, not a folder")
        if key not in folders and path.is_dir():
            raise UserError(f"{key}={path} is a folder: give a file")


@contextlib.contextmanager
def grow_file(path: Path) -> Iterator[Callable[[str], None]]:
    """A function that writes text to a file beside `path`, which takes this name at the end. Raises WriteError.

    After an exception `path` is as it was, and what was written is in `path`.part. The text of a .gz, .xz or
    .bz2 is packed. Streams and links are as in `write_atomically`.
    """
    place, is_stream, count = path.resolve() if path.is_symlink() else path, _is_stream(path), 0
    with contextlib.ExitStack() as stack:
        with _raise_write_errors(path):
            if is_stream:
                handle: Any = stack.enter_context(path.open("a", encoding="utf-8"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                new = stack.enter_context(replace_file(place))
                handle = stack.enter_context(opener(path)(new, "wt", encoding="utf-8", newline="\n"))

        def write(text: str) -> None:
            nonlocal count
            with _raise_write_errors(path):
                handle.write(text)
            count += 1

        try:
            yield write
        except BaseException:
            if count and not is_stream:
                with contextlib.suppress(OSError):
                    handle.close()
                    os.replace(new, f"{place}.part")
                    log.warning("%s.part has what was written before the end", path)
            raise
        with _raise_write_errors(path):
            stack.close()


@contextlib.contextmanager
def _raise_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(path, error) from error


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside `path`, then rename it: `path` is whole or as it was. Raises WriteError.

    What is there and no plain file, as /dev/stdout, is written to and stays what it is; so does a link to a file.
    """
    with grow_file(path) as write:
        write(text)


def _is_stream(path: Path) -> bool:
    """Whether it is no plain file, or names what a process has open, as /dev/stdout does where it goes to a file."""
    while True:
        path = path.parent.resolve() / path.name
        if path.is_relative_to("/proc") or path.is_relative_to("/dev/fd"):  # on Linux, on macOS
            return True
        if not path.is_symlink():
            return path.exists() and not path.is_file() and not path.is_dir()
        path = path.parent / path.readlink()


def score_files(directory: Path, split: str) -> tuple[Path, Path]:
    """metrics.json and hypotheses.txt; those of another split than test are named after it."""
    suffix = "" if split == "test" else f"_{split}"
    return directory / f"metrics{suffix}.json", directory / f"hypotheses{suffix}.txt"


def newest_run(folder: Path) -> Path:
    """The run that was scored last in a folder of runs. Raises UserError if there is none."""
    scored = [file for file in folder.rglob("metrics.json") if (file.parent / "checkpoints").is_dir()]
    if not scored:
        raise UserError(f"run is required: give run=RUN_DIR; {folder}/ has no finished run")
    return max(scored, key=lambda file: file.stat().st_mtime).parent


def find_runs(runs: Any) -> list[Path]:
    """Run directories that `runs` names, one or a list: directories, their parents, or globs. Each comes once, those of
    one glob or parent by their numbers (`_9` before `_10`). A match of a glob comes even if it holds no run.

    Raises UserError where one of them names none.
    """
    found: dict[Path, Path] = {}
    for pattern in [runs] if isinstance(runs, str) else runs:
        directories = [Path(pattern)]
        if not directories[0].exists() and glob.has_magic(pattern):
            directories = sorted(filter(Path.is_dir, map(Path, glob.glob(pattern))), key=_by_number)
        elif not directories[0].is_dir():
            raise UserError(f"runs: {pattern}: no such run directory")
        under = [runs_under(directory) for directory in directories]
        if not any(under):
            raise UserError(
                f"runs: {pattern}: no run directory there (with a config.yaml; name an evaluation's output= itself)"
            )
        for directory, inside in zip(directories, under, strict=True):
            for run in inside or [directory]:
                found.setdefault(run.resolve(), run)
    if not found:
        raise UserError("runs is empty: give runs=[DIR,DIR] or runs=DIR/*")
    return list(found.values())


def _by_number(path: Path) -> list[str | int]:
    """A key to sort paths by, numbers in them by their size."""
    parts = re.split(r"(\d+)", str(path))
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def runs_under(directory: Path) -> list[Path]:
    """The directory if it is one of a run or of scores, else the run directories in it."""
    if (directory / "config.yaml").is_file() or any(directory.glob("metrics*.json")):
        return [directory]
    return sorted((file.parent for file in directory.rglob("config.yaml")), key=_by_number)
