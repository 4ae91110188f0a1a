"""Groups of near rows that are proposed without labels: neighbors of each other, merged by their mean distance.

Rows x and y are mutual neighbors if each is among the k nearest of the other. Groups begin as single rows. In each
round, two groups with a pair of mutual neighbors are merged if they are the nearest such groups of each other, by the
mean squared distance of their members (average linkage):

    D(a, b) = Q_a / |a| + Q_b / |b| - 2 S_a . S_b / (|a| |b|),    S = sum of the rows, Q = sum of their squares

so that a chain of near pairs does not join what is far apart on average, as connected components do. Mutual neighbors
bound the work: there are at most n k / 2 pairs, and no n x n table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows, check_distance, row_squares, unit_rows
from ..numerics.types import AnyArray, Array, Bools, Ints
from .blocks import originals
from .nearest import nearest

TYPICAL_RANK = 10
"""Neighbor whose median distance is the default limit: a class of ten items is not split, and few larger ones merge."""

MERGED_CELLS = 1 << 22  # numbers of group sums that are gathered at a time


class MutualPairs(NamedTuple):
    """Pairs i < j of mutual neighbors (p,), and the limit: the median distance of a row to its last neighbor."""

    i: Ints
    j: Ints
    typical: float


class ProposedGroups(NamedTuple):
    """Groups that are proposed without labels.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        Group of each row, numbered from the largest to the smallest; -1 for a row without a group.
    within : float
        Largest mean distance of two groups that were merged.
    """

    numbers: Ints
    within: float


def propose_groups(
    rows: Any, *, within: float | None = None, most: int | None = None, distance: str = "euclidean"
) -> ProposedGroups:
    """Propose groups of rows that may belong to one class.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    within : float, optional
        Largest mean distance of two groups that are merged. By default, the median distance of a row to its tenth
        nearest: larger values make larger groups.
    most : int, optional
        Largest number of rows in a group.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance by which rows are compared; the mean of "euclidean" is the root of the mean square.

    Returns
    -------
    ProposedGroups

    Raises
    ------
    ValueError
        If the rows or the distance are invalid, `within` is negative or NaN, or `most` is below 2.

    Examples
    --------
    >>> rows = [[0.0], [0.1], [5.0], [0.2], [5.1], [20.0]]
    >>> propose_groups(rows, within=1.0).numbers
    array([ 0,  0,  1,  0,  1, -1])
    """
    if within is not None and not within >= 0:
        raise ValueError(f"within: expected a distance of at least 0, got {within}")
    if most is not None and most < 2:
        raise ValueError(f"most: expected at least 2 items of a group, got {most}")
    given = as_rows(rows, "rows")
    check_distance(distance)
    # equal rows are one group from the start: the k nearest of one of many copies would be some of the others only
    distinct, place, copies = np.unique(originals(given), return_inverse=True, return_counts=True)
    x = given[distinct]
    limit = within or 0.0
    numbers = np.arange(len(x))
    if len(x) > 1:
        pairs = mutual_pairs(x, min(TYPICAL_RANK, len(x) - 1), distance)
        limit = pairs.typical if within is None else float(within)
        points = unit_rows(x) if distance == "cosine" else x - x.mean(axis=0, dtype=np.float64)
        numbers = merged(points, copies, pairs, squared(limit, distance), most or len(given))
    return ProposedGroups(by_size(numbers[place]), limit)


def squared(within: float, distance: str) -> float:
    """Return the squared distance of two points at a distance; for the cosine, of unit vectors."""
    return {"cosine": 2 * within, "euclidean": within * within, "sqeuclidean": within}[distance]


def mutual_pairs(rows: AnyArray, k: int, distance: str) -> MutualPairs:
    """Return the pairs of rows of which each is among the k nearest of the other."""
    n = len(rows)
    distances, near = nearest(rows, rows, k, distance=distance, exclude_self=True)
    ahead = np.repeat(np.arange(n), k) * n + near.ravel()
    back = near.ravel() * n + np.repeat(np.arange(n), k)
    both = ahead[np.isin(ahead, back)]
    i = both // n
    j = both % n
    return MutualPairs(i[i < j], j[i < j], float(np.median(distances[:, -1])))


def merged(points: AnyArray, copies: Ints, pairs: MutualPairs, limit: float, most: int) -> Ints:
    """Return the group of each point (n,), which occurs `copies` times, by average linkage in rounds."""
    n = len(points)
    group = np.arange(n)
    sizes = copies.astype(np.float64)
    # S (n, d) and Q (n,); those of groups that were merged into others are not used
    sums = points * sizes[:, None]
    squares = row_squares(points) * sizes
    a = pairs.i
    b = pairs.j
    while len(a):
        apart = mean_squares(sums, squares, sizes, a, b)
        # sums of squares cancel, so that equal points may be a rounding error apart
        slack = 1e-12 * (squares[a] / sizes[a] + squares[b] / sizes[b])
        # others stay: they may come nearer, when one of their groups has grown
        near = np.flatnonzero((apart <= limit + slack) & (sizes[a] + sizes[b] <= most))
        chosen = near[nearest_of_each_other(a[near], b[near], apart[near], n)]
        into = a[chosen]
        gone = b[chosen]
        if len(gone) == 0:
            break
        sums[into] += sums[gone]
        squares[into] += squares[gone]
        sizes[into] += sizes[gone]
        moved = np.arange(n)
        moved[gone] = into
        group = moved[group]
        a, b = distinct_pairs(moved[a], moved[b], n)
    return group


def mean_squares(sums: Array, squares: Array, sizes: Array, a: Ints, b: Ints) -> Array:
    """Return the mean squared distance of the members of groups a and b (p,)."""
    dots = np.empty(len(a))
    step = max(1, MERGED_CELLS // sums.shape[1])
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        dots[part] = np.einsum("ij,ij->i", sums[a[part]], sums[b[part]])
    found: Array = squares[a] / sizes[a] + squares[b] / sizes[b] - 2 * dots / (sizes[a] * sizes[b])
    return found


def nearest_of_each_other(a: Ints, b: Ints, apart: Array, n: int) -> Bools:
    """Return which pairs (p,) are the nearest of both of their groups; of equally near ones, the first."""
    order = np.lexsort((b, a, apart))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    first = np.full(n, len(order))
    np.minimum.at(first, a, rank)
    np.minimum.at(first, b, rank)
    found: Bools = (first[a] == rank) & (first[b] == rank)
    return found


def distinct_pairs(a: Ints, b: Ints, n: int) -> tuple[Ints, Ints]:
    """Return every pair of two groups once, the smaller number first."""
    low = np.minimum(a, b)
    high = np.maximum(a, b)
    keys = np.unique(low[low < high] * n + high[low < high])
    return keys // n, keys % n


def by_size(group: Ints) -> Ints:
    """Number groups of at least two rows from the largest to the smallest, equal ones by their first row; others -1."""
    first, number, counts = np.unique(group, return_index=True, return_inverse=True, return_counts=True)[1:]
    order = np.lexsort((first, -counts))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return np.where(counts[number] > 1, rank[number], -1)
