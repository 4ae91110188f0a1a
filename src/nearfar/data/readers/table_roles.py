"""The split of a table: the role of each row, from its columns `split`, `query` and `gallery`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...quoting import quoted
from ..dataset import DataError, Dataset, Source
from .folder import ROLES

TRUE = ("1", "1.0", "true", "yes")
FALSE = ("", "0", "0.0", "false", "no", "none", "nan")

Table = Mapping[str, Sequence[Any]]


def split_by_columns(path: Path, table: Table, items: Dataset) -> Source:
    """Return items with the role of each, if a column states it."""
    roles = roles_in(path, table)
    return Source(items, None if roles is None else np.asarray(roles, dtype=np.str_), split_of(path, table))


def roles_in(path: Path, table: Table) -> list[str] | None:
    """Return the role of every row: its split, or "query" or "gallery" for test rows with such a flag."""
    flagged = "query" in table or "gallery" in table
    if "split" not in table and not flagged:
        return None
    n = len(next(iter(table.values())))
    split = [str(value).lower() for value in table.get("split", ["test"] * n)]
    unknown = sorted(set(split) - ROLES.keys())
    if unknown:
        raise DataError(f"{path}: unknown split {quoted(unknown[0])}; expected {', '.join(ROLES)}")
    roles = [ROLES[value] for value in split]
    if not flagged:
        return roles
    if "test" in roles:
        held = [i for i in range(n) if roles[i] == "test"]
    else:
        held = [i for i in range(n) if roles[i] == "validation"]
    return _flagged(path, roles, held, _flags(path, table, "query"), _flags(path, table, "gallery"))


def split_of(path: Path, table: Table) -> str:
    """Return how the rows were split, as a clause; "" if they were not."""
    if not any(column in table for column in ("split", "query", "gallery")):
        return ""
    return f"split by the columns of {path.name}"


def _flagged(path: Path, roles: list[str], held: list[int], query: list[bool], gallery: list[bool]) -> list[str]:
    """Return the roles with "query" or "gallery" for the test rows, according to their flags."""
    if all(query[i] and gallery[i] for i in held):
        return roles  # leave-one-out: every test row searches all others
    both = [i for i in held if query[i] and gallery[i]]
    neither = [i for i in held if not (query[i] or gallery[i])]
    if both or neither:
        if both:
            what, row = ("both query and gallery", both[0])
        else:
            what, row = ("neither query nor gallery", neither[0])
        raise DataError(f"{path}: test row {row + 1} is {what}; mark either all test rows as both, or each as one")
    for i in held:
        roles[i] = "query" if query[i] else "gallery"
    return roles


def _flags(path: Path, table: Table, column: str) -> list[bool]:
    """Read a column of true and false; if it is missing, it is the opposite of the other one."""
    if column not in table:
        other = "gallery" if column == "query" else "query"
        return [not flag for flag in _flags(path, table, other)]
    values = ["" if value is None else str(value).lower() for value in table[column]]
    unknown = [value for value in values if value not in TRUE + FALSE]
    if unknown:
        raise DataError(f"{path}: column {column!r} has {quoted(unknown[0])}; expected true or false")
    return [value in TRUE for value in values]
