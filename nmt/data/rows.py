"""Read the rows of a corpus from files in each format. Errors name the file and the line or row."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nmt.alignment import SEPARATOR
from nmt.data.layout import Files, Languages, some
from nmt.data.lines import opened, read_lines
from nmt.errors import UserError

Row = tuple[str, str] | tuple[str, str, str]  # source, target and, in all rows or in none, the alignment


# datasets.load_dataset would be shorter, but does not keep text: its JSON reader rewrites dates, its CSV reader fills
# short rows up, its text reader ends lines at a lone \r. None of them says in which line of the file an error is.
def read_rows(shards: Iterable[Files], languages: Languages, most: int | None = None) -> Iterator[Row]:
    """The rows of each shard in turn, at most `most` of each, with the text exactly as in the file.

    Raises UserError for what is not text in both languages, for alignments in some rows only, and where there are no
    rows.
    """
    width = 0
    for shard in shards:
        for where, row in islice(_located_rows(shard, languages), most):
            if width not in (0, len(row)):
                raise UserError(f"{where}: some rows have an alignment and others have none")
            width = len(row)
            yield row
    if not width:
        raise UserError(f"{shard.paths[0]}: the split has no rows")


def _located_rows(shard: Files, languages: Languages) -> Iterator[tuple[str, Row]]:
    """The rows of a shard, each with its place for messages."""
    path = shard.paths[0]
    match shard.form:
        case "text":
            return _text_rows(shard.paths, languages)
        case ".jsonl":
            return _json_rows(path, languages)
        case ".parquet":
            return _parquet_rows(path, languages)
        case ".tsv":
            return _cell_rows(_tsv_cells(path), languages)
        case _:
            return _cell_rows(_csv_cells(path), languages)


def _text_rows(paths: Sequence[Path], languages: Languages) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(zip_longest(*map(read_lines, paths)), 1):
        if None in row:
            counts = [f"{path} has {sum(1 for _ in read_lines(path)):,}" for path in paths]
            raise UserError(f"line counts differ: {', '.join(counts)}; line i of each must belong together")
        where = f"{paths[-1]}, line {number}"
        yield where, _aligned(row, languages, where)


def _json_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
        yield where, _from_mapping(row, languages, where)


def _tsv_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(read_lines(path), 1):
        yield f"{path}, line {number}", line.split("\t")


def _csv_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(2**31 - 1)  # the default refuses a text of 131,072 characters
    reader = csv.reader(read_lines(path, with_ends=True), strict=True)
    begun = 1  # the line where a row begins; text in quotes may go on over several lines
    try:
        for cells in reader:
            yield f"{path}, line {begun}", cells
            begun = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {begun}: not CSV ({error})") from error


def _cell_rows(rows: Iterator[tuple[str, list[str]]], languages: Languages) -> Iterator[tuple[str, Row]]:
    """Rows whose columns are named by a header or, without one, by `data.columns`."""
    columns: Sequence[str] | None = None
    for where, cells in rows:
        if columns is None:
            is_header = {languages.src, languages.tgt} <= set(cells)
            columns = cells if is_header else languages.columns
            if columns is None:
                pair = ",".join(sorted((languages.src, languages.tgt)))
                raise UserError(
                    f"{where}: no header that names {languages.src} and {languages.tgt}: set "
                    f"data.columns=[{pair}] (in order), with data=files"
                )
            if len(set(columns)) < len(columns):
                raise UserError(f"{where}: a column is named twice: {','.join(columns)}")
            if is_header:
                continue
        if len(cells) != len(columns):
            expected = f"{len(columns)} columns ({', '.join(columns)})"
            raise UserError(f"{where}: expected {expected}, got {len(cells)}")
        yield where, _from_mapping(dict(zip(columns, cells, strict=True)), languages, where)


def _parquet_rows(path: Path, languages: Languages) -> Iterator[tuple[str, Row]]:
    try:
        with opened(path) as handle, pq.ParquetFile(handle) as table:
            wanted = wanted_columns(table.schema_arrow.names, languages, str(path))
            yield from table_rows(table.iter_batches(columns=wanted), languages, str(path))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path} is broken or no Parquet file ({str(error).splitlines()[0]})") from error


def wanted_columns(names: Sequence[str], languages: Languages, where: str) -> list[str]:
    """The columns of a table that hold text or alignments. Raises UserError where a language has none."""
    for lang in (languages.src, languages.tgt):
        if lang not in names and "translation" not in names:
            raise _no_language(lang, names, where)
    return [name for name in names if name in (languages.src, languages.tgt, "translation", "alignment")]


def table_rows(tables: Iterable[Any], languages: Languages, name: str) -> Iterator[tuple[str, Row]]:
    """The rows of Arrow tables or batches, each with its place in `name`."""
    rows = (row for table in tables for row in table.to_pylist())
    for number, row in enumerate(rows, 1):
        where = f"{name}, row {number}"
        yield where, _from_mapping(row, languages, where)


def _from_mapping(row: Any, languages: Languages, where: str) -> Row:
    """The row of `{"en": …, "de": …}` or `{"translation": {"en": …, "de": …}}`, perhaps with an `alignment`."""
    texts = row
    if isinstance(row, dict) and languages.src not in row:
        texts = row.get("translation", row)
    if not isinstance(texts, dict):
        raise UserError(f"{where}: not an object with text in each language")
    for lang in (languages.src, languages.tgt):
        if lang not in texts:
            raise _no_language(lang, list(texts), where)
    pair = [_text(texts[lang], lang, where) for lang in (languages.src, languages.tgt)]
    if "alignment" not in row:
        return pair[0], pair[1]
    return _aligned((*pair, _text(row["alignment"], "alignment", where)), languages, where)


def _text(value: Any, name: str, where: str) -> str:
    if isinstance(value, list):  # a document
        return f" {SEPARATOR} ".join(_text(each, name, where) for each in value)
    if not isinstance(value, str):
        raise UserError(f'{where}: "{name}" is {str(value)[:24]}, not text')
    if re.search("[\0\ud800-\udfff]", value):
        raise UserError(f'{where}: "{name}" holds a NUL character or half a surrogate pair')
    return value


def _aligned(row: tuple[str, ...], languages: Languages, where: str) -> Row:
    """The row with i of each link `i-j` (or `ipj`, a possible one) in the source and j in the target.

    Raises UserError for text that is no link, and for a link that is not between words of the row.
    """
    if len(row) == 2:
        return row
    src, tgt, line = row
    num_src, num_tgt = len(src.split()), len(tgt.split())
    links = []
    for link in line.split():
        match = re.fullmatch(r"([0-9]{1,9})([-p])([0-9]{1,9})", link)
        if match is None:
            raise UserError(f"{where}: alignment link {link[:24]!r} is not of the form i-j (or ipj)")
        i, kind, j = match.groups()
        if languages.alignments_flipped:
            i, j = j, i
        if int(i) >= num_src or int(j) >= num_tgt:
            words = f"{languages.src} has {num_src} words and {languages.tgt} {num_tgt}"
            raise UserError(
                f"{where}: alignment link {link} is out of range: {words}; see data.columns for the order"
            )
        links.append(f"{int(i)}{kind}{int(j)}")
    return src, tgt, " ".join(links)


def _no_language(lang: str, names: Sequence[str], where: str) -> UserError:
    there = some(names) or "none"
    return UserError(
        f'{where}: no "{lang}"; the names there are {there}: set data.src_lang and data.tgt_lang'
    )
