"""Columns of items in an index, such as a price, a shop, a product: numbers or text, which filters and groups use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numerics.types import AnyArray
from ..quoting import quoted
from .filters import KEYWORDS, Kind

Columns = Mapping[str, Any]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
RESERVED = ("name", "label", "embedding", *KEYWORDS)  # what every item has, and words of filters
MAX_COLUMNS = 100
MAX_TEXT = 10_000  # characters of a cell


def checked_columns(columns: Columns | None, n: int) -> dict[str, AnyArray]:
    """Return columns as arrays of float64 or text, shape (n,) each.

    Raises
    ------
    ValueError
        A name that a filter could not call, another length, or values that are neither numbers nor text.
    """
    given = dict(columns or {})
    if len(given) > MAX_COLUMNS:
        raise ValueError(f"columns: expected up to {MAX_COLUMNS}, got {len(given)}")
    return {name: _checked(name, values, n) for name, values in given.items()}


def _checked(name: Any, values: Any, n: int) -> AnyArray:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"columns: expected names of letters, digits and _, got {quoted(name)}; rename it")
    if name in RESERVED:
        raise ValueError(f"columns: {quoted(name)} means something else in an index; rename it")
    found = np.asarray(values)
    if found.dtype == object:
        found = _of_objects(found)
    if found.shape != (n,):
        raise ValueError(f"columns: expected {n} values of {quoted(name)}, one per item, got shape {found.shape}")
    if found.dtype.kind in "US":
        text = found.astype(np.str_)
        if text.dtype.itemsize // 4 > MAX_TEXT:
            raise ValueError(f"columns: a text in {quoted(name)} is longer than {MAX_TEXT:,} characters")
        return text
    if found.dtype.kind not in "fiub":
        raise ValueError(f"columns: expected numbers or text in {quoted(name)}, got dtype {found.dtype}")
    numbers = found.astype(np.float64)
    if np.isinf(numbers).any():
        raise ValueError(f"columns: {quoted(name)} holds infinity; leave such a value out (NaN)")
    return numbers


def _of_objects(values: AnyArray) -> AnyArray:
    """Numbers with None among them are numbers with NaN; text with None among it has empty text there."""
    if all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.array(["" if value is None else str(value) for value in values], dtype=np.str_)


def parsed_column(cells: Any) -> AnyArray:
    """Return the cells of a text table as numbers if all nonempty ones are numbers, else as text.

    >>> parsed_column(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> parsed_column(["1", "a"]).tolist()
    ['1', 'a']
    """
    words = ["" if cell is None else str(cell).strip() for cell in cells]
    try:
        numbers = np.array([float(word) if word else np.nan for word in words])
    except ValueError:
        return np.array(words, dtype=np.str_)
    if not any(words) or np.isinf(numbers).any():
        return np.array(words, dtype=np.str_)
    return numbers


def column_kinds(columns: Mapping[str, AnyArray]) -> dict[str, Kind]:
    """Say of each column whether it holds numbers or text."""
    return {name: "text" if values.dtype.kind == "U" else "number" for name, values in columns.items()}


def picked_columns(columns: Mapping[str, AnyArray], rows: Any) -> dict[str, AnyArray]:
    """Return some rows of all columns."""
    return {name: values[rows] for name, values in columns.items()}


def joined_columns(
    columns: Mapping[str, AnyArray], n: int, more: Mapping[str, AnyArray], m: int
) -> dict[str, AnyArray]:
    """Append the columns of m items to those of n; columns that one side lacks are filled with missing values.

    Raises
    ------
    ValueError
        If a column has numbers on one side and text on the other.
    """
    kinds = column_kinds(more) | column_kinds(columns)
    for name, kind in column_kinds(more).items():
        if kind != kinds[name]:
            told = {"number": "numbers", "text": "text"}
            raise ValueError(
                f"columns: expected {told[kinds[name]]} in {quoted(name)} as in the index, got {told[kind]}"
            )
    return {
        name: np.concatenate([_or_missing(columns, name, kind, n), _or_missing(more, name, kind, m)])
        for name, kind in kinds.items()
    }


def _or_missing(columns: Mapping[str, AnyArray], name: str, kind: Kind, n: int) -> AnyArray:
    return columns[name] if name in columns else missing(kind, n)


def missing(kind: Kind, n: int) -> AnyArray:
    """Return n missing values: NaN, or empty text."""
    return np.full(n, np.nan) if kind == "number" else np.full(n, "", dtype=np.str_)
