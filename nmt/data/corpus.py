"""Read parallel text from files, the Hub or the built-in grammar as memory-mapped `datasets`, cached by content.

Every split has the columns `src` and `tgt`: the text unchanged, blank lines included. Further references are in the
column `references`. Word alignments are in the column `alignment`: Pharaoh links `i-j` over whitespace words from 0, i
in the source.
"""

import collections
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import datasets
import huggingface_hub
from datasets import Dataset
from pydantic import Field

from nmt.alignment import SEPARATOR, format_pharaoh
from nmt.config.types import SPLITS, Count, Whole
from nmt.data import formats, grammar
from nmt.data.cache import cached_dataset
from nmt.data.find import ALIASES, Files, Languages, find, missing_split_error
from nmt.data.formats import Row
from nmt.data.streaming import TextStream
from nmt.errors import UserError, reason_of
from nmt.lines import digest_file, read_lines

_READER_VERSION = 4  # raise it when the same files give other rows
# Limits of the built-in text: it is generated in memory
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Length = Annotated[int, Field(ge=1, le=200)]
_ROWS_OF_A_TABLE = 1_000  # of the Hub's

BadRows = Literal["stop", "skip"]


def read_files(
    path: str | Path,
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    columns: Sequence[str] | None = None,
    streaming: Count | None = None,
    bad_rows: BadRows = "stop",
    splits: Sequence[str] = SPLITS,
) -> dict[str, Any]:
    """The splits in the folder `path`: train; val (or valid, validation, dev); test.

    A split is a .jsonl or .json (keys named by language, or a `translation` object), a .tsv, .csv or .parquet, or two
    plain files such as train.de and train.en, perhaps with train.align. `find.find` describes further names. All may be
    .gz, .xz or .bz2. All but plain files may be shards (train-00000-of-00002.jsonl). With `streaming`, train is a
    TextStream. `columns` names the columns of a .tsv or .csv without a header, or gives the column or key of each
    language. In the files, links `i-j` count words of the first and the second of `columns`, by default of the
    languages in alphabetical order (en before vi). Returned links count source words first. Raises UserError naming
    file and line if text is not sound. If `bad_rows` is skip, bad rows are left out with a warning.
    """
    directory = Path(path).expanduser()
    languages = Languages(str(src_lang), str(tgt_lang), None if columns is None else tuple(map(str, columns)))
    if not directory.is_dir():
        raise UserError(
            f"{directory} is no folder: set data.path to the one with the train, val and test files"
        )
    found = {split: files for split in splits if (files := find(directory, split, languages))}
    if not found or ("train" in splits and "train" not in found):
        raise missing_split_error(directory, splits[0], languages)
    return {
        split: TextStream(files, languages, skip_bad=bad_rows == "skip")
        if streaming is not None and split == "train"
        else _read_split(files, languages, split, cache_dir, skip_bad=bad_rows == "skip")
        for split, files in found.items()
    }


def _read_split(
    files: Files, languages: Languages, split: str, cache_dir: str | Path, *, skip_bad: bool
) -> Dataset:
    parts = [files.form, languages, skip_bad, *((path.suffix, digest_file(path)) for path in files.paths)]
    calls = []

    def rows() -> Iterator[Row]:
        calls.append(split)
        return formats.read_rows(files.shards, languages, skip_bad=skip_bad)

    dataset = cached_dataset(rows, key=_key(*parts), split=split, cache_dir=cache_dir)
    if skip_bad and not calls:  # it was cached: read it for the warning
        collections.deque(rows(), maxlen=0)
    return with_references(dataset, read_references(files.references, len(dataset)))


def read_references(paths: Iterable[Path], number: int) -> list[list[str]]:
    """Lines of the files of references. Raises UserError for a file without exactly `number` lines."""
    sets = []
    for path in paths:
        sets.append(list(read_lines(path)))
        if len(sets[-1]) != number:
            raise UserError(
                f"{path} has {len(sets[-1]):,} lines for {number:,} sentences: line i is of sentence i"
            )
    return sets


def with_references(dataset: Dataset, sets: list[list[str]]) -> Dataset:
    """Add further sets of references as the column `references`, a list per row."""
    rows = [list(row) for row in zip(*sets, strict=True)]
    return dataset.add_column("references", rows) if sets else dataset


def _key(*parts: Any) -> str:
    """A digest of everything that determines the rows."""
    return hashlib.sha256(repr((_READER_VERSION, *parts)).encode()).hexdigest()


