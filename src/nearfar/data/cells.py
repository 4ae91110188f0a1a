"""The cells of a table whose columns are not all numbers, and what the cells of one column mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import is_missing

FAILED = ("#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
"""What programs write for the result of a formula that fails."""
MISSING = (
    *("", None, "NA", "N/A", "n/a", "NULL", "null", "None", "<NA>", "#N/A", "#NA", "NaN", "nan", "NAN", "NaT"),
    *FAILED,
)
"""What programs write for a missing cell, besides NaN."""
UNKNOWN = ("unknown", "missing", "na", "n.a.", "n/a", "nan", "not available", "no data", "undefined", "tbd", "tba")
DASHES = ("-", "--", "---", "\u2013", "\u2014", "?", ".", "..", "...", *UNKNOWN)
"""What people write, in any case, for a missing cell in a column of numbers or dates; elsewhere, it is a word."""
LOGICAL = {"true": 1.0, "false": 0.0, "nan": np.nan}
ISO = "ISO"
IN_NUMBERS = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
WITH_NAMES = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y")
TIMES_OF_DAY = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", " %I:%M:%S%p")
FORMATS_OF_DATES = (ISO, *(day + time for time in TIMES_OF_DAY for day in (*IN_NUMBERS, *WITH_NAMES)))
"""How dates are written; ISO is 2024-05-17, also with a time, and %b the English name of a month or its beginning."""
SHORT_YEARS = tuple(written.replace("%Y", "%y") for written in FORMATS_OF_DATES[1:])
"""Dates without their century."""
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
FIELDS = {
    "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d{2})",
    "%m": r"(?P<m>\d{1,2})",
    "%b": r"(?P<b>[a-z]{3,9})\.?",
    "%d": r"(?P<d>\d{1,2})(?:st|nd|rd|th|\.)?",
    "%H": r"(?P<H>\d{1,2})",
    "%I": r"(?P<I>1[0-2]|0?[1-9])",
    "%M": r"(?P<M>\d{2})",
    "%S": r"(?P<S>\d{2})",
    "%p": r"(?P<p>[ap])\.?m\.?",
    " ": r"\s+",
    ",": r",?",
    ".": r"\.",
}
"""How the parts of a format are written. `strptime` would read names of months in the language of the process."""
YEAR = r"(?:1[5-9]|20|21)\d\d"
DAY_OF_MONTH = r"\d\d?(?:\.|[a-z]{2})?"
WORD = r"[^\W\d]{3,}\.?"
SEEMS_DATE = re.compile(
    rf"(?:{YEAR}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2{YEAR}|{WORD} {DAY_OF_MONTH},? {YEAR}"
    rf"|{DAY_OF_MONTH}(?: de)?[ -]{WORD},?(?: de)?[ -]{YEAR})(?:[ T,].*)?",
    re.IGNORECASE,
)
"""What seems to be a date to people, also with names of months in other languages."""
SOME_CELLS = 1000  # different cells that tell whether a column seems to hold dates
LONGEST_DATE = 40  # characters
CELL = 8  # bytes that a number, or the place of a text, takes in memory
DAY = 86_400.0  # seconds


@dataclass(frozen=True, eq=False)
class Cells:
    """Columns of a table as they were read.

    Parameters
    ----------
    columns : mapping of str to ndarray of object, shape (n,)
        Cells of each column: text, numbers, dates, None.
    why : str
        Message on why they are not rows of numbers.
    """

    columns: Mapping[str, NDArray[Any]]
    why: str

    def subset(self, chosen: NDArray[np.int64]) -> Cells:
        """Return the cells of some rows."""
        return replace(self, columns={name: column[chosen] for name, column in self.columns.items()})

    def joined(self, other: Cells) -> Cells:
        """Return the rows of both tables in the columns of this one; cells that the other lacks are missing."""
        n = len(next(iter(other.columns.values())))
        nothing = np.full(n, None, dtype=object)
        joined = {name: np.append(column, other.columns.get(name, nothing)) for name, column in self.columns.items()}
        return replace(self, columns=joined)


def as_cells(column: Sequence[Any]) -> NDArray[Any]:
    """Return a column as an array of objects, shape (n,)."""
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


def is_empty(cell: Any) -> bool:
    """Return whether a cell is missing.

    >>> is_empty(""), is_empty(None), is_empty(float("nan")), is_empty(0)
    (True, True, True, False)
    """
    return is_missing(cell) or (isinstance(cell, str) and cell in MISSING)


def is_dash(cell: Any) -> bool:
    """Return whether a cell is how people write a missing number or date."""
    return isinstance(cell, str) and cell.strip().lower() in DASHES


def numbers_in(column: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64] | None:
    """Return a column (n,) of numbers, or of true and false, else None. An empty cell is a missing number."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column
    try:
        found = np.array(column, dtype=np.float64)  # of most columns, because few have empty cells
    except (TypeError, ValueError, OverflowError):
        values = ["nan" if is_empty(value) else value for value in column]
        try:
            found = np.array(values, dtype=np.float64)
        except OverflowError:  # integers in JSON may be arbitrarily large
            return None
        except (TypeError, ValueError):
            flags = [LOGICAL.get(str(value).lower()) for value in values]
            return None if None in flags else np.array(flags, dtype=np.float64)
    return found if found.ndim == 1 else None


