"""Find, check and write the files of a run directory."""

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

from nmt.atomic import check_folder, follow_link, is_stream, read_at_most, replace_file
from nmt.checkpoint import checkpoints_of, find_checkpoint
from nmt.config.types import as_list, flat, say
from nmt.errors import UserError, WriteError, reason_of
from nmt.lines import opener

log = logging.getLogger(__name__)

EVALUATIONS = "evaluations"  # folder in a run directory for scores with changed settings
TUNED = "tuned"  # the choice of `decoding` whose length_alpha the run has chosen
_OTHER_PACKED = {".zst", ".zip", ".7z", ".lz4", ".br", ".Z", ".rar", ".tar", ".tgz"}
_MOST_YAML = 2**17  # bytes
_MOST_PARTS = 5_000  # values, lists and keys of a YAML file; a configuration has a thousand
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_config(directory: Path) -> DictConfig:
    """The configuration of a run directory.

    Raises UserError naming the file if there is none, if a setting is a reference, which could compute something, and
    if the directory holds anything but plain files and folders.
    """
    file = directory / "config.yaml"
    if not directory.is_dir():
        raise UserError(f"{directory}: no such run directory")
    if not file.is_file():
        raise UserError(f"{directory} is not a run directory: it has no config.yaml")
    check_folder(directory)
    try:
        config = read_yaml(file)
        written: Any = OmegaConf.to_container(config, resolve=False)
        _check_parts(written)
        for key, value in flat(written).items():
            if "${" in str(value):
                raise UserError(f"{file}: a run may compute no setting: {key}={value}")
        model, _ = config.model, config.data
        if not (OmegaConf.is_dict(model) and "_target_" in model):
            raise ValueError("model has no _target_")
        for key in ("data", "choices", "decoding", "metrics"):
            if not OmegaConf.is_dict(config.get(key)) and (key == "data" or config.get(key) is not None):
                raise ValueError(f"{key} holds no settings")
        joint = OmegaConf.select(config, "data.tokenizer.joint", default=True)
        if not isinstance(joint, bool):
            raise ValueError("data.tokenizer.joint is not true or false")
        if not all(isinstance(each, str) for each in (config.get("choices") or {}).values()):
            raise ValueError("choices are names")
    except UserError:
        raise
    except (OmegaConfBaseException, OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is broken: {reason_of(error)}") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise UserError(f"{file} is not YAML: {reason_of(error)}") from error
        raise
    assert isinstance(config, DictConfig)
    return config


def _check_parts(part: Any, key: str = "") -> None:
    """Raise ValueError, naming the key, unless a configuration has only texts, numbers, lists and mappings by name."""
    if isinstance(part, dict):
        for name, value in part.items():
            if not isinstance(name, str):
                raise ValueError(f"{key or 'it'} has a key that is no text, {name!r}")
            _check_parts(value, f"{key}.{name}" if key else name)
    elif isinstance(part, list):
        for value in part:
            _check_parts(value, key)
    elif not isinstance(part, str | int | float | None):
        raise ValueError(f"{key} is neither text nor a number")


def write_config(directory: Path, config: DictConfig) -> None:
    """Write the configuration of a run directory."""
    write_atomically(directory / "config.yaml", OmegaConf.to_yaml(config))


def stored_settings(runs: Mapping[str | Path, DictConfig], group: str) -> DictConfig:
    """The settings of a group that runs store, by their directories. Raises UserError naming two runs that differ."""
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
    """The content of a YAML file. Raises UserError if it is large or has aliases, which could unpack to any size."""
    text = read_at_most(file, _MOST_YAML).decode("utf-8")
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if number > _MOST_PARTS:
            raise UserError(f"{file} is too large: more than {_MOST_PARTS:,} keys and values")
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{file} has an alias, *{event.anchor}, which this program does not write")
    return OmegaConf.load(io.StringIO(text))


def refuse_stored_dictionary(file: Any) -> None:
    """Raise UserError if the stored `decoding.dictionary` is a file: a run may not choose a file to open."""
    if file is not None:
        raise UserError(
            f"decoding.dictionary={say(file)} is stored in the run, which may name no file: give it again if it is "
            "yours, or decoding.dictionary=null"
        )


@contextlib.contextmanager
def claim_directory(run_dir: Path, *, may_rename: bool) -> Iterator[Path]:
    """Make a run directory and lock it for the block. At the end, remove the new folders if nothing was written there.

    If `may_rename`, a name that is taken gets a number: NAME_2, NAME_3, … Raises UserError if another process has the
    lock.
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
        with contextlib.suppress(OSError):  # not empty, or already gone
            for each in made:
                each.rmdir()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # on Windows, folders cannot be locked
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
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
    """Raise UserError if a command's `run`, or a run of its list, is no run directory or lacks the checkpoint."""
    for directory in map(Path, as_list(config[key])):
        load_config(directory)
        if config.average is None:
            find_checkpoint(directory, config.checkpoint)


def check_folders(
    config: DictConfig,
    *files: str,
    made: Sequence[str] = (),
    folders: Sequence[str] = (),
    read: Sequence[str] = (),
) -> None:
    """Raise UserError if the path of a key cannot be written, or if another key has the same path.

    `files` need an existing folder, `made` are files that get their folders, `folders` are folders themselves. The
    paths of the keys `read` are only read, and must differ from the paths written.
    """
    taken = {Path(config[key]).resolve(): key for key in read if config[key] is not None}
    for key in (key for key in (*files, *made, *folders) if config[key] is not None):
        path = Path(config[key])
        is_plain = not is_stream(path)
        if is_plain and (other := taken.setdefault(path.resolve(), key)) != key:
            raise UserError(f"{key}={path} is that of {other} too: give each its own")
        above = follow_link(path) if key in folders else follow_link(path).parent
        if key in files and _OTHER_PACKED & {*path.suffixes[-2:]}:
            raise UserError(
                f"{key}={path}: text is packed as .gz, .xz or .bz2: give a name with one of these ends"
            )
        if key in files and not above.is_dir():
            raise UserError(f"{key}={path}: there is no folder {above}")
        there = next(each for each in (above, *above.parents) if each.exists())
        if not there.is_dir():
            raise UserError(f"{key}={path}: {there} is a file, not a folder")
        if is_plain and not os.access(there, os.W_OK):
            raise UserError(f"{key}={path}: {there} cannot be written to, give another place")
        if key not in folders and path.is_dir():
            raise UserError(f"{key}={path} is a folder: give a file")


@contextlib.contextmanager
def grow_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes text to a file beside `path`. At the end the file takes this name. Raises
    WriteError.

    After an exception `path` is unchanged, and the text so far is in `path`.part. Text for a .gz, .xz or .bz2 is
    packed. Streams and links are treated as in `write_atomically`.
    """
    place, is_plain, count = follow_link(path), not is_stream(path), 0
    with contextlib.ExitStack() as stack:
        with _raise_write_errors(path):
            if is_plain:
                place.parent.mkdir(parents=True, exist_ok=True)
                new = stack.enter_context(replace_file(place))
                handle: Any = stack.enter_context(opener(path)(new, "wt", encoding="utf-8", newline="\n"))
            else:
                handle = stack.enter_context(path.open("a", encoding="utf-8"))

        def write(text: str) -> None:
            nonlocal count
            with _raise_write_errors(path):
                handle.write(text)
            count += 1

        try:
            yield write
        except BaseException:
            if count and is_plain:
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
    """Write a file beside `path`, then rename it: `path` is complete or unchanged. Raises WriteError.

    Text for an existing `path` that is no plain file, as /dev/stdout, is written to it directly. A link stays a link.
    """
    with grow_file(path) as write:
        write(text)


def score_files(directory: Path, split: str) -> tuple[Path, Path]:
    """The paths of metrics.json and hypotheses.txt; their names contain the split, except for test."""
    suffix = "" if split == "test" else f"_{split}"
    return directory / f"metrics{suffix}.json", directory / f"hypotheses{suffix}.txt"


def newest_run(folder: Path) -> Path:
    """The last scored run in a folder of runs. Raises UserError if there is none."""
    scored = [file for file in folder.rglob("metrics.json") if checkpoints_of(file.parent).is_dir()]
    if not scored:
        raise UserError(f"run is required: give run=RUN_DIR; {folder}/ has no finished run")
    return max(scored, key=lambda file: file.stat().st_mtime).parent


def find_runs(runs: Any) -> list[Path]:
    """Run directories that `runs` names, a string or a list of directories, their parents, or globs.

    A run comes once. The runs of a glob or parent are sorted by their numbers (`_9` before `_10`). A match of a glob
    comes even if it holds no run. Raises UserError if a name gives no run.
    """
    found: dict[Path, Path] = {}
    for pattern in as_list(runs):
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
    """A sort key of paths that orders numbers in them by size."""
    parts = re.split(r"(\d+)", str(path))
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def runs_under(directory: Path) -> list[Path]:
    """The directory if it holds a run or scores, else the run directories in it."""
    if (directory / "config.yaml").is_file() or any(directory.glob("metrics*.json")):
        return [directory]
    return sorted((file.parent for file in directory.rglob("config.yaml")), key=_by_number)
