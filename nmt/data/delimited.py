"""Read the cells of .csv and .tsv files, in the dialects that programs write."""

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nmt.data.find import Languages
from nmt.errors import UserError
from nmt.lines import LONGEST_LINE, decode, raw_lines

Cells = Iterator[tuple[int, list[str] | UserError]]  # line number of each row, and its cells or its error

_QUOTED = re.compile(rb'(?:(?<=\t)|^)"([^"]*(?:""[^"]*)*)"(?=\t|\r?\n?$)')  # a cell of a row
_NUM_TRIED = 20  # first lines that show the separator
_NUMBERS = b"\t\r\n 0123456789.-"


def tsv_cells(path: Path) -> Cells:
    """The cells of each line between its tabs; quotes are text."""
    for number, line in enumerate(raw_lines(path), 1):
        try:
            yield number, decode(line).split("\t")
        except UserError as error:
            yield number, error


def csv_cells(path: Path, separator: str) -> Cells:
    """The cells of each row. Cells in quotes may hold separators, ends of lines and doubled quotes.

    Raises UserError for a quote that is not closed, since it hides the rows after it.
    """
    csv.field_size_limit(LONGEST_LINE)
    faults: list[UserError] = []  # of the lines of a row; csv gets all lines, so as to know where a row ends

    def lines() -> Iterator[str]:
        for line in raw_lines(path):
            try:
                yield decode(line, keep_end=True)
            except UserError as error:
                faults.append(error)
                yield "" if len(line) > LONGEST_LINE else line.decode(errors="replace").replace("\0", "")

    reader = csv.reader(lines(), delimiter=separator, strict=True)
    begun = 1  # first line of a row
    while True:
        faults.clear()
        try:
            cells: list[str] | UserError = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > begun or "end of data" in str(error):
                raise UserError(f"{path}, line {begun}: not CSV, a quote is not closed ({error})") from error
            cells = UserError(f"not CSV ({error})")
        yield begun, faults[0] if faults else cells
        begun = reader.line_num + 1


def delimiter(path: Path, languages: Languages) -> str:
    """The separator of a .csv (comma, semicolon or tab), by its header or else by its first lines."""
    csv.field_size_limit(2 * _NUM_TRIED * LONGEST_LINE)  # a faulty line is no error here
    lines = [line.decode(errors="replace").replace("\r", " ") for line in islice(raw_lines(path), _NUM_TRIED)]

    def fit(separator: str) -> tuple[bool, int]:
        rows = list(csv.reader(lines, delimiter=separator)) or [[]]
        num_columns = len(languages.order or rows[0])
        has_columns = [len(row) == num_columns > 1 for row in rows]
        return languages.is_header(rows[0]), sum(has_columns)

    return max(",;\t", key=fit)


def is_quoted(path: Path) -> bool:
    """True if a .tsv has CSV's quotes, as pandas, R and spreadsheets write them; otherwise quotes are text.

    Conditions: every quote encloses a whole cell or is doubled inside such a cell; no cell holds both a tab and a line
    end; and either some cell needs its quotes (it holds a quote, a tab or a line end), or all cells but numbers have
    quotes.
    """
    row, is_open, is_needed, all_quoted = bytearray(), False, False, True
    for line in raw_lines(path):
        if not is_open and b'"' not in line:
            all_quoted = all_quoted and not line.strip(_NUMBERS)
            continue
        if not is_open:
            row = bytearray()
        row += line  # in place: a row may have many lines
        is_open ^= line.count(b'"') % 2 == 1
        if is_open and len(row) <= LONGEST_LINE:
            continue
        rest, cells = _QUOTED.sub(b"", row), _QUOTED.findall(row)
        if b'"' in rest or any(b"\t" in cell and b"\n" in cell for cell in cells):
            return False
        is_needed = is_needed or any(re.search(rb'["\t\n]', cell) for cell in cells)
        all_quoted = all_quoted and not rest.strip(_NUMBERS)
    return not is_open and (is_needed or (all_quoted and row != b""))