def number_in(cell: Any) -> float:
    """Return the number in a cell, 1 or 0 for true or false, days for a duration; NaN if there is none."""
    if is_empty(cell):
        return np.nan
    if isinstance(cell, timedelta):
        return cell.total_seconds() / DAY
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return LOGICAL.get(str(cell).lower(), np.nan)


def days_in(column: Iterable[Any], written: str) -> NDArray[np.float64]:
    """Return the days since 1970-01-01 of each cell (n,); NaN for cells that are no dates of this format.

    >>> days_in(["1970-01-02", "1970-01-01T12:00", "soon"], ISO).tolist()
    [1.0, 0.5, nan]
    """
    known: dict[Any, float] = {}
    for cell in column:
        if not isinstance(cell, (str, date)):
            continue
        if cell not in known:
            known[cell] = _days(cell, written)
    return np.array([known.get(cell, np.nan) if isinstance(cell, (str, date)) else np.nan for cell in column])


def _days(cell: str | date, written: str) -> float:
    """Return the days since 1970-01-01, in the time zone of the cell; NaN if it is no date of this format."""
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif isinstance(cell, date):
            moment = datetime(cell.year, cell.month, cell.day)
        elif written == ISO:
            if len(cell.strip()) < len("2024-05-17"):
                return np.nan
            moment = datetime.fromisoformat(cell.strip())
        else:
            moment = moment_in(cell, written)
        return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / DAY
    except (ValueError, TypeError):  # the latter for NaT
        return np.nan


@cache
def pattern_of(written: str) -> re.Pattern[str]:
    """Return the expression of dates in a format."""
    parts = re.findall("%.|.", written)
    return re.compile("".join(FIELDS.get(part, part) for part in parts), re.IGNORECASE | re.ASCII)


def moment_in(cell: str, written: str) -> datetime:
    """Return the moment that a cell names in a format with English names of months; raise a ValueError if it is none.

    >>> moment_in("Sept 3 2024 5:30 pm", "%b %d, %Y %I:%M %p").isoformat()
    '2024-09-03T17:30:00'
    """
    found = pattern_of(written).fullmatch(cell.strip())
    if found is None:
        raise ValueError(f"expected a date written like {written}, got {cell!r}")
    parts = found.groupdict("0")
    if "b" in parts:
        named = [number for number, month in enumerate(MONTHS, 1) if month.startswith(parts["b"].lower())]
        month = named[0] if named else 0
    else:
        month = int(parts["m"])
    year = int(parts["Y"]) if "Y" in parts else int(parts["y"]) + (1900 if parts["y"] >= "69" else 2000)
    hour = int(parts.get("H", 0))
    if "p" in parts:
        hour = int(parts["I"]) % 12 + (12 if parts["p"].lower() == "p" else 0)
    return datetime(year, month, int(parts["d"]), hour, int(parts.get("M", 0)), int(parts.get("S", 0)))


