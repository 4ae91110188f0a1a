"""The text of a table: its encoding, and the sign between its columns, where one reading is plainly right."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Sequence

from ..cells import as_cells
from ..written_numbers import COMMA, notations_in_table

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECLARATION = re.compile(r'"?sep=([,;|\t])"?\r?\n?', re.IGNORECASE)
"""A first line by which Excel knows the sign between the columns."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?", re.ASCII)


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text that is not UTF-8; "" if none is plainly right.

    A text with the mark of UTF-16 is in UTF-16. A text is in Windows-1252 if words with letters such as ü consist
    mostly of other letters; words of other alphabets do not.

    >>> encoding_of("Straße,Größe".encode("cp1252")), encoding_of("кошка,собака".encode("cp1251"))
    ('cp1252', '')
    """
    if data.startswith(UTF16):
        return "utf-16"
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return ""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    letters = "".join(words)
    others = sum(not letter.isascii() for letter in letters)
    return "cp1252" if 2 * others < len(letters) or not words else ""


def bad_byte(data: bytes) -> int:
    """Return the place of the first byte of a text that is not UTF-8.

    >>> bad_byte("aö".encode("cp1252"))
    1
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def without_declaration(lines: list[str]) -> tuple[list[str], str]:
    """Return the lines of a table without one that declares the sign between its columns, and this sign, or "".

    >>> without_declaration(["sep=;\\n", "a;b\\n"])
    (['a;b\\n'], ';')
    """
    found = DECLARATION.fullmatch(lines[0]) if lines else None
    return (lines[1:], found[1]) if found else (lines, "")


def rows_of(lines: Sequence[str], separator: str) -> tuple[list[list[str]], str]:
    """Return the cells of a table, and the sign that separates its columns.

    It is the expected one, unless the header then has one column only, and one other sign gives every row the same
    number of columns.
    """
    rows = _split(lines, separator)
    if not rows or len(rows[0]) > 1:
        return (_with_points(rows) if separator == ";" else rows), separator
    readings = {sign: _split(lines, sign) for sign in SEPARATORS if sign != separator and sign in "".join(rows[0])}
    even = [sign for sign, found in readings.items() if len(found[0]) > 1 and len({len(row) for row in found}) == 1]
    if len(even) != 1:
        return rows, separator
    found = readings[even[0]]
    return (_with_points(found) if even[0] == ";" else found), even[0]


def _split(lines: Iterable[str], separator: str) -> list[list[str]]:
    return [row for row in csv.reader(lines, delimiter=separator) if row]


def _with_points(rows: list[list[str]]) -> list[list[str]]:
    """Return rows with decimal points, where a column of numbers with decimal commas cannot be read in another way.

    A table that also has separators of thousands, or units, stays as it is: what encodes it reads and remembers them.

    >>> _with_points([["a", "b"], ["0,5", "x,y"], ["2", "z"]])
    [['a', 'b'], ['0.5', 'x,y'], ['2', 'z']]
    >>> _with_points([["a", "b"], ["0,5", "1.234"], ["2", "950"]])
    [['a', 'b'], ['0,5', '1.234'], ['2', '950']]
    """
    columns = {at: as_cells([row[at].strip() for row in rows[1:]]) for at in range(len(rows[0]))}
    notations = notations_in_table(columns, usual=",")
    with_commas = [at for at, notation in notations.items() if notation == COMMA]
    others = any(notation == "" or (notation != COMMA and COMMA in notation) for notation in notations.values())
    if others or any("." in cell for at in with_commas for cell in columns[at]):
        return rows
    for at in with_commas:
        for row in rows[1:]:
            if DECIMAL_COMMA.fullmatch(row[at].strip()):
                row[at] = row[at].replace(",", ".")
    return rows
