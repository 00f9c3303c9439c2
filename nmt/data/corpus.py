"""Parallel text from files or the Hub as memory-mapped `datasets`, cached by content.

Every split has the columns `src` and `tgt` and, where the data come with word alignments, `alignment`:
Pharaoh links `i-j` over whitespace words from 0, i in the source. Text is exactly what the file holds, blank
lines included.
"""

import contextlib
import functools
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from nmt.data import grammar, readers
from nmt.data.readers import Files, Languages, Row
from nmt.errors import UserError

SPLITS = ("train", "val", "test")
RATIO_FLOOR = 6  # no pair whose sides both have this few pieces is left out for its ratio

_READER_VERSION = 1  # raise it when the same files give other rows
_ROWS_A_BATCH = 10_000
_LONG_BYTES = 20_000_000  # from here on, a terminal shows progress


def read_files(
    path: str | Path,
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    columns: Sequence[str] | None = None,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """The splits that the folder `path` holds: train; val (or valid, validation, dev); test.

    A split is one of .jsonl (keys named by language, or a `translation` object), .tsv, .csv (with a header),
    .parquet (or shards as on the Hub), or two plain files such as train.de and train.en with perhaps
    train.align; all but Parquet may be .gz. `columns` names the columns of a .tsv without a header, in the
    file's order. Links `i-j` of an alignment count words of the first and the second language of `columns`,
    else of the alphabet (en before vi); they are turned round where the source is the second.

    Raises UserError naming file and line where the text is not sound, and what was looked for and what is
    there where there is none of the splits, or no train though it is asked for.
    """
    directory = Path(path).expanduser()
    languages = Languages(str(src_lang), str(tgt_lang), _column_names(columns))
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise UserError(f"{directory} {what}: set data.path to the folder with the train, val and test files")
    try:
        found = {split: readers.find(directory, split, languages) for split in splits}
        if "train" in found and found["train"] is None:
            raise readers.missing(directory, "train", languages)
        if not any(found.values()):
            raise readers.missing(directory, splits[0], languages)
    except OSError as error:
        raise UserError(f"{directory}: cannot list it ({error.strerror})") from error
    return {
        split: _read_split(files, languages, split, Path(cache_dir))
        for split, files in found.items()
        if files is not None
    }


def read_grammar(
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    num_train: int,
    num_val: int,
    num_test: int,
    max_words: int,
    seed: int,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """The built-in English–Vietnamese corpus with its gold alignments, in either direction.

    Generated once for each setting, then cached. Raises UserError for another language.
    """
    for key, lang in (("data.src_lang", src_lang), ("data.tgt_lang", tgt_lang)):
        if lang not in grammar.LANGUAGES:
            raise UserError(f"{key}={lang}: the built-in corpus has {' and '.join(grammar.LANGUAGES)}")
    languages = Languages(src_lang, tgt_lang)

    def row(pair: Any) -> Row:
        links = [(j, i) if languages.alignments_flipped else (i, j) for i, j in pair.alignment]
        return getattr(pair, src_lang), getattr(pair, tgt_lang), grammar.pharaoh(sorted(links))

    settings = {
        "num_train": num_train,
        "num_val": num_val,
        "num_test": num_test,
        "max_words": max_words,
        "seed": seed,
    }
    return _from_grammar(row, settings, (src_lang, tgt_lang), "grammar", cache_dir, splits)


def read_hub(
    name: str,
    *,
    path: str | Path | None,
    config: str | None,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """The splits of the Hub's data set `name`, or of a local copy of its files at `path`.

    Columns are named by language, or one column `translation` holds both. Raises UserError where the Hub
    cannot be reached or has no such data set, and where a language is not in it.
    """
    if path is not None:
        return read_files(path, src_lang=src_lang, tgt_lang=tgt_lang, cache_dir=cache_dir, splits=splits)
    languages = Languages(str(src_lang), str(tgt_lang))
    try:
        loaded = datasets.load_dataset(name, config, cache_dir=str(cache_dir))
    except Exception as error:  # its network stack raises many unrelated types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"cannot load {name} from the Hub ({reason}): set data.path=DIR to read a local copy"
        ) from error
    result = {}
    for split in splits:
        there = [alias for alias in readers.ALIASES[split] if alias in loaded]
        if len(there) > 1:
            raise UserError(
                f"{name} has both {there[0]} and {there[1]} for the {split} split: save one and set data.path"
            )
        if there:
            result[split] = _name_columns(loaded[there[0]], languages, f"{name}, split {there[0]}")
    if not result or ("train" in splits and "train" not in result):
        raise UserError(f"{name} has no {splits[0]} split; its splits are {', '.join(map(str, loaded))}")
    return result


def cached_dataset(
    rows: Callable[[], Iterable[Row]], *, key: str, name: str, cache_dir: str | Path
) -> Dataset:
    """The data set of `rows()`, which is called only where the cache has none for `key`.

    key: a hexadecimal digest of all that the rows follow from. name: what the file's name begins with. The
    file appears whole or not at all. Raises UserError where `cache_dir` cannot be written to.
    """
    directory = Path(cache_dir).expanduser()
    file = directory / f"{name}-{key[:32]}.arrow"
    if not file.exists():
        _write(rows, file)
    try:
        dataset = Dataset.from_file(str(file))
    except (pa.ArrowException, OSError):  # damaged from outside
        _write(rows, file)
        dataset = Dataset.from_file(str(file))
    # The fingerprint follows the content, so that what is computed from it is found again.
    return Dataset(dataset.data, info=dataset.info, fingerprint=hashlib.sha256(key.encode()).hexdigest()[:16])


def filter_pairs(dataset: Dataset, *, max_length: int, max_ratio: float) -> tuple[Dataset, dict[str, int]]:
    """The training pairs to learn from, and how many were `kept`, or left out: `empty`, `too_long`, `ratio`.

    Lengths are those of `src_ids` and `tgt_ids`: pieces with the end of sentence, so that a side of length 1
    is empty. A pair is kept where neither side is empty or longer than `max_length`, and the longer side is
    at most `max_ratio` times the shorter; the ratio of a pair with at most `RATIO_FLOOR` pieces a side is not
    looked at. A pair counts under the first reason that holds. Raises UserError where nothing is kept.
    """
    if max_length < 2:
        raise UserError(f"data.max_length={max_length}: give at least 2, a piece and the end of sentence")
    if not max_ratio >= 1:
        raise UserError(f"data.max_ratio={max_ratio}: give at least 1")
    table = dataset.select_columns(["src_ids", "tgt_ids"]).with_format("arrow")[:]
    src, tgt = (pc.list_value_length(table[name]).to_numpy() for name in ("src_ids", "tgt_ids"))
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    empty = shorter <= 1
    too_long = ~empty & (longer > max_length)
    ratio = ~empty & ~too_long & (longer > RATIO_FLOOR) & (longer > max_ratio * shorter)
    keep = ~(empty | too_long | ratio)
    counts = {
        "kept": int(keep.sum()),
        "empty": int(empty.sum()),
        "too_long": int(too_long.sum()),
        "ratio": int(ratio.sum()),
    }
    if not counts["kept"]:
        dropped = f"{counts['empty']} empty, {counts['too_long']} too long, {counts['ratio']} by ratio"
        limits = f"data.max_length={max_length} or data.max_ratio={max_ratio}"
        raise UserError(f"no training pair is left of {len(dataset)} ({dropped}): raise {limits}")
    if counts["kept"] == len(dataset):
        return dataset, counts
    return dataset.select(np.flatnonzero(keep)), counts


def count_shared(held_out: Dataset, train: Dataset) -> int:
    """How many rows of `held_out` stand in `train` too, with the same text on both sides."""
    rows = pa.chunked_array(_joined(held_out), pa.large_string())
    found: set[str] = set()
    for chunk in _joined(train):  # one at a time: all training text would not fit in memory
        found.update(chunk.filter(pc.is_in(chunk, value_set=rows)).to_pylist())
    return sum(row in found for row in rows.to_pylist())


def _joined(dataset: Dataset) -> Iterator[pa.Array]:
    """Both sides of each pair as one string, a block of rows at a time. No text that was read holds NUL."""
    for batch in dataset.select_columns(["src", "tgt"]).with_format("arrow").iter(_ROWS_A_BATCH):
        for part in batch.to_batches():
            sides = [part.column(name).cast(pa.large_string()) for name in ("src", "tgt")]
            yield pc.binary_join_element_wise(*sides, pa.scalar("\0", pa.large_string()))


def _read_split(files: Files, languages: Languages, split: str, cache_dir: Path) -> Dataset:
    def rows() -> Iterable[Row]:
        size = sum(path.stat().st_size for path in files.paths)
        # disable=None: no bar where nobody watches a terminal
        bar: Any = datasets.utils.tqdm(
            readers.read_rows(files, languages),
            desc=f"reading {files.paths[0].name}",
            unit=" pairs",
            disable=None if size > _LONG_BYTES else True,
        )
        return bar

    name = f"{split}-{languages.src}-{languages.tgt}"
    return cached_dataset(rows, key=_content_key(files, languages), name=name, cache_dir=cache_dir)


def _content_key(files: Files, languages: Languages) -> str:
    """A digest of all that the rows follow from: the reader, the files' bytes and what is asked of them."""
    parts = [_READER_VERSION, files.form, languages.src, languages.tgt, languages.columns]
    for path in files.paths:
        parts.append(path.suffix == ".gz")
        parts.append(readers.digest(path))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _write(rows: Callable[[], Iterable[Row]], file: Path) -> None:
    """Write the rows as an Arrow stream beside `file`, then rename it. Raises UserError where that fails."""
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}.tmp")
    advice = "set data.cache_dir to a folder that can be written to"
    try:
        # A name of its own, since other ranks and runs may write the same content now.
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as handle:
            _write_stream(iter(rows()), handle)
        os.replace(temporary, file)
    except OSError as error:
        raise UserError(f"{file.parent}: cannot write the cache ({error.strerror}): {advice}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


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


def _name_columns(dataset: Dataset, languages: Languages, where: str) -> Dataset:
    """A Hub split with its columns renamed, its rows untouched."""
    pair = [languages.src, languages.tgt]
    if "translation" in dataset.column_names and not set(pair) & set(dataset.column_names):
        dataset = dataset.flatten()
        pair = [f"translation.{lang}" for lang in pair]
    for lang, column in zip((languages.src, languages.tgt), pair, strict=True):
        if column not in dataset.column_names:
            names = ", ".join(name.removeprefix("translation.") for name in dataset.column_names)
            raise UserError(
                f'{where}: no "{lang}"; the names there are {names}: set data.src_lang and data.tgt_lang'
            )
        if dataset.data.column(column).null_count:
            raise UserError(f'{where}: "{lang}" is missing in {dataset.data.column(column).null_count} rows')
    return dataset.select_columns(pair).rename_columns(dict(zip(pair, ("src", "tgt"), strict=True)))


def _column_names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise UserError(f"data.columns={columns} is no list: set data.columns=[{columns}]")
    return tuple(str(name) for name in columns)


def read_grammar_task(
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    num_train: int,
    num_val: int,
    num_test: int,
    min_words: int,
    max_words: int,
    seed: int,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """Sentences of the built-in corpus with what their derivation tells of them.

    `tgt_lang` is `core`, the main clause in English, or `kind`, what that clause does (past, open question, …).
    No source occurs twice, in one split or in two. Generated once for each setting, then cached. Raises
    UserError for another source or target, and for numbers that are none or too small.
    """
    for key, lang, known in (
        ("data.src_lang", src_lang, grammar.LANGUAGES),
        ("data.tgt_lang", tgt_lang, grammar.ANNOTATIONS),
    ):
        if lang not in known:
            raise UserError(f"{key}={lang}: this task of the built-in corpus has {' and '.join(known)}")
    settings = {
        "num_train": num_train,
        "num_val": num_val,
        "num_test": num_test,
        "min_words": min_words,
        "max_words": max_words,
        "seed": seed,
    }

    def row(pair: Any) -> Row:
        return getattr(pair, src_lang), getattr(pair, tgt_lang)

    return _from_grammar(row, settings, (src_lang, tgt_lang), f"grammar-{tgt_lang}", cache_dir, splits)


def _from_grammar(
    row: Callable[[Any], Row],
    settings: dict[str, int],
    languages: tuple[str, str],
    name: str,
    cache_dir: str | Path,
    splits: Sequence[str],
) -> dict[str, Dataset]:
    """The grammar's pairs as rows, generated for all splits where one of them is not cached."""
    for key, value in settings.items():
        least = 0 if key == "seed" else 1
        if not isinstance(value, int) or value < least:
            raise UserError(f"data.{key}={value}: give a whole number of at least {least}")
    generated = functools.cache(lambda: grammar.corpus(**settings))

    def rows(split: str) -> Iterator[Row]:
        yield from map(row, generated()[split])  # nothing is generated before a row is asked for

    described = repr((*languages, *settings.items())).encode()
    digest = hashlib.sha256(_grammar_source() + described).hexdigest()
    return {
        split: cached_dataset(
            functools.partial(rows, split),
            key=hashlib.sha256(f"{digest} {split}".encode()).hexdigest(),
            name=f"{name}-{split}",
            cache_dir=cache_dir,
        )
        for split in SPLITS
        if split in splits
    }


def _grammar_source() -> bytes:
    """The text of all files of the grammar, so that a changed rule or word makes its corpus anew."""
    return b"".join(path.read_bytes() for path in sorted(Path(grammar.__file__).parent.rglob("*.py")))