def unread_date(column: Sequence[Any] | NDArray[Any]) -> tuple[str, str] | None:
    """Return a cell of a column that seems to hold dates which is not read, and one that is, or "" if none is.

    None if fewer than half of its cells seem to be dates.

    >>> unread_date(["2024-05-17", "18/05/2024", "2024-05-19"]), unread_date(["17. Mai 2024"]), unread_date(["red"])
    (('18/05/2024', '2024-05-17'), ('17. Mai 2024', ''), None)
    """
    if not _are_hashable(column):
        return None
    cells = [str(cell) for cell in dict.fromkeys(column) if not is_empty(cell)][:SOME_CELLS]
    seem = [cell for cell in cells if len(cell) <= LONGEST_DATE and SEEMS_DATE.fullmatch(cell.strip())]
    if not seem or 2 * len(seem) < len(cells):
        return None
    read = {written: np.isfinite(days_in(cells, written)) for written in FORMATS_OF_DATES}
    best = max(read.values(), key=np.count_nonzero)
    if best.all():
        return None
    shown = cells[int(best.argmax())] if best.any() else ""
    unread = [cell for cell, known in zip(cells, best, strict=True) if not known]
    return next((cell for cell in unread if cell in seem), unread[0]), shown


def formats_of(column: Sequence[Any] | NDArray[Any]) -> list[str]:
    """Return the formats in which all cells of a column that are not missing are dates.

    >>> formats_of(["17.05.2024", ""]), formats_of(["05/04/2024"]), formats_of(["20240517"])
    (['%d.%m.%Y'], ['%d/%m/%Y', '%m/%d/%Y'], [])
    >>> formats_of(["May 17, 2024 5:30 PM", "sept 3rd 2024 5:30 am"])
    ['%b %d, %Y %I:%M %p']
    """
    given = {cell for cell in column if not is_empty(cell)} if _are_hashable(column) else set()
    if not given or not all(isinstance(cell, date) or _may_be_date(cell) for cell in given):
        return []
    found = []
    for written in FORMATS_OF_DATES:
        if all(_days(cell, written) == _days(cell, written) for cell in given):
            found.append(written)
    return found


def _may_be_date(cell: Any) -> bool:
    return isinstance(cell, str) and len(cell) <= LONGEST_DATE and not cell.isdigit() and any(map(str.isdigit, cell))


def readings_of_dates(column: Sequence[Any] | NDArray[Any]) -> list[str]:
    """Return the formats in which a column of dates can be read, two if these are different days.

    >>> readings_of_dates(["05/04/2024"]), readings_of_dates(["05/05/2024"])
    (['%d/%m/%Y', '%m/%d/%Y'], ['%d/%m/%Y'])
    """
    formats = formats_of(column)
    if len(formats) > 1 and set(days_in(column, formats[0])) == set(days_in(column, formats[1])):
        return formats[:1]
    return formats[:2]


def have_short_years(column: Sequence[Any] | NDArray[Any]) -> bool:
    """Return whether the cells of a column are dates without their century.

    >>> have_short_years(["12/15/00", "1/31/99"]), have_short_years(["12/15/2000"])
    (True, False)
    """
    texts = {cell for cell in column if isinstance(cell, str)}
    if not texts or len(texts) < len(set(map(str, column))):
        return False
    return any(all(_days(text, written) == _days(text, written) for text in texts) for written in SHORT_YEARS)


def _are_hashable(column: Sequence[Any] | NDArray[Any]) -> bool:
    """Return whether no cell is a list or an object of JSON."""
    return not any(isinstance(cell, (list, dict, np.ndarray)) for cell in column)
