"""The columns of the table that a model was trained on, by which other tables are read for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..io.formats import is_table
from ..quoting import quoted
from .readers.manifest import read_columns


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table; None means the default.

    Attributes
    ----------
    label, name : str or None
        Columns of the classes and of the names of the rows.
    levels : tuple of str
        Columns of what the classes belong to.
    """

    label: str | None = None
    name: str | None = None
    levels: tuple[str, ...] = ()

    def given(self) -> dict[str, str]:
        """Return the columns of classes and names that are not the default."""
        return {role: column for role, column in asdict(self).items() if column and role != "levels"}

    def read(self, data: Any, label: str | None = None, name: str | None = None) -> dict[str, Any]:
        """Return the columns `label` and `name` by which data are read: those given, else these if a table has them."""
        asked = {"label": label, "name": name}
        learned = self.given()
        if not learned or not names_table(data):
            return asked
        there = read_columns(data, label or self.label).keys()
        return {role: asked[role] or next(iter({learned.get(role)} & there), None) for role in asked}


def names_table(data: Any) -> bool:
    """Return whether data are the path of a table that exists."""
    return isinstance(data, str | os.PathLike) and Path(data).is_file() and is_table(Path(data))


def flaw_of_columns(found: Any) -> str:
    """Return what is wrong with the columns that a file names; "" if nothing is."""
    if isinstance(found, Mapping) and {*found} <= {"label", "name"} and {*map(type, found.values())} <= {str}:
        return ""
    return f"table_columns_ must name the columns of the classes and of the names, got {quoted(found)}"


def named_columns(learner: Any) -> list[str]:
    """Return the names of the columns of a learner's training rows; none if they had no names."""
    return [str(name) for name in getattr(learner, "feature_names_in_", ())]
