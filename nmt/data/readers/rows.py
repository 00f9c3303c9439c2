"""The rows of a corpus one by one, in each form. A fault is named by its line."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nmt.data.readers.layout import Files, Languages, some
from nmt.data.readers.lines import first_line, opened, read_lines, readable
from nmt.errors import UserError

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")

csv.field_size_limit(2**31 - 1)  # the default refuses a field above 128 KiB

Row = tuple[str, str] | tuple[str, str, str]  # source, target and, in all rows or in none, the alignment


def read_rows(files: Files, languages: Languages) -> Iterator[Row]:
    """The rows of a split in the asked direction, text exactly as in the file.

    Raises UserError, naming file and line, for what is not a row of text in both languages.
    """
    return read_shards(files.shards, languages)


def read_shards(shards: Iterable[Files], languages: Languages, most: int | None = None) -> Iterator[Row]:
    """As `read_rows`, of shards in the order in which they come, and of each its first `most` rows."""
    paths: list[Path] = []
    width = None
    for shard in shards:
        paths += shard.paths
        for where, row in islice(_located_rows(shard, languages), most):
            if width not in (None, len(row)):
                some = "no alignment, but the rows before it have one"
                raise UserError(
                    f"{where}: {some if width == 3 else 'an alignment, but the rows before it have none'}"
                )
            width = len(row)
            yield row
    if width is None:
        advice = "has no rows: put text into it or remove it"
        if len(paths) > len(shard.paths):
            advice = "and the shards beside it have no rows: put text into one of them"
        raise UserError(f"{paths[0]} {advice}")


def _located_rows(shard: Files, languages: Languages) -> Iterator[tuple[str, Row]]:
    """The rows of a shard, and where each of them stands."""
    if shard.form == "text":
        return _text_rows(shard.paths, languages)
    readers = {".jsonl": _json_rows, ".tsv": _tsv_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}
    return readers[shard.form](shard.paths[0], languages)


def _text_rows(paths: tuple[Path, ...], languages: Languages) -> Iterator[tuple[str, Row]]:
    row: Any
    for number, row in enumerate(zip_longest(*map(read_lines, paths)), 1):
        if None in row:
            if number == 1:  # a file without any line
                raise UserError(f"{paths[row.index(None)]} is empty: put text into it or remove it")
            counts = [f"{path} has {sum(1 for _ in read_lines(path)):,}" for path in paths]
            raise UserError(f"line counts differ: {', '.join(counts)}; line i of each must belong together")
        where = f"{paths[-1]}, line {number}"
        yield where, _aligned(row, languages, where)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises KeyError with what it names twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise KeyError(max(names, key=names.count))
    return row


_JSON = json.JSONDecoder(object_pairs_hook=_named_once)


def _json_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            row = _JSON.decode(line)
        except KeyError as error:
            raise UserError(f'{where}: the object names "{error.args[0][:24]}" twice') from error
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
                f"{where}: no header that says which column is which: set data.columns=[{pair}] (in order), "
                "with data=files"
            )
        if len(cells) != len(columns):
            raise UserError(f"{where}: {_count(cells)}, but expected {len(columns)} ({', '.join(columns)})")
        yield where, row_from_mapping(dict(zip(columns, cells, strict=True)), languages, where)


def _csv_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    reader = csv.reader(read_lines(path, with_ends=True), strict=True)
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
        raise UserError(f"{path}, line {begun}: not CSV ({first_line(error)})") from error


def _parquet_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    try:
        with readable(path), opened(path) as handle, pq.ParquetFile(handle) as table:
            wanted = wanted_columns(table.schema_arrow.names, languages, str(path))
            yield from table_rows(table.iter_batches(columns=wanted), languages, str(path))
    except pa.ArrowException as error:
        raise UserError(f"{path} is broken or no Parquet file ({first_line(error)})") from error


def wanted_columns(names: Sequence[str], languages: Languages, where: str) -> list[str]:
    """Those of a table's columns that `row_from_mapping` looks at. Raises UserError where a language is not there."""
    _check_names(names, where)
    if not {languages.src, languages.tgt} <= set(names) and "translation" not in names:
        raise _no_language(languages.tgt if languages.src in names else languages.src, names, where)
    wanted = {languages.src, languages.tgt, "translation", "alignment"}
    return [name for name in names if name in wanted]


def table_rows(tables: Iterable[Any], languages: Languages, name: str) -> Iterator[tuple[str, Row]]:
    """The rows of Arrow tables, or batches, one after another, and where each of them stands in `name`."""
    number = 0
    try:
        for table in tables:
            for row in table.to_pylist():
                number += 1
                where = f"{name}, row {number}"
                yield where, row_from_mapping(row, languages, where)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}, after row {number}: not UTF-8; write the file anew as UTF-8") from error


def row_from_mapping(row: Mapping[str, Any], languages: Languages, where: str) -> Row:
    """Source, target and alignment of `{"en": …, "de": …}` or `{"translation": {"en": …, "de": …}}`."""
    texts = row
    if not {languages.src, languages.tgt} & set(row) and "translation" in row:
        texts = row["translation"]
        if not isinstance(texts, dict):
            raise UserError(f'{where}: "translation" is a {_kind(texts)}, not an object')
    pair = []
    for lang in (languages.src, languages.tgt):
        if lang not in texts:
            raise _no_language(lang, [str(name) for name in texts], where)
        pair.append(_text(texts[lang], lang, where))
    if "alignment" not in row:
        return pair[0], pair[1]
    return _aligned((*pair, _text(row["alignment"], "alignment", where)), languages, where)


def _aligned(row: tuple[str, ...], languages: Languages, where: str) -> Row:
    """A row whose alignment, where it has one, is turned round as asked for, and sound."""
    src, tgt, *links = row
    return (src, tgt, _links(links[0], src, tgt, languages, where)) if links else (src, tgt)


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
        raise UserError(f"{where}: the header names a column twice: {some(names)}")


def _no_language(lang: str, names: Sequence[str], where: str) -> UserError:
    there = some(names) or "none"
    return UserError(
        f'{where}: no "{lang}"; the names there are {there}: set data.src_lang and data.tgt_lang'
    )


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _count(cells: Sequence[str]) -> str:
    return f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