def _generated_splits(
    generate: Callable[..., dict[str, list[Any]]],
    settings: dict[str, int],
    row: Callable[..., Row],
    languages: tuple[Any, ...],
    splits: Sequence[str],
    cache_dir: str | Path,
) -> dict[str, Dataset]:
    """Splits of a built-in corpus: each example of `generate(**settings)` as `row(example, *languages)`.

    The corpus is generated once, and only if a split is not cached.
    """
    for split in splits:
        if split not in SPLITS:
            raise UserError(f"split={split}: the built-in corpus has {', '.join(SPLITS)}")
    generated = functools.cache(lambda: generate(**settings))

    def split_rows(split: str) -> Iterator[Row]:
        return (row(example, *languages) for example in generated()[split])

    key = _key(*map(digest_file, _grammar_sources()), *languages, settings)
    return {
        split: cached_dataset(functools.partial(split_rows, split), key=key, split=split, cache_dir=cache_dir)
        for split in splits
    }


def read_grammar(
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    num_train: Size,
    num_val: Size,
    num_test: Size,
    min_words: Length = grammar.MIN_WORDS,
    max_words: Length,
    seed: Whole,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """The built-in English–Vietnamese corpus, generated once per setting, then cached.

    Between the two languages it has gold alignments. `tgt_lang` may also be `core`, the main clause in English, or
    `kind`, the type of that clause (past, open question, …), both without alignments. No source occurs twice.
    """
    targets = (*grammar.LANGUAGES, *grammar.ANNOTATIONS)
    for key, lang, known in (("src_lang", src_lang, grammar.LANGUAGES), ("tgt_lang", tgt_lang, targets)):
        if lang not in known:
            raise UserError(f"data.{key}={lang}: the built-in corpus has {' and '.join(known)}")
    settings = {
        "num_train": num_train,
        "num_val": num_val,
        "num_test": num_test,
        "min_words": min_words,
        "max_words": max_words,
        "seed": seed,
    }
    return _generated_splits(
        grammar.corpus, settings, _grammar_row, (Languages(src_lang, tgt_lang),), splits, cache_dir
    )


def read_documents(
    *,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    num_train: Size,
    num_val: Size,
    num_test: Size,
    min_sentences: Length,
    max_sentences: Length,
    seed: Whole,
    splits: Sequence[str] = SPLITS,
) -> dict[str, Dataset]:
    """Documents of the built-in grammar, their sentences joined by ¶, generated once per setting, then cached.

    `tgt_lang` is `label`, the tense of the only negative sentence, or `summary`, the English main clauses of the
    negative sentences (1 or 2). The alignment links a target word, as possible, to all words of its sentence.
    """
    if src_lang not in grammar.LANGUAGES or tgt_lang not in ("label", "summary"):
        raise UserError(
            f"data.src_lang={src_lang} data.tgt_lang={tgt_lang}: documents are in {' or '.join(grammar.LANGUAGES)}, "
            "their targets are label or summary"
        )
    settings = {
        "num_train": num_train,
        "num_val": num_val,
        "num_test": num_test,
        "min_sentences": min_sentences,
        "max_sentences": max_sentences,
        "most_important": 1 if tgt_lang == "label" else 2,
        "seed": seed,
    }
    languages = src_lang, tgt_lang
    return _generated_splits(grammar.documents, settings, _document_row, languages, splits, cache_dir)


def _document_row(document: grammar.GrammarDocument, src_lang: str, tgt_lang: str) -> Row:
    texts = [getattr(each, src_lang) for each in document.sentences]
    if tgt_lang == "label":
        targets = [document.label]
    else:
        targets = [document.sentences[number].core for number in document.important]
    links, num_before = [], 0
    for number, target in zip(document.important, targets, strict=True):
        begin = sum(len(text.split()) + 1 for text in texts[:number])  # with the separators
        words = range(begin, begin + len(texts[number].split()))
        places = range(num_before, num_before + len(target.split()))
        links += [f"{i}p{j}" for j in places for i in words]
        num_before += len(places)
    return f" {SEPARATOR} ".join(texts), " ".join(targets), " ".join(links)


def _grammar_sources() -> list[Path]:
    """The files that determine the built-in text: a changed rule or word gives another corpus."""
    folder = Path(grammar.__file__).parent
    return sorted([*folder.glob("*.py"), *folder.glob("words/*.tsv")])


def _grammar_row(pair: grammar.Pair, languages: Languages) -> Row:
    texts = getattr(pair, languages.src), getattr(pair, languages.tgt)
    if languages.tgt in grammar.ANNOTATIONS:
        return texts
    links = [(j, i) if languages.alignments_flipped else (i, j) for i, j in pair.alignment]
    return *texts, format_pharaoh(links)


def read_hub(
    name: str,
    *,
    path: str | Path | None,
    config: str | None,
    src_lang: str,
    tgt_lang: str,
    cache_dir: str | Path,
    streaming: Count | None = None,
    bad_rows: BadRows = "stop",
    splits: Sequence[str] = SPLITS,
    only_cached: bool = False,
) -> dict[str, Any]:
    """The splits of the Hub's data set `name`, or of a local copy of its files at `path`.

    With `only_cached`, the Hub's copy in `cache_dir` is read without a connection. Columns are named by language, or a
    column `translation` holds both. Raises UserError if the Hub cannot be reached or lacks the data set or a language,
    and for a row that is not sound.
    """
    if path is not None and config is not None:
        raise UserError(f"data.config={config} is for the Hub, not for data.path={path}: leave it out")
    if path is not None:
        return read_files(
            path,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            cache_dir=cache_dir,
            streaming=streaming,
            bad_rows=bad_rows,
            splits=splits,
        )
    if streaming is not None:
        raise UserError(
            f"data.streaming={streaming}: the Hub's copy of {name} is loaded whole, set data.path=DIR"
        )
    languages = Languages(str(src_lang), str(tgt_lang))
    if only_cached and (not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) or Path(name).exists()):
        raise UserError(f"data.name={name} is no data set of the Hub, OWNER/NAME: give data.path=DIR")
    loaded = _load_hub(name, config, cache_dir, only_cached)
    result = {}
    for split in splits:
        for alias in ALIASES.get(split, (split,)):
            if alias in loaded and split not in result:
                where = f"{name}, split {alias}"
                result[split] = _read_hub_split(
                    loaded[alias], languages, split, where, cache_dir, skip_bad=bad_rows == "skip"
                )
    if not result or ("train" in splits and "train" not in result):
        raise UserError(f"{name} has no {splits[0]} split; its splits are {', '.join(map(str, loaded))}")
    return result


