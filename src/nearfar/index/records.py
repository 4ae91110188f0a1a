"""Items of an index, wherever it is kept: what each is called, its class, its columns, its embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..numerics.types import AnyArray, Array, Ints
from .columns import Columns, picked_columns
from .index import Index


@dataclass(frozen=True, eq=False)
class Records:
    """Some items of an index.

    Attributes
    ----------
    names : ndarray of str, shape (n,)
    embeddings : ndarray of float32, shape (n, d)
    labels : ndarray of int64 or str, shape (n,), or None
    columns : mapping of str to ndarray of float64 or str, shape (n,)
    """

    names: AnyArray
    embeddings: AnyArray
    labels: AnyArray | None = None
    columns: Mapping[str, AnyArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def pick(self, rows: Any) -> Records:
        """Return some of the items."""
        labels = None if self.labels is None else self.labels[rows]
        return Records(self.names[rows], self.embeddings[rows], labels, picked_columns(self.columns, rows))


class Hits(NamedTuple):
    """Neighbors, nearest first.

    Attributes
    ----------
    records : the items that `positions` count
    distances : (n, k), infinity where fewer were found
    positions : (n, k) rows of `records`, then -1
    """

    records: Records
    distances: Array
    positions: Ints


def records_of(embeddings: Any, names: Any, *, labels: Any = None, columns: Columns | None = None) -> Records:
    """Check items and return them as records, ready to be added to a collection.

    Raises
    ------
    ValueError
        Lengths that differ, a name that occurs twice, rows that are not finite, columns that are neither numbers nor
        text.
    """
    index = Index(embeddings, names=names, labels=labels, columns=columns)
    return Records(index.names, index.embeddings, index.labels, index.columns)


def all_of(index: Index) -> Records:
    """Return all items of an index, which share its memory."""
    return Records(index.names, index.embeddings, index.labels, index.columns)


def nothing(dimensions: int) -> Records:
    """Return no items."""
    return Records(np.empty(0, dtype=np.str_), np.empty((0, dimensions), dtype=np.float32))
