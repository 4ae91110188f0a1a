"""Columns that identify the items of a table, such as `id` or `sku`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...quoting import quoted

NO_NAMES = "cannot name the rows"
IDS = {"id", "ids", "uid", "uuid", "guid", "sku", "asin", "ean", "gtin", "isbn"}
IDS |= {f"{what}id" for what in ("item", "product", "article", "doc", "document", "image", "record", "sample")}
"""Names of columns that identify items, in lower case and without other characters than letters and digits."""


def is_id(name: str) -> bool:
    """Return whether a column of this name identifies the items of a table, if its cells are different.

    >>> is_id("item_id"), is_id("SKU"), is_id("itemId"), is_id("grid")
    (True, True, True, False)
    """
    return re.sub(r"[\W_]", "", name.lower()) in IDS


def ids_of(cells: Sequence[Any]) -> list[str] | None:
    """Return the cells of a column as names of items; None if two are equal, or one is empty or has a fraction.

    >>> ids_of(["7", "007"]), ids_of([1.0, 2.0]), ids_of([1, 1]), ids_of(["a", ""])
    (['7', '007'], ['1', '2'], None, None)
    """
    names = [_id_of(cell) for cell in cells]
    found = [name for name in names if name]
    return found if len(set(found)) == len(names) else None


def not_ids(what: str, cells: Sequence[Any], start: int = 1) -> str:
    """Return why cells cannot be names of items, as a clause about the column or array that holds them.

    Rows are counted from `start`.

    >>> not_ids("column 'sku'", ["a", "b", "a"]), not_ids("column 'sku'", ["a", ""])
    ("column 'sku' cannot name the rows: 'a' is in rows 1 and 3", "column 'sku' cannot name the rows: row 2 has ''")
    """
    first: dict[str, int] = {}
    for row, cell in enumerate(cells, start=start):
        name = _id_of(cell)
        if not name:
            return f"{what} {NO_NAMES}: row {row} has {quoted(cell)}"
        if name in first:
            return f"{what} {NO_NAMES}: {quoted(name)} is in rows {first[name]} and {row}"
        first[name] = row
    raise ValueError(f"{what}: its cells are different")


def _id_of(cell: Any) -> str | None:
    """Return a cell as a name. Numbers that pandas has made floats are written as integers."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, int | np.integer) and not isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return None
