"""Parallel text from files or the Hub as memory-mapped `datasets`, cached by content.

Every split has the columns `src` and `tgt` and, where the data come with word alignments, `alignment`:
Pharaoh links `i-j` over whitespace words from 0, i in the source. Text is exactly what the file holds, blank
lines included.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset

from nmt.data import grammar, readers
from nmt.data.cache import cached_dataset
from nmt.data.readers import Files, Languages, Row
from nmt.data.streaming import TextStream
from nmt.errors import UserError
from nmt.settings import SPLITS, Count, Whole

_READER_VERSION = 2  # raise it when the same files give other rows
_LONG_BYTES = 20_000_000  # from here on, a terminal shows progress
_ROWS_OF_A_TABLE = 1_000  # of the Hub's


def read_files(
    path: str | Path,
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    columns: Sequence[str] | None = None,
    streaming: Count | None = None,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Any]:
    """The splits that the folder `path` holds: train; val (or valid, validation, dev); test.

    A split is one of .jsonl (keys named by language, or a `translation` object), .tsv, .csv (with a header),
    .parquet (or shards as on the Hub), or two plain files such as train.de and train.en with perhaps
    train.align; all but Parquet may be .gz. What is one file may be shards, train-00000-of-00002.jsonl and so
    on. With `streaming`, the batches of an epoch, train is a TextStream, of which nothing is read yet. `columns`
    names the columns of a .tsv without a header, in the file's order. Links `i-j` of an alignment count words of
    the first and the second language of `columns`, else of the alphabet (en before vi); they are turned round
    where the source is the second.

    Raises UserError naming file and line where the text is not sound, and what was looked for and what is
    there where there is none of the splits, or no train though it is asked for; and for `columns` that have no
    effect on any split where train is one of them.
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
    there = {split: files for split, files in found.items() if files is not None}
    result: dict[str, Any] = {
        split: TextStream(files, languages)
        if streaming is not None and split == "train"
        else _read_split(files, languages, split, Path(cache_dir))
        for split, files in there.items()
    }
    # An evaluation has the setting of the run's training, and perhaps other files.
    if languages.columns is not None and "train" in there:
        has_tsv = any(files.form == ".tsv" for files in there.values())
        if not has_tsv and not any(map(_has_alignments, result.values())):
            given = f"data.columns=[{','.join(languages.columns)}]"
            raise UserError(
                f"{given} has no effect: {directory} has no .tsv whose columns it could name, and no alignments whose "
                "order it could say: leave it out, or set data.columns=null"
            )
    return result


def _has_alignments(split: Dataset | TextStream) -> bool:
    if isinstance(split, TextStream):
        return len(next(split.first_pairs(1))) == 3
    return "alignment" in split.column_names


def read_grammar(
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    num_train: Count,
    num_val: Count,
    num_test: Count,
    max_words: Count,
    seed: Whole,
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
    streaming: Count | None = None,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Any]:
    """The splits of the Hub's data set `name`, or of a local copy of its files at `path`.

    Columns are named by language, or one column `translation` holds both; rows are looked at, and kept, as those
    of files. Raises UserError where the Hub cannot be reached or has no such data set, where a language is not in
    it, naming the row where it is not sound, and for a `config` of files at `path`.
    """
    if path is not None:
        if config is not None:
            raise UserError(
                f"data.reader.config={config} is for the Hub, not for the files in data.path={path}: leave it out, "
                "or set data.reader.config=null"
            )
        return read_files(
            path,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            cache_dir=cache_dir,
            streaming=streaming,
            splits=splits,
        )
    if streaming is not None:
        raise UserError(
            f"data.streaming={streaming}: the Hub's copy of {name} is loaded whole, set data.path=DIR"
        )
    languages = Languages(str(src_lang), str(tgt_lang))
    try:
        loaded = datasets.load_dataset(name, config, cache_dir=str(cache_dir))
    except Exception as error:  # its network stack raises many unrelated types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        # There are several, or none that is called so.
        choose = "choose one by data.reader.config=NAME, or " if "Config" in reason else ""
        raise UserError(
            f"cannot load {name} from the Hub ({reason}): {choose}set data.path=DIR to read a local copy"
        ) from error
    result = {}
    for split in splits:
        there = [alias for alias in readers.ALIASES[split] if alias in loaded]
        if len(there) > 1:
            raise UserError(
                f"{name} has both {there[0]} and {there[1]} for the {split} split: save one and set data.path"
            )
        if there:
            where = f"{name}, split {there[0]}"
            result[split] = _read_hub_split(loaded[there[0]], languages, split, where, Path(cache_dir))
    if not result or ("train" in splits and "train" not in result):
        raise UserError(f"{name} has no {splits[0]} split; its splits are {', '.join(map(str, loaded))}")
    return result


def _read_split(files: Files, languages: Languages, split: str, cache_dir: Path) -> Dataset:
    def rows() -> Iterable[Row]:
        size = sum(path.stat().st_size for path in files.paths)
        return _watched(readers.read_rows(files, languages), files.paths[0].name, size)

    name = f"{split}-{languages.src}-{languages.tgt}"
    return cached_dataset(rows, key=_content_key(files, languages), name=name, cache_dir=cache_dir)


def _read_hub_split(
    dataset: Dataset, languages: Languages, split: str, where: str, cache_dir: Path
) -> Dataset:
    if not len(dataset):
        raise UserError(f"{where} has no rows: set data.path=DIR to read a local copy that has some")
    wanted = readers.wanted_columns(dataset.column_names, languages, where)

    def rows() -> Iterable[Row]:
        tables = dataset.select_columns(wanted).with_format("arrow").iter(_ROWS_OF_A_TABLE)
        located = readers.table_rows(tables, languages, where)
        return _watched((row for _, row in located), where, dataset.data.nbytes)

    parts = (_READER_VERSION, where, dataset._fingerprint, len(dataset), languages.src, languages.tgt)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    return cached_dataset(rows, key=key, name=f"{split}-{languages.src}-{languages.tgt}", cache_dir=cache_dir)


def _watched(rows: Iterable[Row], name: str, size: int) -> Iterable[Row]:
    """The rows, with their number on a terminal where there are many bytes of them."""
    # disable=None: no bar where nobody watches a terminal
    bar: Any = datasets.utils.tqdm(
        rows, desc=f"reading {name}", unit=" pairs", disable=None if size > _LONG_BYTES else True
    )
    return bar


def _content_key(files: Files, languages: Languages) -> str:
    """A digest of all that the rows follow from: the reader, the files' bytes and what is asked of them."""
    parts = [_READER_VERSION, files.form, languages.src, languages.tgt, languages.columns]
    for path in files.paths:
        parts.append(path.suffix == ".gz")
        parts.append(readers.digest(path))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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
    num_train: Count,
    num_val: Count,
    num_test: Count,
    min_words: Count,
    max_words: Count,
    seed: Whole,
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
