"""The files of a parallel corpus: where they are, and their rows one by one. A fault is named by its line."""

import codecs
import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nmt.errors import UserError

ALIASES = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")
_SHARD = r"-(\d+)-of-(\d+)(?:-[0-9a-f]+)?(\.parquet|(?:\.jsonl|\.tsv|\.csv)(?:\.gz)?)"
_UTF16_OR_32 = (
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_BE,
)  # BOM_UTF32_LE begins as UTF-16's
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")

csv.field_size_limit(2**31 - 1)  # the default refuses a field above 128 KiB

Row = tuple[str, str] | tuple[str, str, str]  # source, target and, in all rows or in none, the alignment


@dataclass(frozen=True)
class Languages:
    """What is asked of the files: a direction, and the order in which headerless columns and alignments come.

    columns: the names of a .tsv file's columns in order, or None. Raises UserError where they do not hold
    both languages, or the two languages are one.
    """

    src: str
    tgt: str
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.src == self.tgt:
            raise UserError(
                f"data.src_lang and data.tgt_lang are both {self.src}: set one of them to another"
            )
        columns = self.columns
        if columns is not None and not columns.count(self.src) == columns.count(self.tgt) == 1:
            named = ",".join(columns)
            raise UserError(f"data.columns=[{named}] must hold {self.src} and {self.tgt} once each")

    @property
    def alignments_flipped(self) -> bool:
        """Whether `i` of a link `i-j` in the files counts target words, by `columns`, else the alphabet."""
        order = self.columns if self.columns is not None else sorted((self.src, self.tgt))
        return order.index(self.tgt) < order.index(self.src)


@dataclass(frozen=True)
class Files:
    """The files of one split: source, target and perhaps alignment where `form` is text, else shards."""

    form: str
    paths: tuple[Path, ...]


def find(directory: Path, split: str, languages: Languages) -> Files | None:
    """The files of a split in a directory, or None where it has none.

    Raises UserError where there are several candidates, or one side of a pair of plain files only.
    """
    names = sorted(path.name for path in directory.iterdir())
    candidates: list[Files] = []
    halves: list[str] = []
    for alias in ALIASES[split]:
        for form in FORMATS:
            forms = (form,) if form == ".parquet" else (form, f"{form}.gz")
            found = [name for name in (f"{alias}{each}" for each in forms) if name in names]
            candidates += [Files(form, (directory / name,)) for name in found]
        candidates += _shards(directory, alias)
        sides = [
            [
                directory / f"{alias}.{ending}{packed}"
                for ending in endings
                for packed in ("", ".gz")
                if f"{alias}.{ending}{packed}" in names
            ]
            for endings in ((languages.src,), (languages.tgt,), ("align", "talp"))
        ]
        for paths in sides:
            if len(paths) > 1:
                raise UserError(f"{directory} has both {paths[0].name} and {paths[1].name}: keep one of them")
        if sides[0] and sides[1]:
            candidates.append(Files("text", tuple(path for paths in sides for path in paths)))
        elif sides[0] or sides[1]:
            halves.append(f"{alias}.{languages.tgt if sides[0] else languages.src}")
    if len(candidates) > 1:
        both = " and ".join(each.paths[0].name for each in candidates[:2])
        raise UserError(f"{directory} has both {both} for the {split} split: keep one of them")
    if halves and not candidates:
        raise UserError(f"{directory} has no {halves[0]}{_there(names, ALIASES[split])}")
    return candidates[0] if candidates else None


def missing(directory: Path, split: str, languages: Languages) -> UserError:
    """The error for a split that is not there: what was looked for, and what is."""
    names = sorted(path.name for path in directory.iterdir())
    alias = ALIASES[split][0]
    looked = ", ".join(f"{alias}{form}" for form in FORMATS)
    pair = f"{alias}.{languages.src} with {alias}.{languages.tgt}"
    also = f" (or {', '.join(ALIASES[split][1:])} for {alias})" if len(ALIASES[split]) > 1 else ""
    return UserError(f"{directory} has no {looked}, nor {pair}{also}{_there(names, ALIASES[split])}")


def _there(names: list[str], aliases: Sequence[str]) -> str:
    """What a directory holds, and the languages of its plain files."""
    endings = {ending for form in FORMATS for ending in (form, f"{form}.gz")} | {".align", ".talp"}
    langs = sorted(
        {
            name.removesuffix(".gz").partition(".")[2]
            for name in names
            if name.partition(".")[0] in aliases and f".{name.partition('.')[2]}" not in endings
        }
        - {"align", "talp", ""}
    )
    there = f"; it holds {_some(names)}" if names else "; it is empty"
    advice = f"; its languages are {', '.join(langs)}: set data.src_lang and data.tgt_lang" if langs else ""
    return there + (advice or "; set data.path to the folder of the data")


