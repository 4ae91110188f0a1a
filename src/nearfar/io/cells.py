"""Cells of tables for spreadsheets, in which text remains text even if it looks like a formula.

Spreadsheets evaluate cells that begin with ``=``, ``+``, ``-`` or ``@``, and a formula can run commands or send the
content of the table elsewhere. The names of files and classes in our tables may come from strangers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from .atomic_files import atomic_write

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # also after quotes, so that reading restores the text exactly
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def write_rows(file: IO[Any], rows: Iterable[Sequence[Any]], lineterminator: str = "\r\n") -> None:
    """Write the lines of a .csv, with a single quote before text that a spreadsheet would evaluate."""
    writer = csv.writer(file, lineterminator=lineterminator)
    writer.writerows([escaped(cell) for cell in row] for row in rows)


def escaped(cell: Any) -> Any:
    """Return a cell with a single quote before text that looks like a formula and is not a number.

    >>> escaped("=1+1"), escaped("-1.5"), escaped(-1.5), escaped("cat")
    ("'=1+1", '-1.5', -1.5, 'cat')
    """
    if isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def unescaped(cell: str) -> str:
    """Return the text of a cell that `escaped` wrote.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    if cell.startswith("'") and FORMULA.match(cell, 1):
        return cell[1:]
    return cell


def write_table(out: Path, heading: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a .csv, completely or not at all."""
    with atomic_write(out, "w", newline="", encoding="utf-8", errors="surrogateescape") as handle:
        write_rows(handle, [heading, *rows])


def read_by_name(table: Path, column: str, argument: str) -> list[tuple[str, str]]:
    """Return the names and the cells of a column of a .csv that `write_table` wrote and a person has edited.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message begins with the `argument`.
    ValueError
        If it cannot be read, or lacks the column name or the other one.
    """
    if not table.is_file():
        raise FileNotFoundError(f"{argument}: {table}: no such file")
    with table.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as handle:
        try:
            reader = csv.DictReader(handle)
            header = reader.fieldnames or ()
            rows = list(reader)
        except csv.Error as error:
            raise ValueError(f"{argument}: {table}: not a readable CSV file ({error})") from error
    if not {"name", column} <= set(header):
        got = ", ".join(header) or "none"
        raise ValueError(f"{argument}: {table}: expected the columns name and {column}, got {got}")
    return [(unescaped(row["name"] or ""), unescaped(row[column] or "").strip()) for row in rows]
