"""Cells of tables that spreadsheets open: text stays text, also where it looks like a formula.

A spreadsheet computes a cell that begins with ``=``, ``+``, ``-`` or ``@``, and a formula can run commands or send what
is in the table elsewhere. The names in our tables are those of files and classes, which may come from strangers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # after quotes too, so that what is read is what was written
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def write_rows(file: IO[Any], rows: Iterable[Sequence[Any]], lineterminator: str = "\r\n") -> None:
    """Write the lines of a .csv, with a single quote before text that a spreadsheet would compute."""
    writer = csv.writer(file, lineterminator=lineterminator)
    writer.writerows([escaped(cell) for cell in row] for row in rows)


def escaped(cell: Any) -> Any:
    """Return a cell as it is written: text that looks like a formula, and is no number, begins with a single quote.

    >>> escaped("=1+1"), escaped("-1.5"), escaped(-1.5), escaped("cat")
    ("'=1+1", '-1.5', -1.5, 'cat')
    """
    if isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def unescaped(cell: str) -> str:
    """Return the text that `escaped` made a cell of.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    if cell.startswith("'") and FORMULA.match(cell, 1):
        return cell[1:]
    return cell