def _load_hub(name: str, config: str | None, cache_dir: str | Path, only_cached: bool) -> Any:
    """The splits of a data set, by the names that they have on the Hub. Raises UserError."""
    settings: tuple[Any, ...] = datasets.config, huggingface_hub.constants
    before = [each.HF_HUB_OFFLINE for each in settings]
    try:
        if only_cached or not _reaches_hub():  # read the cache: the client would try for 25 s
            for each in settings:
                each.HF_HUB_OFFLINE = True
        return datasets.load_dataset(name, config, cache_dir=str(cache_dir))
    except Exception as error:  # the network stack raises many unrelated types
        if only_cached:
            raise UserError(
                f"the run was trained on {name} of the Hub, which {cache_dir} has not: a run fetches nothing; "
                f"give data.path=DIR or data.cache_dir=DIR, or name the data: data.name={name} if you resume, "
                "else data=NAME"
            ) from error
        raise UserError(
            f"cannot load {name} from the Hub ({reason_of(error)}): set data.path=DIR to read a local copy, or "
            "data.config=NAME where it has several configurations"
        ) from error
    finally:
        for each, value in zip(settings, before, strict=True):
            each.HF_HUB_OFFLINE = value


def _reaches_hub() -> bool:
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=10)
    except Exception:  # as above
        return False
    return True


def _read_hub_split(
    dataset: Dataset,
    languages: Languages,
    split: str,
    where: str,
    cache_dir: str | Path,
    *,
    skip_bad: bool,
) -> Dataset:
    if not len(dataset):
        raise UserError(f"{where} has no rows: set data.path=DIR to read a local copy that has some")
    wanted = formats.wanted_columns(dataset.column_names, languages, where)

    def rows() -> Iterator[Row]:
        tables = dataset.select_columns(wanted).with_format("arrow").iter(_ROWS_OF_A_TABLE)
        return formats.sound_rows(formats.table_rows(tables, languages, where), where, skip_bad=skip_bad)

    key = _key(where, dataset._fingerprint, languages, skip_bad)
    return cached_dataset(rows, key=key, split=split, cache_dir=cache_dir)
