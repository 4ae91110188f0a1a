"""Numbers as people write them in tables: 1,234.5 or 1.234,5, as money, with a unit, in brackets, or as h:mm.

A notation is an example of itself, with its unit: "$1,234.5", "1.234,5 kg", "1,234.5%", "1:30". It says which sign is
the decimal one; separators of thousands may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import time
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .cells import as_cells, is_dash, is_empty, number_in

Key = TypeVar("Key", str, int)

PLAIN = "1234.5"
"""What `float` reads."""
POINT = "1,234.5"
COMMA = "1.234,5"
HOURS = "1:30"
SECONDS = "1:30:00"

SPACES = " '\u2019\u00a0\u2009\u202f"  # also the apostrophe of Switzerland, and spaces that do not break a line
MINUS = "-\u2212"
MONEY = "$\u00a2-\u00a5\u20a0-\u20cf"  # cent to yen, and the block of signs of currencies
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|TRY|SGD|HKD"
TIMES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "bn": 1e9}
"""What an amount of money before these letters is multiplied by, such as in $5M beside $300K."""
LONGEST = 40  # characters of a number with its unit
LONGEST_GLUED = 3  # letters of a unit right behind a number: 12km, but not 2013FAIL
MOST_WAYS = 6  # in which a column of numbers is written; codes such as 12A and 7C have more
MOST_UNREAD = 0.05  # largest share of words such as "unknown" in a column of numbers
PARTS = re.compile(
    rf"(?P<sign>[{MINUS}+]?)\s?"
    rf"(?P<before>[A-Z]{{0,2}}[{MONEY}]|{CODES}|)\s?"
    rf"(?P<inner>[{MINUS}+]?)"
    rf"(?P<digits>(?:[0-9.,:]|[{SPACES}](?=[0-9]))+(?:[eE][-+]?[0-9]+)?)\s?"
    rf"(?P<after>(?:(?:[^\W\d_]|[%\u2030\u00b0{MONEY}])[^\d,:;]{{0,11}}[23]?)?)"
)
PLACE = re.compile(r"\s*\(\s*[0-9]+\s*\)\s*")
"""The number of a place, such as (5), in a column that has nothing else."""
NUMERALS = {
    POINT: re.compile(
        rf"(?:[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+|(?:[{SPACES}][0-9]{{3}})+)|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
        r"|\.[0-9]+"
    ),
    COMMA: re.compile(
        rf"(?:[1-9][0-9]{{0,2}}(?:(?:\.[0-9]{{3}})+|(?:[{SPACES}][0-9]{{3}})+)|[0-9]+)(?:,[0-9]*)?(?:[eE][-+]?[0-9]+)?"
        r"|,[0-9]+"
    ),
    HOURS: re.compile(r"[0-9]{1,3}:[0-5][0-9]"),
    SECONDS: re.compile(r"[0-9]{1,3}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"),
}
"""How the digits of a notation are written."""
DECIMAL = {POINT: ".", COMMA: ","}


class Written(NamedTuple):
    """The parts of a cell that is a number with or without a unit."""

    negative: bool
    before: str
    digits: str
    after: str
    times: float = 1.0

    @property
    def unit(self) -> str:
        """The unit, wherever it is written."""
        return self.before + self.after

    def value(self, numeral: str) -> float:
        """Return the number, in hours if it is a time; NaN if its digits are not written like this numeral."""
        if NUMERALS[numeral].fullmatch(self.digits) is None:
            return np.nan
        if numeral in DECIMAL:
            decimal = DECIMAL[numeral]
            kept = (sign for sign in self.digits if sign not in f"{SPACES},." or sign == decimal)
            number = self.times * float("".join(kept).replace(",", "."))
        else:
            number = sum(float(part) / 60**k for k, part in enumerate(self.digits.split(":")))
        return -number if self.negative else number

    def notation(self, numeral: str) -> str:
        """Return a notation with this unit."""
        before = f"{self.before} " if self.before[-1:].isalpha() else self.before
        after = f" {self.after}" if self.after[:1].isalpha() else self.after
        return f"{before}{numeral}{after}"


@lru_cache(maxsize=100_000)
def parts_of(cell: str) -> Written | None:
    """Return the parts of a cell; None if it is no number with or without a unit.

    >>> parts_of("-12.5 kg")
    Written(negative=True, before='', digits='12.5', after='kg', times=1.0)
    """
    text = cell.strip()
    in_brackets = text.startswith("(") and text.endswith(")")  # of accountants: below zero
    if in_brackets:
        text = text[1:-1]
    found = PARTS.fullmatch(text) if len(text) <= LONGEST else None
    if found is None or not any(map(str.isdigit, found["digits"])):
        return None
    signs = in_brackets + bool(found["sign"]) + bool(found["inner"])
    if signs > 1:
        return None
    after = found["after"].strip()
    if after.isalpha() and len(after) > LONGEST_GLUED and text.endswith(found["digits"] + after):
        return None
    negative = in_brackets or (found["sign"] or found["inner"] or "+") in MINUS
    if found["before"] and after in TIMES:  # a house has the number 12B
        return Written(negative, found["before"], found["digits"], "", TIMES[after])
    return Written(negative, found["before"], found["digits"], after)


def numeral_of(notation: str) -> tuple[str, str]:
    """Return the numeral and the unit of a notation; raise a ValueError if it is none.

    >>> numeral_of("1,234.5 kg")
    ('1,234.5', 'kg')
    """
    parts = parts_of(notation)
    if notation == PLAIN or parts is None or parts.digits not in NUMERALS:
        raise ValueError(f"expected a number such as {POINT} with or without a unit, got {notation!r}")
    return parts.digits, parts.unit


def notations_of(cells: Sequence[Any] | NDArray[Any]) -> list[str]:
    """Return the notations in which all cells are numbers, of one unit.

    >>> notations_of(["12%", "3.5%"]), notations_of(["1,234", "950"]), notations_of(["2 kg", "500 g"])
    (['1,234.5%'], ['1,234.5', '1.234,5'], [])
    """
    texts = texts_of(cells)
    if texts and all(map(PLACE.fullmatch, texts)):
        return []
    parsed = [parts_of(text) for text in texts]
    written = [parts for parts in parsed if parts is not None]
    units = {parts.unit for parts in written}
    if len(written) < len(parsed) or len(units) != 1:
        return []
    (unit,) = units
    others = [cell for cell in cells if not is_text(cell)]
    found = []
    for numeral in NUMERALS:
        values = [parts.value(numeral) for parts in written]
        values += [unwritten(cell, numeral, unit) for cell in others]
        if np.isfinite(values).all():
            found.append(written[0].notation(numeral))
    return found


def written_in(cells: Sequence[Any] | NDArray[Any], notation: str) -> NDArray[np.float64]:
    """Return the number in each cell (n,); NaN in cells that are not written like this.

    A cell without a unit that `float` reads is one in a notation without a unit, unless it may be another number there.

    >>> written_in(["$1,200", "$3.50", "12 EUR", 7], "$1,234.5").tolist()
    [1200.0, 3.5, nan, nan]
    """
    numeral, unit = numeral_of(notation)
    known = {}
    for text in texts_of(cells):
        parts = parts_of(text)
        known[text] = np.nan if parts is None or parts.unit != unit else parts.value(numeral)
        if np.isnan(known[text]):
            known[text] = unwritten(text, numeral, unit)
    return np.array([known[str(cell)] if is_text(cell) else unwritten(cell, numeral, unit) for cell in cells])


def unwritten(cell: Any, numeral: str, unit: str) -> float:
    """Return the number that `float` reads in a cell; NaN if it may be another number in this notation.

    With decimal commas, "1.5" is 1.5, but "1.234" may be 1234 or, where a reader of tables has read it, 1.234.
    """
    number = number_in(cell)
    if unit or numeral not in DECIMAL:
        return np.nan
    if numeral == COMMA and has_decimals(number, 3) and not has_decimals(number, 2):
        return np.nan
    return number


def has_decimals(number: float, most: int) -> bool:
    """Return whether a number has at most so many decimals, in single precision."""
    return bool(np.isclose(number, round(number, most), rtol=1e-6, atol=0.0)) if np.isfinite(number) else False


def is_text(cell: Any) -> bool:
    """Return whether a cell may be a number that is written in another way than `float` reads."""
    return isinstance(cell, str | time)


def texts_of(cells: Iterable[Any]) -> list[str]:
    """Return the different texts among cells, and times of day as texts."""
    return list({str(cell): None for cell in cells if is_text(cell)})


def two_ways(cells: Iterable[Any]) -> tuple[str, str] | None:
    """Return two cells of a column of numbers that are not written in one way; None if it is no column of numbers.

    >>> two_ways(["2 kg", "500 g", "3 kg"]), two_ways(["950", "1,5", "1.5"]), two_ways(["red", "2 kg"])
    (('2 kg', '500 g'), ('1,5', '1.5'), None)
    """
    examples: dict[tuple[Any, ...], str] = {}
    for text in texts_of(cells):
        parts = parts_of(text)
        if parts is None or len(examples) > MOST_WAYS:
            return None
        read = (not np.isnan(parts.value(numeral)) for numeral in NUMERALS)
        examples.setdefault((parts.unit, *read), text)
    pairs = combinations(examples.values(), 2)
    return next((pair for pair in pairs if not notations_of(pair)), None)


def telling(cells: NDArray[Any]) -> NDArray[Any]:
    """Return the cells of a column that can tell how its numbers are written: none that are missing, no few words.

    >>> telling(as_cells(["-", "1,234", "", "950"])).tolist()
    ['1,234', '950']
    """
    if any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells):
        return cells
    cells = as_cells([cell for cell in cells if not (is_empty(cell) or is_dash(cell))])
    words = np.array([isinstance(cell, str) and not any(map(str.isdigit, cell)) for cell in cells], dtype=bool)
    return cells[~words] if words.sum() <= MOST_UNREAD * len(cells) else cells


def readings_of(cells: NDArray[Any]) -> list[str]:
    """Return the notations in which a column of telling cells can be read; none if they are no numbers.

    Of the notations that read all of them, and else `PLAIN` if only a few are no numbers.
    """
    unread = int((~np.isfinite([number_in(cell) for cell in cells])).sum())
    if not len(cells):
        return []
    if not unread:
        return [PLAIN]
    notations = notations_of(cells)
    return notations or ([PLAIN] if unread <= MOST_UNREAD * len(cells) else [])


def notations_in_table(columns: Mapping[Key, NDArray[Any]], usual: str = ".") -> dict[Key, str]:
    """Return how the numbers of each column of a table are written; "" if two readings are possible.

    Columns without numbers are left out. `usual` is the decimal sign if no column shows which one it is.

    >>> notations_in_table({"a": np.array(["1.234", "950"]), "b": np.array(["3,5", "2"])})
    {'a': '1.234,5', 'b': '1.234,5'}
    """
    cells_of = {name: telling(cells) for name, cells in columns.items()}
    readings = {name: notations for name, cells in cells_of.items() if (notations := readings_of(cells))}
    signs = {sign_of(notations) for notations in readings.values() if PLAIN not in notations} - {""}
    if "," in signs or usual == ",":
        for name, notations in readings.items():
            texts = [text for text in texts_of(cells_of[name]) if "." in text]
            if PLAIN in notations and texts and sign_of(notations_of(texts)) != "":
                signs.add(".")
    return {name: chosen(cells_of[name], notations, signs or {usual}) for name, notations in readings.items()}


def sign_of(notations: Iterable[str]) -> str:
    """Return the decimal sign of notations; "" if there are two or none."""
    signs = {DECIMAL.get(numeral_of(notation)[0], "") for notation in notations}
    return signs.pop() if len(signs) == 1 else ""


def chosen(cells: NDArray[Any], notations: Sequence[str], signs: set[str]) -> str:
    """Return the notation in which a column of a table with these decimal signs is read; "" if none is safe.

    "1,234" beside "950" is 1234, unless another column has a decimal comma. Readings that differ by a factor are equal
    to an encoder that standardizes.

    >>> cells = np.array(["1,234", "950"])
    >>> chosen(cells, readings_of(cells), {"."}), chosen(cells, readings_of(cells), {","})
    ('1,234.5', '')
    """
    if "," in signs and PLAIN in notations:
        notations = [PLAIN, *(one for one in notations_of(cells) if numeral_of(one)[0] == COMMA)]
    if "," not in signs or len(notations) == 1:
        return notations[0]
    point, comma = notations
    only_points = not any("," in text for text in texts_of(cells))
    if signs == {","} and only_points:
        return comma  # "1.234" is 1234
    if not in_proportion(read(cells, point), read(cells, comma)):
        return ""
    return comma if signs == {","} else point


def in_proportion(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Return whether the numbers of one reading are those of another one times a factor."""
    at = int(np.abs(a).argmax())
    return bool(np.allclose(a * b[at], b * a[at], rtol=1e-9, atol=0.0))


def read(cells: Sequence[Any] | NDArray[Any], notation: str) -> NDArray[np.float64]:
    """Return the number in each cell (n,), in this notation or `PLAIN`; NaN where there is none."""
    if notation == PLAIN:
        return np.array([number_in(cell) for cell in cells], dtype=np.float64)
    return written_in(cells, notation)
