"""Read the rows of a corpus from files in each format. Errors name the file and the line or row."""

import codecs
import json
import logging
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nmt.alignment import SEPARATOR
from nmt.data.delimited import Cells, csv_cells, delimiter, is_quoted, tsv_cells
from nmt.data.find import Files, Languages, list_names
from nmt.errors import UserError
from nmt.lines import LONGEST_LINE, decode, open_unpacked, raw_lines, read_lines

log = logging.getLogger(__name__)

Row = tuple[str, str] | tuple[str, str, str]  # source, target and, in all rows or in none, alignment
Located = tuple[str, int, Row | UserError]  # `FILE, line`, its number, and the row or its error

_NUM_SHOWN = 10  # bad rows
_UNSOUND = re.compile("[\0\ud800-\udfff]")
_ROWS_AT_ONCE = 100  # of Parquet: a small file can hold a long text many times
_LARGEST_ARRAY = 2**28  # bytes of a JSON file that is read as a whole


# datasets.load_dataset would be shorter, but does not keep text: its JSON reader rewrites dates, its CSV reader fills
# short rows up, its text reader ends lines at a lone \r. None of them reports the line of an error.
def read_rows(
    shards: Iterable[Files], languages: Languages, most: int | None = None, *, skip_bad: bool = False
) -> Iterator[Row]:
    """Yield the rows of each shard in turn, at most `most` per shard, with the text exactly as in the file.

    Raises UserError for files that are not parallel text and, as `sound_rows` does, for bad rows.
    """
    shards = iter(shards)
    first = next(shards)
    located = (islice(located_rows(shard, languages), most) for shard in chain([first], shards))
    yield from sound_rows(chain.from_iterable(located), str(first.paths[0]), skip_bad=skip_bad)


def sound_rows(rows: Iterable[Located], name: str, *, skip_bad: bool = False) -> Iterator[Row]:
    """Yield the sound rows of `name`, and warn of bad rows: their number, the first places and the reasons.

    Unless `skip_bad`, no row follows the first bad row, and a UserError at the end takes the place of the warning.
    Raises UserError also if only some rows have alignments, and if no row is sound.
    """
    width = num_good = num_bad = 0
    first: dict[tuple[str, str], list[str]] = {}  # the numbers of the first bad rows by file and reason
    for place, number, row in rows:
        if isinstance(row, UserError):
            num_bad += 1
            if num_bad <= _NUM_SHOWN:
                first.setdefault((place, str(row)), []).append(str(number))
            continue
        num_good += 1
        if width != len(row):
            if width:
                raise UserError(f"{place} {number}: some rows have an alignment and others have none")
            width = len(row)
        if skip_bad or not num_bad:
            yield row
    found = "; ".join(
        f"{place}{'s'[: len(numbers) - 1]} {', '.join(numbers)}: {reason}"
        for (place, reason), numbers in first.items()
    )
    if num_bad > 1:
        found = f"{num_bad:,} bad rows: {found}{'; …' if num_bad > _NUM_SHOWN else ''}"
    if num_bad and num_good and skip_bad:
        log.warning("left out: %s", found)
    elif num_bad:
        raise UserError(f"{found}. To leave bad rows out: data.bad_rows=skip" if num_good else found)
    elif not num_good:
        raise UserError(f"{name}: the split has no rows")


def located_rows(shard: Files, languages: Languages) -> Iterator[Located]:
    """Yield the rows of a shard, sound or not, with their places."""
    path = shard.paths[0]
    match shard.form:
        case "text":
            return _text_rows(shard.paths, languages)
        case ".parquet":
            return _parquet_rows(path, languages)
        case ".json" if _is_array(path):
            return _item_rows(path, languages)
        case ".json" | ".jsonl":
            return _json_rows(path, languages)
        case ".tsv" if not is_quoted(path):
            return _cell_rows(path, tsv_cells(path), languages)
        case form:
            separator = "\t" if form == ".tsv" else delimiter(path, languages)
            return _cell_rows(path, csv_cells(path, separator), languages)


def _attempt(parse: Callable[..., Any], *arguments: Any) -> Any | UserError:
    try:
        return parse(*arguments)
    except UserError as error:
        return error
    except RecursionError:
        return UserError("lists in lists, too deep to read")


