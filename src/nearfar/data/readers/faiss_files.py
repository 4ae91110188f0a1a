"""Flat indexes of faiss with the names and labels of their vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...io.cells import unescaped
from ...io.faiss_file import names_beside, read_flat
from ...quoting import count_of, quoted
from ..dataset import UNKNOWN_CLASS, DataError, Dataset, Source, some
from .arrays import finite_singles
from .text_tables import read_text_table


def read_faiss(path: str | Path, *, skip_bad: bool = False) -> Source:
    """Read the vectors of a flat index of faiss, and their names and labels from the table next to it.

    Parameters
    ----------
    path : str or Path
        The .faiss file. Next to ``photos.faiss``, ``photos.names.csv`` has one row per vector, in their order, with the
        column `name` and optionally `label`. Without it, the ids of an `IndexIDMap` are the names.
    skip_bad : bool
        Leave out vectors with NaN or infinity, instead of raising an error.

    Returns
    -------
    Source
        The items. Without labels, all have the class "".

    Raises
    ------
    DataError
        If the file is damaged or no flat index, or names are missing.
    """
    path = Path(path)
    try:
        rows, ids, _ = read_flat(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not len(rows):
        raise DataError(f"{path}: has no vectors")
    table = _names_of(path, len(rows), None if ids is None else [str(number) for number in ids.tolist()])
    labels = table.get("label", [UNKNOWN_CLASS] * len(rows))
    bad = ~np.isfinite(rows).all(axis=1)
    if not skip_bad or bad.all():
        finite_singles(rows, f"{path}: its vectors")
    items = Dataset.from_array(path.stem, rows, labels, names=table["name"])
    if bad.any():
        which = some([items.names[i] for i in np.flatnonzero(bad)], 3)
        note = f"{count_of(int(bad.sum()), 'row')} with NaN or infinity left out ({which})"
        items = items.subset(~bad)
        items = replace(items, notes=(*items.notes, note))
    return Source(items)


def _names_of(path: Path, count: int, ids: list[str] | None) -> dict[str, Any]:
    """Return the columns of the table of names, or ids as names."""
    beside = names_beside(path)
    if not beside.is_file():
        if ids is None:
            raise DataError(
                f"{path}: faiss stores no names; write {beside.name} next to it, with the column name (and label) and "
                "a row for each vector in their order"
            )
        table: dict[str, Any] = {"name": ids}
    else:
        columns = read_text_table(beside)
        if "name" not in columns:
            raise DataError(f"{beside}: has no column 'name'; it has {some([*columns])}")
        table = {}
        for name in ("name", "label"):
            if name in columns:
                table[name] = [unescaped(str(cell)) for cell in columns[name]]
    if len(table["name"]) != count:
        raise DataError(f"{beside}: has {len(table['name']):,} rows for {count:,} vectors of {path.name}")
    twice = next((name for name, times in _counted(table["name"]).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two vectors have the name {quoted(twice)}")
    return table


def _counted(names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