def _shards(directory: Path, alias: str) -> list[Files]:
    """The Hub's own layout: train-00000-of-00002.parquet (or .jsonl.gz, …), in the directory or in its data/."""
    found = []
    for folder in (directory, directory / "data"):
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        matches = [(path, re.fullmatch(re.escape(alias) + _SHARD, path.name)) for path in entries]
        for ending in sorted({match[3] for _, match in matches if match}):
            shards = [(path, int(m[1]), int(m[2])) for path, m in matches if m and m[3] == ending]
            if [number for _, number, _ in shards] != list(range(shards[0][2])):
                names = _some([path.name for path, _, _ in shards])
                raise UserError(f"{folder} should hold {shards[0][2]} shards of {alias}, but has {names}")
            found.append(Files(ending.removesuffix(".gz"), tuple(path for path, _, _ in shards)))
    return found


def read_rows(files: Files, languages: Languages) -> Iterator[Row]:
    """The rows of a split in the asked direction, text exactly as in the file.

    Raises UserError, naming file and line, for what is not a row of text in both languages.
    """
    empty = True
    readers = {".jsonl": _json_rows, ".tsv": _tsv_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}
    iterators = (
        [_text_rows(files.paths)]
        if files.form == "text"
        else [readers[files.form](path, languages) for path in files.paths]
    )
    width = None
    for rows in iterators:
        for where, row in rows:
            if len(row) == 3:
                row = (row[0], row[1], _links(row[2], row[0], row[1], languages, where))
            if width not in (None, len(row)):
                some = "no alignment, but the rows before it have one"
                raise UserError(
                    f"{where}: {some if width == 3 else 'an alignment, but the rows before it have none'}"
                )
            width = len(row)
            empty = False
            yield row
    if empty:
        raise UserError(f"{files.paths[0]} has no rows: put text into it or remove it")


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or .gz, without their ends: only \n and \r\n end a line."""
    with _readable(path), _open(path) as handle:
        for number, line in enumerate(handle, 1):
            where = f"{path}, line {number}"
            if number == 1:
                if line.startswith(_UTF16_OR_32):
                    raise UserError(
                        f"{path} is UTF-16 or UTF-32: convert it to UTF-8, as by iconv -f UTF-16 -t UTF-8"
                    )
                line = line.removeprefix(codecs.BOM_UTF8)
                if not line:  # nothing but a byte order mark
                    continue
            if b"\0" in line:
                raise UserError(f"{where}: a NUL byte; the file must be UTF-8 text, not UTF-16 or binary")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
                raise UserError(f"{where}: not UTF-8 ({byte}); convert the file to UTF-8") from error
            if text.endswith("\n"):
                text = text[:-1].removesuffix("\r")
            yield text


def digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with _readable(path):
        if path.is_dir():
            raise UserError(f"{path} is a directory, but a file is expected there")
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()


def _text_rows(paths: tuple[Path, ...]) -> Iterator[tuple[str, Row]]:
    row: Any
    for number, row in enumerate(zip_longest(*map(read_lines, paths)), 1):
        if None in row:
            if number == 1:  # a file without any line
                raise UserError(f"{paths[row.index(None)]} is empty: put text into it or remove it")
            counts = [f"{path} has {sum(1 for _ in read_lines(path)):,}" for path in paths]
            raise UserError(f"line counts differ: {', '.join(counts)}; line i of each must belong together")
        yield f"{paths[-1]}, line {number}", row


def _json_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
        except (RecursionError, ValueError) as error:  # Python reads no number of more than 4,300 digits
            what = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
            raise UserError(f"{where}: not a JSON object of texts ({what})") from error
        if not isinstance(row, dict):
            raise UserError(
                f"{where}: a JSON {_kind(row)}, but each line must be an object with text in each language"
            )
        yield where, row_from_mapping(row, languages, where)


def _tsv_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    columns: Sequence[str] | None = languages.columns
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        cells = line.split("\t")
        if number == 1 and {languages.src, languages.tgt} <= set(cells):
            if columns is not None and list(columns) != cells:
                raise UserError(
                    f"{where}: the header is {','.join(cells)}, but data.columns=[{','.join(columns)}]"
                )
            _check_names(cells, where)
            columns = cells
            continue
        if columns is None:
            pair = ",".join(sorted((languages.src, languages.tgt)))
            raise UserError(
                f"{where}: no header that says which column is which: set data.columns=[{pair}] (in order)"
            )
        if len(cells) != len(columns):
            raise UserError(f"{where}: {_count(cells)}, but expected {len(columns)} ({', '.join(columns)})")
        yield where, row_from_mapping(dict(zip(columns, cells, strict=True)), languages, where)


def _csv_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    header: list[str] | None = None
    begun = 1  # where the row begins: after a quote that nothing closes, it goes on to the end of the file
    try:
        for cells in reader:
            where = f"{path}, line {begun}"
            begun = reader.line_num + 1
            if header is None:
                header = cells
                _check_names(header, where)
                if not {languages.src, languages.tgt} <= set(header):
                    names = f"names the columns {','.join(header)}"
                    needed = f"{languages.src} and {languages.tgt}"
                    raise UserError(f"{where}: the header {names}, but {needed} are needed")
                continue
            if len(cells) != len(header):
                raise UserError(f"{where}: {_count(cells)}, but expected {len(header)} ({', '.join(header)})")
            yield where, row_from_mapping(dict(zip(header, cells, strict=True)), languages, where)
    except csv.Error as error:
        raise UserError(f"{path}, line {begun}: not CSV ({_first_line(error)})") from error


def _parquet_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    number = 0
    try:
        with _readable(path), _open(path) as handle, pq.ParquetFile(handle) as table:
            wanted = {languages.src, languages.tgt, "translation", "alignment"}
            present = table.schema_arrow.names
            _check_names(present, str(path))
            if not {languages.src, languages.tgt} <= set(present) and "translation" not in present:
                absent = languages.tgt if languages.src in present else languages.src
                raise _no_language(absent, present, str(path))
            for batch in table.iter_batches(columns=[name for name in present if name in wanted]):
                for row in batch.to_pylist():
                    number += 1
                    where = f"{path}, row {number}"
                    yield where, row_from_mapping(row, languages, where)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, after row {number}: not UTF-8; write the file anew as UTF-8") from error
    except pa.ArrowException as error:
        raise UserError(f"{path} is broken or no Parquet file ({_first_line(error)})") from error


def row_from_mapping(row: Mapping[str, Any], languages: Languages, where: str) -> Row:
    """Source, target and alignment of `{"en": …, "de": …}` or `{"translation": {"en": …, "de": …}}`."""
    texts = row
    if not {languages.src, languages.tgt} & set(row) and isinstance(row.get("translation"), dict):
        texts = row["translation"]
    pair = []
    for lang in (languages.src, languages.tgt):
        if lang not in texts:
            raise _no_language(lang, [str(name) for name in texts], where)
        pair.append(_text(texts[lang], lang, where))
    if "alignment" not in row:
        return pair[0], pair[1]
    return pair[0], pair[1], _text(row["alignment"], "alignment", where)


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f'{where}: "{name}" is a {_kind(value)}, not text')
    if "\0" in value:
        raise UserError(f'{where}: "{name}" holds a NUL character')
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f'{where}: "{name}" holds half a surrogate pair, which is no character') from error
    return value


def _links(line: str, src: str, tgt: str, languages: Languages, where: str) -> str:
    """An alignment with i in the source and j in the target, checked against both word counts.

    Links are sure, `i-j`, or possible, `ipj`.
    """
    links = []
    for link in line.split():
        match = _LINK.fullmatch(link)
        if match is None:
            raise UserError(f"{where}: alignment link {link[:24]!r} is not of the form i-j (or ipj)")
        i, kind, j = int(match[1]), match[2], int(match[3])
        links.append((j, kind, i) if languages.alignments_flipped else (i, kind, j))
    num_src, num_tgt = len(src.split()), len(tgt.split())
    for i, kind, j in links:
        if i >= num_src or j >= num_tgt:
            link = f"{j}{kind}{i}" if languages.alignments_flipped else f"{i}{kind}{j}"
            words = f"{languages.src} has {num_src} words and {languages.tgt} {num_tgt}"
            raise UserError(
                f"{where}: alignment link {link} is out of range: {words}; see data.columns for the order"
            )
    return " ".join(f"{i}{kind}{j}" for i, kind, j in links)


def _check_names(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        raise UserError(f"{where}: the header names a column twice: {_some(names)}")


def _no_language(lang: str, names: Sequence[str], where: str) -> UserError:
    there = _some(names) or "none"
    return UserError(
        f'{where}: no "{lang}"; the names there are {there}: set data.src_lang and data.tgt_lang'
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _count(cells: Sequence[str]) -> str:
    return f"{len(cells)} column{'' if len(cells) == 1 else 's'}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _open(path: Path) -> BinaryIO:
    if path.is_dir():
        raise UserError(f"{path} is a directory, but a file is expected there")
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a UserError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is broken, cut off or no gzip file ({_first_line(error)})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read it ({error.strerror or _first_line(error)})") from error
