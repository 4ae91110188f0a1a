"""Distances that are computed already, such as edit distances or those of another library, as a search reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..labels import class_numbers
from ..numerics.distances import as_rows
from ..numerics.types import Array, Ints

PRECOMPUTED = "precomputed"


class GivenDistances:
    """A table of the distances of queries to the items that they search.

    Parameters
    ----------
    distances : array-like of shape (n, m)
        Distance of each query to each item, smaller for nearer ones.
    labels : array-like of shape (n,)
        Class of each query.
    item_labels : array-like of shape (m,), optional
        Class of each item. By default, the queries search each other: the table is square, and its diagonal is not
        read.

    Attributes
    ----------
    query_class, item_class : ndarray of int, of shape (n,) and (m,)
        Numbers of the classes.
    leave_one_out : bool
        Whether the queries search each other.
    row_bytes : int
        Memory in bytes of the temporary arrays of one query.
    """

    def __init__(self, distances: Any, labels: Any, item_labels: Any = None) -> None:
        self.table = as_rows(distances, "embeddings")
        self.leave_one_out = item_labels is None
        if self.leave_one_out:
            (self.query_class,) = class_numbers(labels)
            self.item_class = self.query_class
        else:
            self.query_class, self.item_class = class_numbers(labels, item_labels)
        expected = (len(self.query_class), len(self.item_class))
        if self.table.shape != expected:
            columns = "label" if self.leave_one_out else "gallery label"
            what = f"distances of shape {expected}, a row for each label and a column for each {columns}"
            raise ValueError(f"embeddings: expected {what}, got {self.table.shape}")
        self.row_bytes = self.table.itemsize * len(self.item_class)

    def values(self, rows: Ints) -> Array:
        """Return the (b, m) distances of these queries, a copy; infinity for a query itself."""
        values = self.table[rows]
        if self.leave_one_out:
            values[np.arange(len(rows)), rows] = np.inf
        return values
