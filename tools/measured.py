"""Tables of results that are too long for a page: `docs/measured/*.csv`.

A column `X ±` has half of the interval of the column `X` before it; a page shows both as one.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from nearfar.catalog import BY_NAME

DOCS = Path(__file__).parent.parent / "docs"


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of `docs/measured/NAME.csv`, each with its cells by column."""
    with (DOCS / "measured" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shown(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return rows as a page shows them: with intervals beside their means, and methods as code.

    >>> shown([{"loss": "NCALoss()", "MAP@R": "0.2", "MAP@R ±": "0.1"}])
    [{'loss': '`NCALoss()`', 'MAP@R': '0.2 ± 0.1'}]
    """
    columns = [column for column in rows[0] if not column.endswith(" ±")]
    return [{column: cell(row, column, column == columns[0]) for column in columns} for row in rows]


def cell(row: dict[str, str], column: str, is_name: bool) -> str:
    """Return the text of a cell, in Markdown."""
    text, half = row[column], row.get(f"{column} ±", "")
    method = re.match(r"\w+(?=\(|$)", text)
    if is_name and method and method[0] in BY_NAME:
        return f"`{text}`"
    return f"{text} ± {half}" if half else text


def is_number(text: str) -> bool:
    return not text or bool(re.match(r"[-+]?[\d.]", text)) or text in ("-", "out of memory", "over time")


def as_markdown(rows: list[dict[str, str]]) -> list[str]:
    """Return the lines of a table, with numbers at the right."""
    cells = shown(rows)
    columns = list(cells[0])
    marks = ["---:" if all(is_number(row[column]) for row in cells) else "---" for column in columns]
    lines = [columns, marks, *(list(row.values()) for row in cells)]
    return [f"| {' | '.join(line)} |" for line in lines]