def _is_array(path: Path) -> bool:
    with open_unpacked(path) as handle:
        return handle.read(1000).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _text_rows(paths: Sequence[Path], languages: Languages) -> Iterator[Located]:
    places = [f"{path}, line" for path in paths]
    for number, lines in enumerate(zip_longest(*map(raw_lines, paths)), 1):
        if None in lines:
            for path in paths:  # UTF-16 has other line ends
                next(read_lines(path), None)
            counts = [f"{path} has {sum(1 for _ in raw_lines(path)):,}" for path in paths]
            raise UserError(f"line counts differ: {', '.join(counts)}; line i of each must belong together")
        place = places[-1]
        try:
            row: Row | UserError = _check_links(tuple(map(decode, lines)), languages)
        except UserError as error:
            row, broken = error, [isinstance(_attempt(decode, line), UserError) for line in lines]
            place = places[broken.index(True)] if any(broken) else place
        yield place, number, row


def _json_rows(path: Path, languages: Languages) -> Iterator[Located]:
    place = f"{path}, line"
    for number, line in enumerate(raw_lines(path), 1):
        yield place, number, _attempt(_json_row, line, languages)


def _json_row(line: bytes, languages: Languages) -> Row:
    text = decode(line)
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON ({error.msg} at column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # a number with too many digits, deeply nested lists
        raise UserError(f"not JSON that can be read ({error})") from error
    return _from_mapping(row, languages)


def _item_rows(path: Path, languages: Languages) -> Iterator[Located]:
    """Rows of a JSON array."""
    with open_unpacked(path) as handle:
        text = handle.read(_LARGEST_ARRAY + 1)
    if len(text) > _LARGEST_ARRAY:
        names = map(shlex.quote, (path.name, f"{path.name.partition('.json')[0]}.jsonl"))
        unpack = {".gz": "gzip -dc", ".xz": "xz -dc", ".bz2": "bzip2 -dc"}.get(path.suffix.lower(), "cat")
        command = "{} {} | jq -c '.[]' > {}".format(unpack, *names)
        raise UserError(f"{path}: an array of more than 256 MiB; make it lines: {command}")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    for number, item in enumerate(items, 1):
        yield f"{path}, item", number, _attempt(_from_mapping, item, languages)


def _cell_rows(path: Path, rows: Cells, languages: Languages) -> Iterator[Located]:
    """Rows of a table with columns named by a header or else by `data.columns`."""
    place, columns, wanted = f"{path}, line", list[str](), list[int]()
    for number, cells in rows:
        if isinstance(cells, UserError):
            yield place, number, cells
            continue
        if not columns:
            columns, wanted = _columns(cells, languages, f"{place} {number}")
            if languages.is_header(cells):
                continue
        if len(cells) == len(columns):
            yield place, number, _attempt(_check_links, tuple(cells[index] for index in wanted), languages)
        else:
            expected = f"{len(columns)} columns ({', '.join(columns)})"
            advice = ": name them all in data.columns" if languages.order and number == 1 else ""
            yield place, number, UserError(f"expected {expected}, got {len(cells)}{advice}")


def _columns(first: list[str], languages: Languages, where: str) -> tuple[list[str], list[int]]:
    """Names of the columns of a table, by its first row or `data.columns`, and the places of source, target and
    alignment.

    Without alignments there are two places. Raises UserError if the two languages are not named, or if a name occurs
    twice.
    """
    names = [name.casefold() for name in languages.names]
    if languages.is_header(first):
        columns = [cell.strip().casefold() for cell in first]
    elif languages.order:
        columns = [name.casefold() for name in languages.order]
        texts = [first[columns.index(name)] for name in names[:2] if len(first) == len(columns)]
        if texts and all(re.fullmatch(r"[A-Za-z_-]+", text.strip()) for text in texts):
            log.warning(
                "%s: %s and %s are read as a pair; if they are names of columns, set %s",
                *(where, *texts, languages.advice),
            )
    else:
        raise UserError(
            f"{where}: no header that names {' and '.join(languages.names[:2])}, but {list_names(first)}: if these are "
            f"names of columns, set {languages.advice}; if they are the first row, set "
            f"data.columns=[{','.join(sorted((languages.src, languages.tgt)))}] (in order), with data=files"
        )
    if any(columns.count(name) > 1 for name in names):
        raise UserError(f"{where}: a column is named twice: {','.join(first):.80}")
    return columns, [columns.index(name) for name in names if name in columns]


def _parquet_rows(path: Path, languages: Languages) -> Iterator[Located]:
    try:
        with open_unpacked(path) as handle, pq.ParquetFile(handle) as table:
            wanted = wanted_columns(table.schema_arrow.names, languages, str(path))
            batches = table.iter_batches(_ROWS_AT_ONCE, columns=wanted)
            yield from table_rows(batches, languages, str(path))
    except UserError:
        raise
    # A date that Python does not have is an OverflowError or a ValueError
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise UserError(f"{path} is broken or no Parquet file ({str(error).splitlines()[0]})") from error


def wanted_columns(names: Sequence[str], languages: Languages, where: str) -> list[str]:
    """Columns of a table with text or alignments. Raises UserError if a language has none."""
    for name in languages.names[:2]:
        if name not in names and "translation" not in names:
            raise UserError(f"{where}: {_no_language(name, names, languages)}")
    return [name for name in names if name in (*languages.names, "translation")]


def table_rows(tables: Iterable[Any], languages: Languages, name: str) -> Iterator[Located]:
    """Yield the rows of Arrow tables or batches with their places in `name`."""
    rows = (row for table in tables for row in table.to_pylist())
    for number, row in enumerate(rows, 1):
        yield f"{name}, row", number, _attempt(_from_mapping, row, languages)


def _from_mapping(row: Any, languages: Languages) -> Row:
    """The row of `{"en": …, "de": …}` or `{"translation": {"en": …, "de": …}}`, perhaps with an `alignment`."""
    src, tgt, alignment = languages.names
    texts = row
    if isinstance(row, dict) and src not in row:
        texts = row.get("translation", row)
    if not isinstance(texts, dict):
        raise UserError("not an object with text in each language")
    for name in (src, tgt):
        if name not in texts:
            raise UserError(_no_language(name, list(texts), languages))
    pair = _text(texts[src], src), _text(texts[tgt], tgt)
    if alignment not in row:
        return pair
    return _check_links((*pair, _text(row[alignment], alignment)), languages)


def _text(value: Any, name: str) -> str:
    if isinstance(value, list):  # a document
        return f" {SEPARATOR} ".join(_text(each, name) for each in value)
    if not isinstance(value, str):
        raise UserError(f'"{name}" is {str(value)[:24]}, not text')
    if len(value) > LONGEST_LINE:
        raise UserError(
            f'"{name}" has more than {LONGEST_LINE:,} characters: it must be a sentence or a document'
        )
    if _UNSOUND.search(value):
        raise UserError(f'"{name}" holds a NUL character or half a surrogate pair')
    return value


def _check_links(row: tuple[str, ...], languages: Languages) -> Row:
    """The row with i of each link `i-j` (or `ipj`, a possible link) in the source and j in the target.

    Raises UserError for text that is no link, and for a link outside the words of the row.
    """
    if len(row) == 2:
        return row
    src, tgt, line = row
    num_src, num_tgt = len(src.split()), len(tgt.split())
    links = []
    for link in line.split():
        match = re.fullmatch(r"([0-9]{1,9})([-p])([0-9]{1,9})", link)
        if match is None:
            raise UserError(f"alignment link {link[:24]!r} is not of the form i-j (or ipj)")
        i, kind, j = match.groups()
        if languages.alignments_flipped:
            i, j = j, i
        if int(i) >= num_src or int(j) >= num_tgt:
            words = f"{languages.src} has {num_src} words and {languages.tgt} {num_tgt}"
            raise UserError(
                f"alignment link {link} is out of range: {words}; see data.columns for the order; words count from 0"
            )
        links.append(f"{int(i)}{kind}{int(j)}")
    return src, tgt, " ".join(links)


def _no_language(name: str, names: Sequence[str], languages: Languages) -> str:
    there = list_names(names) or "none"
    return f'no "{name}"; the names there are {there}: set data.src_lang and data.tgt_lang, or {languages.advice}'
