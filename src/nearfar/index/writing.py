"""What every store asks before it writes: that the items fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..numerics.types import AnyArray
from ..quoting import quoted
from .columns import column_kinds
from .filters import Kind
from .records import Records


def check_there(name: str, columns: Collection[str]) -> None:
    """Raise a ValueError if a collection does not have a column."""
    if name not in columns:
        raise ValueError(f"column: there is no column {quoted(name)}; there are {', '.join(columns)}")


def check_new(records: Records, *, dimensions: int, labels: AnyArray | str | None, columns: Mapping[str, Kind]) -> None:
    """Raise a ValueError if items do not fit a collection.

    Parameters
    ----------
    records : Records
        The items to add.
    dimensions : int
        Number of dimensions of the collection's embeddings.
    labels : ndarray or str or None
        Labels of the collection, or None if it has none.
    columns : mapping of str to {"number", "text"}
        Columns of the collection.
    """
    if records.embeddings.shape[1] != dimensions:
        got = records.embeddings.shape[1]
        raise ValueError(f"embeddings: expected {dimensions} columns as in the index, got {got}")
    if (records.labels is None) != (labels is None):
        has = "no labels" if labels is None else "labels"
        raise ValueError(f"labels: the index has {has}, the new items have {'none' if labels is not None else 'some'}")
    told = {"number": "numbers", "text": "text"}
    for name, kind in column_kinds(records.columns).items():
        if columns.get(name, kind) != kind:
            raise ValueError(
                f"columns: expected {told[columns[name]]} in {quoted(name)} as in the index, got {told[kind]}"
            )


def check_some_left(names: Sequence[str], known: AnyArray, left: int) -> None:
    """Raise a ValueError for names that do not exist, or if nothing would be left."""
    gone = np.asarray(names, dtype=np.str_)
    unknown = np.setdiff1d(gone, known)
    if len(unknown):
        told = f"{len(unknown)} of {len(gone)} are unknown"
        raise ValueError(f"names: the index has no {quoted(str(unknown[0]))} ({told})")
    if left == 0:
        raise ValueError("names: nothing would be left in the index")
