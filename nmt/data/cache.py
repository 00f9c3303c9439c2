"""What is made from text once, kept as files by content."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset

from nmt.data.readers import Row
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.files import replacing

_ROWS_A_BATCH = 10_000
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream; no text, length or offset in it holds these bytes


def cached_dataset(
    rows: Callable[[], Iterable[Row]], *, key: str, name: str, cache_dir: str | Path
) -> Dataset:
    """The data set of `rows()`, which is called only where the cache has none for `key`.

    key: a hexadecimal digest of all that the rows follow from. name: what the file's name begins with. The
    file appears whole or not at all. Raises UserError where `cache_dir` cannot be written to.
    """
    directory = Path(cache_dir).expanduser()
    plain = re.sub(r"[^\w-]", "_", name)  # a language may have any name, "../" in it too
    file = directory / f"{plain}-{key[:32]}.arrow"
    if not _is_whole(file):
        _write(rows, file)
    try:
        dataset = Dataset.from_file(str(file))
    except (pa.ArrowException, OSError):  # damaged from outside
        _write(rows, file)
        dataset = Dataset.from_file(str(file))
    # The fingerprint follows the content, so that what is computed from it is found again.
    return Dataset(dataset.data, info=dataset.info, fingerprint=hashlib.sha256(key.encode()).hexdigest()[:16])


def _is_whole(file: Path) -> bool:
    """Whether the file is there to its end: of one that was cut off between two batches, Arrow reads those before."""
    try:
        with file.open("rb") as handle:
            handle.seek(-min(len(_END), file.stat().st_size), os.SEEK_END)
            return handle.read() == _END
    except OSError:
        return False


def cached_tokenizer(
    train: Callable[[], Tokenizer], *, key: str, cache_dir: str | Path, lowercase: bool
) -> Tokenizer:
    """The vocabulary that `train()` makes, which is called only where the cache has none for `key`.

    Raises UserError where `cache_dir` cannot be written to.
    """
    if not datasets.is_caching_enabled():
        return train()
    directory = Path(cache_dir).expanduser() / f"tokenizer-{key[:32]}"
    if directory.is_dir():
        with contextlib.suppress(UserError):  # cut off between its two files, or damaged from outside
            return Tokenizer.load(directory, lowercase=lowercase)
    tokenizer = train()
    tokenizer.save(directory)
    return tokenizer


def _write(rows: Callable[[], Iterable[Row]], file: Path) -> None:
    """Write the rows as an Arrow stream, whole. Raises UserError where that fails."""
    advice = "set data.cache_dir to a folder that can be written to"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, shared=True) as new, new.open("xb") as handle:
            _write_stream(iter(rows()), handle)
    except OSError as error:
        raise UserError(f"{file.parent}: cannot write the cache ({error.strerror}): {advice}") from error


def _write_stream(rows: Any, handle: Any) -> None:
    first = next(rows)
    names = ["src", "tgt", "alignment"][: len(first)]
    schema = pa.schema([(name, pa.string()) for name in names])
    with pa.ipc.new_stream(handle, schema) as writer:
        rows = chain([first], rows)
        while batch := list(islice(rows, _ROWS_A_BATCH)):
            writer.write_batch(
                pa.record_batch([pa.array(column) for column in zip(*batch, strict=True)], schema=schema)
            )
