"""Groups of near rows that are proposed without labels: neighbors of each other, merged by their mean distance.

Rows x and y are linked if each is among the ten nearest of the other, or one among the three nearest, so that no row is
without a link. Groups begin as single rows. In each round, two groups with a pair of linked rows are merged if they are
the nearest such groups of each other, by the mean squared distance of their members (average linkage):

    D(a, b) = Q_a / |a| + Q_b / |b| - 2 S_a . S_b / (|a| |b|),    S = sum of the rows, Q = sum of their squares

so that a chain of near pairs does not join what is far apart on average, as connected components do. The links bound
the work: there are fewer than 10 n pairs, and no n x n table.

The distance up to which groups are merged is the one of a few candidates whose groups have the largest silhouette. A
row with the mean squared distance a to the others of its group, and b to the nearest other group of two or more, has

    s = (b - a) / max(a, b),    s = 0 for a row alone

so that copies of items form small groups, and classes large ones.

Rows without any structure have groups of some silhouette, too: 0.8 in one dimension, 0.06 in a hundred. So the same is
done with rows that are drawn from the normal distribution of the mean and the covariance of the given ones, and groups
are clear if their mean silhouette is larger by a margin.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows, check_distance, row_squares, unit_rows
from ..numerics.types import AnyArray, Array, Bools, Ints
from .blocks import originals
from .near_pairs import FIFTH, have_duplicates
from .nearest import nearest

MUTUAL = 10
"""Nearest rows: two rows are linked if each is among those of the other."""

SURE = 3
"""Nearest rows with which a row is linked in any case, so that one at the rim of a class is not left alone."""

RANKS = (1, 2, 3, 5, 10, 20, 50)
"""Neighbors whose median distances are candidates of the default limit."""

NEAR_SHARE = 0.1
"""Share of the rows among which neighbors are near."""

FARTHER = 4
"""Candidates above these, up to the median distance of two rows."""

CLEAR = 0.25
"""Mean silhouette from which groups show a structure (Kaufman & Rousseeuw, 1990)."""

JUDGED = 1000
"""Rows whose silhouettes are computed."""

CLEARER = 0.1
"""By how much the mean silhouette of clear groups is larger than that of random rows, at least: for rows spread evenly
in a few dimensions, which have no tails, it is larger by up to 0.09."""

RANDOM_ROWS = 1000
"""Random rows with which the groups are compared."""

FEWEST_JUDGED = 20
"""Rows from which groups are compared with those of random rows, some of which are clear by chance among fewer."""

MERGED_CELLS = 1 << 22  # numbers of group sums that are gathered at a time


class ProposedGroups(NamedTuple):
    """Groups that are proposed without labels.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        Group of each row, numbered from the largest to the smallest; -1 for a row without a group.
    within : float
        Largest mean distance of two groups that were merged.
    silhouette, by_chance : float
        Mean silhouette of the groups, and of those of random rows with the same mean and covariance. NaN if `within`
        was given, or if there are fewer than 20 different rows.
    duplicates : bool
        Whether some rows are equal, or so near to each other that this is no chance.
    """

    numbers: Ints
    within: float
    silhouette: float = np.nan
    by_chance: float = np.nan
    duplicates: bool = False

    @property
    def unclear(self) -> bool:
        """Whether the groups are hardly clearer than those of random rows; False if that is not known."""
        return self.silhouette < self.by_chance + CLEARER


class JudgedGroups(NamedTuple):
    """Groups of n distinct rows at the best of several limits.

    Attributes
    ----------
    group : ndarray of int, shape (n,)
        Group of each row.
    within : float
        The limit.
    silhouette : float
        Mean silhouette; NaN if only one limit was tried.
    duplicates : bool
        Whether some rows are so near to each other that this is no chance.
    """

    group: Ints
    within: float
    silhouette: float
    duplicates: bool


def propose_groups(
    rows: Any, *, within: float | None = None, most: int | None = None, distance: str = "euclidean"
) -> ProposedGroups:
    """Propose groups of rows that may belong to one class.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    within : float, optional
        Largest mean distance of two groups that are merged: larger values make larger groups. By default, of
        several distances between the median distance of a row to its nearest and that of two rows, the one whose groups
        have the largest mean silhouette, over at most 1,000 rows.
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
    if len(x) == 1:
        return ProposedGroups(by_size(place), within or 0.0)
    most = most or len(given)
    best = judged_groups(x, copies, within, most, distance)
    numbers = by_size(best.group[place])
    if within is not None or len(x) < FEWEST_JUDGED:
        return ProposedGroups(numbers, best.within)
    by_chance = silhouette_by_chance(x, most, distance)
    duplicates = best.duplicates or len(x) < len(given)
    return ProposedGroups(numbers, best.within, best.silhouette, by_chance, duplicates)


def judged_groups(x: AnyArray, copies: Ints, within: float | None, most: int, distance: str) -> JudgedGroups:
    """Return the groups of two or more distinct rows (n, d) within a limit, or within the best of several."""
    distances, near = nearest(x, x, min(RANKS[-1], len(x) - 1), distance=distance, exclude_self=True)
    pairs = linked_pairs(near[:, :MUTUAL])
    points = unit_rows(x) if distance == "cosine" else x - x.mean(axis=0, dtype=np.float64)
    limits = [float(within or 0.0)]
    farther: list[float] = []
    if within is None:
        limits, farther = candidates_of(np.median(distances, axis=0), typical_distance(points, distance), len(x))
    limits = [*limits, *farther]
    found = [merged(points, copies, pairs, squared(limit, distance), most) for limit in limits]
    if len(found) == 1:
        return JudgedGroups(found[0], limits[0], np.nan, duplicates=False)
    scores = np.array([mean_silhouette(points, copies, group) for group in found])
    best = clearest(scores, len(farther))
    duplicates = have_duplicates(distances[:, :FIFTH], near[:, 0], distance)
    return JudgedGroups(found[best], limits[best], float(scores[best]), duplicates)


