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
        Name of each item.
    embeddings : ndarray of float32, shape (n, d)
        Embeddings.
    labels : ndarray of int64 or str, shape (n,), or None
        Class of each item.
    columns : mapping of str to ndarray of float64 or str, shape (n,)
        Values for filters and groups.
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
    records : Records
        The items to which `positions` refer.
    distances : ndarray of shape (n, k)
        Distances; infinity if fewer than k were found.
    positions : ndarray of shape (n, k)
        Row numbers of `records`; -1 if fewer than k were found.
    """

    records: Records
    distances: Array
    positions: Ints


def records_of(embeddings: Any, names: Any, *, labels: Any = None, columns: Columns | None = None) -> Records:
    """Check items and return them as records, ready to be added to a collection.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings.
    names : sequence of str
        Name of each item; all must be different.
    labels : sequence of int or str, optional
        Class of each item.
    columns : dict of str to sequence, optional
        Values for filters and groups, one per item: numbers (NaN if missing) or text.

    Returns
    -------
    Records

    Raises
    ------
    ValueError
        If lengths differ, a name occurs twice, rows are not finite, or columns are neither numbers nor text.
    """
    index = Index(embeddings, names=names, labels=labels, columns=columns)
    return Records(index.names, index.embeddings, index.labels, index.columns)


def all_of(index: Index) -> Records:
    """Return all items of an index, which share its memory."""
    return Records(index.names, index.embeddings, index.labels, index.columns)


def nothing(dimensions: int) -> Records:
    """Return no items."""
    return Records(np.empty(0, dtype=np.str_), np.empty((0, dimensions), dtype=np.float32))
