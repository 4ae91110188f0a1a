"""Pairs of items that people or a model have listed, beside the classes of items or instead of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

UNSURE = -1.0
"""Degree of a pair that is neither similar nor dissimilar, such as a negative that is doubtful."""


@dataclass(frozen=True, eq=False)
class PairsOfItems:
    """Tuples of items, and the pairs in them.

    Parameters
    ----------
    tuples : ndarray of int64, shape (t, w)
        Items that are trained together, such as an anchor, a positive and negatives; -1 after the last of a tuple.
    i, j : ndarrays of int64, shape (m,)
        Items of each pair.
    degree : ndarray of float32, shape (m,)
        How similar they are: 1 for similar, 0 for dissimilar, between them for degrees, and `UNSURE`.
    by_class : bool
        Whether pairs that are not listed are similar within a class and dissimilar otherwise; they are unknown
        otherwise.
    asks : ndarray of bool, shape (n,), or None
        Whether each item is a query, which searches the others, the documents; None if all search each other.
    searched : int
        Number of documents that are items of a gallery. Their numbers follow those of the queries.
    """

    tuples: NDArray[np.int64]
    i: NDArray[np.int64]
    j: NDArray[np.int64]
    degree: NDArray[np.float32]
    by_class: bool
    asks: NDArray[np.bool_] | None = None
    searched: int = 0

    def __len__(self) -> int:
        return len(self.i)

    def subset(self, chosen: NDArray[np.int64], n: int) -> PairsOfItems | None:
        """Return what is listed among some of `n` items, with their numbers there; None if it is nothing."""
        place = np.full(n + self.searched + 1, -1, dtype=np.int64)  # the last is that of -1
        place[chosen] = np.arange(len(chosen))
        place[n:-1] = len(chosen) + np.arange(self.searched)  # of a gallery, all stay
        i = place[self.i]
        j = place[self.j]
        kept = (i >= 0) & (j >= 0)
        if not kept.any():
            return None
        tuples = place[self.tuples]
        there = tuples >= 0
        tuples = np.take_along_axis(tuples, np.argsort(~there, axis=1, kind="stable"), axis=1)
        tuples = tuples[there[:, 0] & (there.sum(axis=1) > 1)]  # an anchor, and something to compare it with
        asks = None if self.asks is None else self.asks[chosen]
        return replace(self, tuples=tuples, i=i[kept], j=j[kept], degree=self.degree[kept], asks=asks)

    def after(self, n: int) -> PairsOfItems:
        """Return the same for items that follow `n` others."""
        asks = None if self.asks is None else np.concatenate([np.zeros(n, dtype=bool), self.asks])
        tuples = np.where(self.tuples < 0, -1, self.tuples + n)
        return replace(self, tuples=tuples, i=self.i + n, j=self.j + n, asks=asks)

    def joined(self, other: PairsOfItems) -> PairsOfItems:
        """Return what both list, of the same items."""
        width = max(self.tuples.shape[1], other.tuples.shape[1])
        tuples = [
            np.pad(one.tuples, ((0, 0), (0, width - one.tuples.shape[1])), constant_values=-1) for one in (self, other)
        ]
        asks = None
        if self.asks is not None and other.asks is not None:
            asks = other.asks.copy()
            asks[: len(self.asks)] |= self.asks
        return PairsOfItems(
            asks=asks,
            tuples=np.concatenate(tuples),
            i=np.concatenate([self.i, other.i]),
            j=np.concatenate([self.j, other.j]),
            degree=np.concatenate([self.degree, other.degree]),
            by_class=self.by_class and other.by_class,
        )