def silhouette_by_chance(x: AnyArray, most: int, distance: str) -> float:
    """Return the mean silhouette of the groups of random rows with the mean and the covariance of rows (n, d)."""
    points = unit_rows(x) if distance == "cosine" else x
    some = points[np.linspace(0, len(points) - 1, min(len(points), RANDOM_ROWS)).astype(np.intp)].astype(np.float64)
    n = len(some)
    mean = some.mean(axis=0)
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(RANDOM_ROWS // n):
        # sums of rows times independent normal numbers are normal, with the covariance of the rows
        drawn = rng.normal(size=(n, n)) @ (some - mean) / np.sqrt(n) + mean
        scores.append(judged_groups(drawn, np.ones(n, dtype=np.intp), None, most, distance).silhouette)
    return float(np.mean(scores))


def candidates_of(typical: Array, apart: float, n: int) -> tuple[list[float], list[float]]:
    """Return candidates of the default limit: median distances of near neighbors, and others up to that of two rows.

    Half of all pairs of copies are within the median distance of a row to its nearest; all are within the mean of this
    distance and the next, which leads to other items. Neighbors are near that are among a tenth of the n rows.
    """
    medians = [float(typical[rank - 1]) for rank in RANKS if rank <= len(typical)]
    between = [float(np.sqrt(low * high)) for low, high in pairwise(medians)]
    beyond = np.geomspace(medians[-1], apart, FARTHER + 1)[1:].tolist() if 0 < medians[-1] < apart else []
    limits = [*sorted([*medians, *between]), *beyond]
    near = 2 * max(sum(rank <= n * NEAR_SHARE for rank in RANKS), 1) - 1  # with those between
    return limits[:near], limits[near:]


def typical_distance(points: AnyArray, distance: str) -> float:
    """Return the median distance of two points."""
    some = points[np.linspace(0, len(points) - 1, min(len(points), JUDGED)).astype(np.intp)]
    squares = row_squares(some)
    apart = squares[:, None] + squares - 2 * some @ some.T
    middle = max(float(np.median(apart[np.triu_indices(len(some), 1)])), 0.0)  # rounding may leave less
    return {"cosine": middle / 2, "euclidean": middle**0.5, "sqeuclidean": middle}[distance]


def squared(within: float, distance: str) -> float:
    """Return the squared distance of two points at a distance; for the cosine, of unit vectors."""
    return {"cosine": 2 * within, "euclidean": within * within, "sqeuclidean": within}[distance]


def linked_pairs(near: Ints) -> tuple[Ints, Ints]:
    """Return the pairs i < j of rows of which each is among the nearest (n, k) of the other, or one among the first."""
    n, k = near.shape
    ahead = np.repeat(np.arange(n), k) * n + near.ravel()
    back = near.ravel() * n + np.repeat(np.arange(n), k)
    first = np.tile(np.arange(k) < SURE, n)
    linked = ahead[np.isin(ahead, back) | first]
    i = linked // n
    j = linked % n
    return distinct_pairs(i, j, n)


def merged(points: AnyArray, copies: Ints, pairs: tuple[Ints, Ints], limit: float, most: int) -> Ints:
    """Return the group of each point (n,), which occurs `copies` times, by average linkage in rounds."""
    n = len(points)
    group = np.arange(n)
    sizes = copies.astype(np.float64)
    # S (n, d) and Q (n,); those of groups that were merged into others are not used
    sums = points * sizes[:, None]
    squares = row_squares(points) * sizes
    a, b = pairs
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


def clearest(scores: Array, farther: int) -> int:
    """Return which of several groupings has the largest mean silhouette.

    The last ones, whose limits are farther than the neighbors of a row, need groups that are clearly apart.
    """
    unclear = (np.arange(len(scores)) >= len(scores) - farther) & (scores < CLEAR)
    return int(np.where(unclear, -1.0, scores).argmax())


def mean_silhouette(points: AnyArray, copies: Ints, group: Ints) -> float:
    """Return the mean silhouette of at most 1,000 points, evenly chosen, each of which occurs `copies` times."""
    group = np.unique(group, return_inverse=True)[1]
    sizes = np.bincount(group, copies)
    sums = np.zeros((len(sizes), points.shape[1]))
    np.add.at(sums, group, points * copies[:, None])
    squares = np.bincount(group, row_squares(points) * copies)
    means = sums / sizes[:, None]
    asked = np.linspace(0, len(points) - 1, min(len(points), JUDGED)).astype(np.intp)
    total = 0.0
    for part in np.array_split(asked, -(-len(asked) * len(sizes) // MERGED_CELLS)):
        rows = np.arange(len(part))
        own = group[part]
        # mean squared distance of x to each group: |x|^2 + Q / n - 2 x . S / n
        apart = row_squares(points[part])[:, None] + squares / sizes - 2 * points[part] @ means.T
        apart = np.maximum(apart, 0.0)  # rounding may leave less
        a = apart[rows, own] * sizes[own] / np.maximum(sizes[own] - 1, 1)
        apart[:, sizes == 1] = np.inf
        apart[rows, own] = np.inf
        b = apart.min(axis=1)
        larger = np.maximum(a, b)
        # with one group alone, b is infinite, and nothing is known of how far apart groups are
        known = (sizes[own] > 1) & np.isfinite(b) & (larger > 0)
        total += float(np.sum((b[known] - a[known]) / larger[known] * copies[part[known]]))
    return total / float(copies[asked].sum())


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
