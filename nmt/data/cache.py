"""Cache data sets and vocabularies in files named by a digest of their source."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from datasets import Dataset, NamedSplit
from datasets.exceptions import DatasetGenerationError

from nmt.data.formats import Row
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError


def cached_dataset(
    rows: Callable[[], Iterable[Row]], *, key: str, split: str, cache_dir: str | Path
) -> Dataset:
    """The data set of `rows()`, which is called only if the cache has none for `split` and `key`.

    key: a hexadecimal digest of everything that determines the rows. Raises UserError if `cache_dir` cannot be written
    to or holds a damaged file.
    """

    def name_columns() -> Iterator[dict[str, str]]:
        for row in rows():
            yield dict(zip(("src", "tgt", "alignment"), row, strict=False))

    directory = Path(cache_dir).expanduser()
    try:
        dataset = Dataset.from_generator(
            name_columns, cache_dir=str(directory), split=NamedSplit(split), fingerprint=f"{split}-{key[:32]}"
        )
        dataset.data.validate(full=True)  # text is read without checks later on
        return dataset
    except Exception as error:  # datasets and pyarrow raise any type for foreign or damaged files
        cause = (error.__cause__ or error) if isinstance(error, DatasetGenerationError) else error
        if isinstance(cause, OSError) and cause.errno is not None:
            advice = "set data.cache_dir to a folder that can be written to"
            raise UserError(f"{directory}: cannot write the cache ({cause.strerror}): {advice}") from error
        if isinstance(error, DatasetGenerationError):
            raise cause from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{directory}: a file of the cache is broken ({reason}): remove this folder"
        ) from error


def cached_tokenizer(
    train: Callable[[], Tokenizer], *, key: str, cache_dir: str | Path, lowercase: bool
) -> Tokenizer:
    """The vocabulary of `train()`, which is called only if the cache has none for `key`."""
    directory = Path(cache_dir).expanduser() / f"tokenizer-{key[:32]}"
    if directory.is_dir():
        with contextlib.suppress(UserError):  # cut off between the writing of its two files
            return Tokenizer.load(directory, lowercase=lowercase)
    tokenizer = train()
    tokenizer.save(directory)
    return tokenizer
