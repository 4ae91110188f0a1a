"""Exact search among the items of an index that meet a filter: in place at first, and in a copy of them if it pays."""

from __future__ import annotations

import numpy as np

from ..neighbors.nearest import Gallery
from ..numerics.types import AnyArray, Array, Bools, Ints

COPY_COST = 50
"""Time to copy an item and to prepare it for searches, relative to the time in which a query is compared with it: we
measured 1.13 s for 500,000 items of 128 dimensions, and 0.043 s for a query among 1,000,000."""


class Filtered:
    """The items that meet a filter.

    A query can be compared with all items, of which the others are then left out, or with a copy of the items that meet
    the filter. The first takes time at each search, and the second takes time once, and memory. So the copy is made
    when the comparisons with the others have taken as long as the copy does.

    Parameters
    ----------
    embeddings : ndarray of float32, shape (n, d)
        Embeddings of all items.
    meets : ndarray of bool, shape (n,)
        Whether each item meets the filter.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which items are compared.
    """

    def __init__(self, embeddings: AnyArray, meets: Bools, distance: str) -> None:
        self.rows = np.flatnonzero(meets)
        self._others = np.flatnonzero(~meets)
        self._embeddings = embeddings
        self._distance = distance
        self._compared = 0  # pairs of a query and an item that does not meet the filter
        self._copy: Gallery | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def nearest(self, queries: AnyArray, k: int, everything: Gallery | None) -> tuple[Array, Ints]:
        """Return distances (n, k) and item numbers (n, k) of the k nearest items that meet the filter, nearest first.

        Parameters
        ----------
        queries : ndarray of shape (n, d)
            Queries.
        k : int
            Number of neighbors, at most as many as meet the filter.
        everything : Gallery or None
            All items, if they are prepared for searches already.
        """
        copy = self._copy
        if copy is None and everything is not None:
            self._compared += len(queries) * len(self._others)
            if self._compared <= COPY_COST * len(self.rows):
                return everything.nearest(queries, k, hidden=self._cells_of_others)
        if copy is None:
            copy = Gallery(self._embeddings[self.rows], self._distance)
            self._copy = copy
        distances, positions = copy.nearest(queries, k)
        return distances, self.rows[positions]

    def _cells_of_others(self, queries: Ints) -> tuple[Ints, Ints]:
        """Return the cells of a table of queries and items, (b, n), whose item does not meet the filter."""
        return np.arange(len(queries))[:, None], self._others[None, :]
