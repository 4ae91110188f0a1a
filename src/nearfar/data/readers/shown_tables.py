"""What messages show of a table: its columns, its first rows, and where something is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...quoting import count_of, shorten
from .text_tables import header_advice

MAX_SHOWN_COLUMNS = 12  # maximum number of columns in a message
MAX_CELL_LENGTH = 20  # maximum number of characters of a cell in a message


def shown(table: Mapping[str, Sequence[Any]]) -> str:
    """Return the columns and the first rows of a table, as the end of a line."""
    rows = list(zip(*table.values(), strict=True))[:3]
    first = " | ".join(few([str(value) for value in row]) for row in rows)
    return f"it has {few(list(table))}; first rows: {first or 'none'}{header_advice(list(table))}"


def few(values: Sequence[str]) -> str:
    """Return some of the names of columns, or of the cells of a row."""
    text = ",".join(shorten(value, MAX_CELL_LENGTH) for value in values[:MAX_SHOWN_COLUMNS])
    if len(values) > MAX_SHOWN_COLUMNS:
        text += f",... ({len(values)} columns)"
    return text


def rows_from(count: int, first: int) -> str:
    """Return a number of rows and the first of them, which is counted from 0."""
    return f"{count_of(count, 'row')}, first in row {first + 1} after the header"
