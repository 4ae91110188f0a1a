"""Pairs of rows that lie near each other, exactly: all within a distance, or the nearest of all.

A block of rows meets the rows from its own first one on; what a float64 product places near enough is settled by
distances of those pairs alone, without cancellation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .distances import as_rows, check_distance, pair_distances, squared_distances, unit_rows
from .nearness import originals

CELLS = 2**22  # distances at a time
LARGEST = 2_000_000  # pairs that are listed


class NearPairs(NamedTuple):
    """Pairs i < j, nearest first, ties by i and then j.

    Attributes
    ----------
    i, j : ndarray of int, shape (p,)
    distances : ndarray of float64, shape (p,)
    """

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    distances: NDArray[np.float64]


def pairs_within(rows: Any, within: float, *, distance: str = "euclidean") -> NearPairs:
    """All pairs of rows at most so far apart.

    Parameters
    ----------
    rows : array-like of shape (n, d)
    within : float
        At least 0.
    distance : {"euclidean", "sqeuclidean", "cosine"}

    Returns
    -------
    NearPairs

    Raises
    ------
    ValueError
        Bad rows or distance, a negative or NaN `within`, or one that more than two million pairs meet.

    Notes
    -----
    n^2 d / 2 products in float64; memory: a copy of the rows, four million distances, and the pairs found.

    Examples
    --------
    >>> pairs_within([[0.0], [5.0], [0.1], [5.3]], 1.0)[:2]
    (array([0, 1]), array([2, 3]))
    """
    if not within >= 0:
        raise ValueError(f"within: expected a distance of at least 0, got {within}")
    return _search(as_rows(rows, "rows"), check_distance(distance), float(within), None)


def nearest_pairs(rows: Any, k: int, *, distance: str = "euclidean") -> NearPairs:
    """The k nearest of all pairs of rows; all pairs where there are fewer. As `pairs_within` otherwise."""
    if not 1 <= k <= LARGEST:
        raise ValueError(f"k: expected 1 to {LARGEST:,}, got {k}")
    return _search(as_rows(rows, "rows"), check_distance(distance), np.inf, k)


class Groups(NamedTuple):
    """Rows joined by chains of near pairs.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        The group of each row, numbered in the order of their first rows; -1 for a row that is near no other.
    distances : ndarray of float64, shape (n,)
        From each row to the nearest other of its group; infinity for a row without a group.
    """

    numbers: NDArray[np.intp]
    distances: NDArray[np.float64]


def groups_within(rows: Any, within: float, *, distance: str = "euclidean") -> Groups:
    """Groups of rows that chains of pairs at most so far apart join; parameters and errors as in `pairs_within`.

    Equal rows are one group whatever the distance, and any number of them is fine: pairs of distinct rows are listed.

    Examples
    --------
    >>> groups_within([[0.0], [5.0], [0.1], [5.3], [9.0]], 1.0).numbers
    array([ 0,  1,  0,  1, -1])
    """
    x = as_rows(rows, "rows")
    distinct, place, copies = np.unique(originals(x), return_inverse=True, return_counts=True)
    pairs = pairs_within(x[distinct], within, distance=distance)
    links = coo_array((np.ones(len(pairs.i)), (pairs.i, pairs.j)), shape=(len(distinct), len(distinct)))
    joined = connected_components(links, directed=False)[1][place]
    nearest = np.where(copies > 1, 0.0, np.inf)
    np.minimum.at(nearest, pairs.i, pairs.distances)
    np.minimum.at(nearest, pairs.j, pairs.distances)
    found = np.isfinite(nearest[place])
    first, number = np.unique(joined[found], return_index=True, return_inverse=True)[1:]
    numbers = np.full(len(x), -1, dtype=np.intp)
    numbers[found] = np.argsort(np.argsort(first))[number]
    return Groups(numbers, nearest[place])


def _search(rows: NDArray[Any], distance: str, within: float, k: int | None) -> NearPairs:
    x = unit_rows(rows) if distance == "cosine" else rows.astype(np.float64, copy=False)
    x = x - x.mean(axis=0) if distance != "cosine" else x
    found = NearPairs(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))
    start = 0
    while start < len(x) - 1:
        stop = min(len(x), start + max(1, CELLS // (len(x) - start)))
        i, j = _near(x, start, stop, distance, within, k)
        if len(i) + len(found.i) > LARGEST and k is None:
            raise ValueError(f"within: more than {LARGEST:,} pairs lie within {within:g}; choose a smaller distance")
        d = pair_distances(rows, rows, i, j, distance)
        keep = d <= within
        found = _merged(found, NearPairs(i[keep], j[keep], d[keep]), k)
        if k is not None and len(found.i) == k:
            within = float(found.distances[-1])
            if within == 0:
                break  # pairs of later rows come after these
        start = stop
    return found


def _near(
    x: NDArray[np.float64], start: int, stop: int, distance: str, within: float, k: int | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs (i, j), i in start..stop and j > i, that may lie within the distance, and may be among the k nearest."""
    left, right = x[start:stop], x[start:]
    if distance == "cosine":
        table, limit, scale = 1.0 - left @ right.T, within, 1.0
    else:
        table, limit = squared_distances(left, right), within**2 if distance == "euclidean" else within
        scale = float(np.einsum("ij,ij->i", right, right).max())
    table[np.tri(*table.shape, dtype=np.bool_)] = np.inf
    if k is not None and np.isinf(within) and table.size > k:
        limit = float(np.partition(table.ravel(), k - 1)[k - 1])
    row, column = np.nonzero(table <= limit + 1e-14 * x.shape[1] * scale)
    upper = column > row
    return row[upper] + start, column[upper] + start


def _merged(old: NearPairs, new: NearPairs, k: int | None) -> NearPairs:
    i, j, d = (np.concatenate(both) for both in zip(old, new, strict=True))
    order = np.lexsort((j, i, d))[:k]
    return NearPairs(i[order], j[order], d[order])
