"""Exact pairs of nearby rows: all pairs within a distance, or the nearest pairs of all.

A block of rows is compared with all rows from its own first one on. A matrix product, with its error allowed for,
finds the pairs that may be near enough; distances of these pairs alone, without cancellation, decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..numerics.distances import as_rows, check_distance, chunks, pair_distances, starts, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from ..progress import stage
from .blocks import originals
from .nearest import nearest, true_cells

PAIR_BLOCK_CELLS = 2**22  # number of distances that are computed at a time
MAX_LISTED_PAIRS = 2_000_000  # maximum number of pairs in a result
FIFTH = 5  # neighbor with which the nearest one is compared, where a distance of near duplicates is suggested
STANDS_OUT = 0.5  # largest ratio of these two distances for a pair that stands out
CHANCE = 0.01  # and the largest chance of its ratio where there are no duplicates
STANDING_OUT_SHARE = 0.9  # smallest share of the pairs within the suggested distance that stand out
MANY_CANDIDATES = 1 / 64  # share of candidates among all pairs above which a float64 product is faster


class NearPairs(NamedTuple):
    """Pairs i < j, nearest first; ties are broken by i and then j.

    Attributes
    ----------
    i, j : ndarray of int, shape (p,)
        Row numbers.
    distances : ndarray of float64, shape (p,)
        Distances of the pairs.
    """

    i: Ints
    j: Ints
    distances: Array


def pairs_within(rows: Any, within: float, *, distance: str = "euclidean") -> NearPairs:
    """Return all pairs of rows that are at most `within` apart.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    within : float
        Largest distance, at least 0.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance by which rows are compared.

    Returns
    -------
    NearPairs
        Pairs and their distances.

    Raises
    ------
    ValueError
        The rows or the distance are invalid, `within` is negative or NaN, or more than two million pairs are within
        it.

    Notes
    -----
    The computation takes n^2 d / 2 products in float32, and memory for a float32 copy of the rows, four million
    distances, and the pairs found.

    Examples
    --------
    >>> pairs_within([[0.0], [5.0], [0.1], [5.3]], 1.0)[:2]
    (array([0, 1]), array([2, 3]))
    """
    if not within >= 0:
        raise ValueError(f"within: expected a distance of at least 0, got {within}")
    return _search(as_rows(rows, "rows"), check_distance(distance), float(within), None)


def nearest_pairs(rows: Any, k: int, *, distance: str = "euclidean") -> NearPairs:
    """Return the k nearest of all pairs of rows, or all pairs if there are fewer; otherwise like `pairs_within`."""
    if not isinstance(k, Integral) or not 1 <= k <= MAX_LISTED_PAIRS:
        raise ValueError(f"k: expected 1 to {MAX_LISTED_PAIRS:,}, got {k!r}")
    return _search(as_rows(rows, "rows"), check_distance(distance), np.inf, k)


def duplicate_distance(rows: Any, *, distance: str = "euclidean") -> float | None:
    """Suggest a distance within which rows are near duplicates, from the rows alone.

    A row and its nearest one stand out if they are much nearer to each other than either of them is to its fifth
    nearest: at most half as far, or less where such a ratio is common. The pairs are taken nearest first, as long as
    nine of ten stand out.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance by which rows are compared.

    Returns
    -------
    float or None
        The distance of the last of these pairs, rounded up to two digits; None if the nearest pair does not stand out,
        or there are fewer than seven rows.

    Notes
    -----
    Lowe (IJCV 2004) compares the nearest neighbor with the second in this way; the fifth allows for several copies of
    one item. Where rows are spread evenly in m dimensions, the ratio r of these distances is at most t with a chance of
    1 - (1 - t^m)^4, and log(r_2 / r_1) of the second and the first neighbor has the median log(2) / m (Facco et al.,
    2017), which estimates m. The largest ratio that stands out has a chance of 1%.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 8))
    >>> rows[:5] = rows[5:10] + 0.01
    >>> duplicate_distance(rows)
    0.029
    """
    x = as_rows(rows, "rows")
    check_distance(distance)
    n = len(x)
    if n < FIFTH + 2:
        return None
    distances, near = nearest(x, x, FIFTH, distance=distance, exclude_self=True)
    first = np.arange(n)
    second = near[:, 0]
    # a pair that both of its rows name counts once
    pairs = np.unique(np.column_stack([np.minimum(first, second), np.maximum(first, second)]), axis=0)
    i, j = pairs.T
    apart = pair_distances(x, x, i, j, distance)
    stands_out = apart <= largest_ratio(distances, distance) * np.minimum(distances[i, -1], distances[j, -1])
    order = np.argsort(apart, kind="stable")
    shares = np.cumsum(stands_out[order]) / np.arange(1, len(order) + 1)
    fails = np.flatnonzero(shares < STANDING_OUT_SHARE)
    far = np.flatnonzero(stands_out[order][: fails[0] if len(fails) else None])
    if len(far) == 0:
        return None
    return rounded_up(float(apart[order[far[-1]]]))


def have_duplicates(distances: Array, nearest: Ints, distance: str) -> bool:
    """Return whether some row is so near to its nearest that this has a chance of 1% among all rows.

    `distances` (n, 5) are those to the nearest rows, the first of which are `nearest` (n,).
    """
    if distances.shape[1] < FIFTH:
        return False
    fifth = distances[:, -1]
    ratio = largest_ratio(distances, distance, CHANCE / len(distances))
    return bool((distances[:, 0] <= ratio * np.minimum(fifth, fifth[nearest])).any())


def largest_ratio(distances: Array, distance: str, chance: float = CHANCE) -> float:
    """Return the largest ratio of the distances (n, 5) to the first and the fifth neighbor that stands out."""
    power = 1.0 if distance == "euclidean" else 2.0  # a cosine distance is half of a squared one
    known = distances[:, 0] > 0
    growth = float(np.median(np.log(distances[known, 1] / distances[known, 0]))) / power if known.any() else 0.0
    dimensions = np.log(2) / max(growth, 1e-3)
    by_chance = (1 - (1 - chance) ** (1 / (FIFTH - 1))) ** (1 / dimensions)
    return float(min(STANDS_OUT, by_chance) ** power)


def rounded_up(distance: float) -> float:
    """Return the smallest number of two digits that is not below a distance.

    >>> rounded_up(0.03412), rounded_up(12.0), rounded_up(0.0)
    (0.035, 12.0, 0.0)
    """
    if distance == 0:
        return 0.0
    places = 1 - int(np.floor(np.log10(distance)))
    digits = round(distance * 10.0**places, 9)  # 0.07 * 100 is a little more than 7
    return float(f"{int(np.ceil(digits))}e{-places}")


class Groups(NamedTuple):
    """Groups of rows that are connected by chains of near pairs.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        Group of each row, numbered in the order of their first rows; -1 for a row without a near row.
    distances : ndarray of float64, shape (n,)
        Distance from each row to the nearest other row of its group; infinity for a row without a group.
    """

    numbers: Ints
    distances: Array


class Links(NamedTuple):
    """Near pairs of rows, with equal rows as one.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        Number of each row among the m distinct ones.
    pairs : NearPairs
        Pairs of distinct rows.
    apart : ndarray of int, shape (n,), or None
        Group of each row, if pairs of rows of one group are left out. Then, every row is a distinct one.
    """

    place: Ints
    pairs: NearPairs
    apart: Ints | None


def links_within(rows: Any, within: float, *, distance: str = "euclidean", apart: Ints | None = None) -> Links:
    """Return the pairs of rows at most `within` apart, without those of rows of which `apart` (n,) is the same.

    Equal rows are one distinct row, unless `apart` is given: only pairs of distinct rows count toward the limit of two
    million. Otherwise, the function behaves like `pairs_within`.
    """
    if apart is not None:
        pairs = pairs_within(rows, within, distance=distance)
        kept = apart[pairs.i] != apart[pairs.j]
        return Links(np.arange(len(apart)), NearPairs(pairs.i[kept], pairs.j[kept], pairs.distances[kept]), apart)
    x = as_rows(rows, "rows")
    distinct, place = np.unique(originals(x), return_inverse=True)
    return Links(place, pairs_within(x[distinct], within, distance=distance), None)


def groups_apart(rows: Any, within: float, apart: Ints, *, distance: str = "euclidean") -> Groups:
    """Return the groups of `groups_within`, but without the pairs of rows of which `apart` (n,) has the same number.

    Examples
    --------
    >>> groups_apart([[0.0], [0.1], [5.0], [5.1]], 1.0, np.array([0, 0, 1, 2])).numbers
    array([-1, -1,  0,  0])
    """
    return linked(links_within(rows, within, distance=distance, apart=apart))


def groups_within(rows: Any, within: float, *, distance: str = "euclidean") -> Groups:
    """Return the groups of rows that are connected by chains of pairs at most `within` apart.

    Equal rows are in the same group whatever `within` is. There may be any number of them: only pairs of distinct rows
    count toward the limit of two million. Otherwise, the function behaves like `pairs_within`.

    Examples
    --------
    >>> groups_within([[0.0], [5.0], [0.1], [5.3], [9.0]], 1.0).numbers
    array([ 0,  1,  0,  1, -1])
    """
    return linked(links_within(rows, within, distance=distance))


def linked(links: Links) -> Groups:
    """Return the groups of rows that are connected by chains of near pairs."""
    pairs = links.pairs
    copies = np.bincount(links.place)
    # the groups are the connected components of the graph whose edges are the pairs
    edges = coo_array((np.ones(len(pairs.i)), (pairs.i, pairs.j)), shape=(len(copies), len(copies)))
    joined = connected_components(edges, directed=False)[1][links.place]
    # a copy is at distance 0, also where no other row is near; both ends of a pair are near each other
    nearest = np.where(copies > 1, 0.0, np.inf)
    np.minimum.at(nearest, pairs.i, pairs.distances)
    np.minimum.at(nearest, pairs.j, pairs.distances)
    return _numbered(joined, nearest[links.place])


class PairCounts(NamedTuple):
    """Numbers of pairs of rows that have a class.

    Attributes
    ----------
    within : int
        Pairs within the distance.
    right : int
        Those of one class among them.
    of_class : int
        All pairs of one class, near or not.
    """

    within: int
    right: int
    of_class: int


def count_by_class(links: Links, labels: Ints) -> PairCounts:
    """Count near pairs by whether both rows have the same of `labels` (n,); rows of -1 have none, and do not count.

    Examples
    --------
    >>> count_by_class(links_within([[0.0], [0.1], [0.2], [5.0]], 1.0), np.array([0, 0, 1, 1]))
    PairCounts(within=3, right=1, of_class=2)
    """
    known = np.flatnonzero(labels >= 0)
    of_class = pairs_in(labels[known])
    if links.apart is not None:
        of_class -= pairs_in(np.column_stack([labels, links.apart])[known])
    cells = (np.ones(len(known), dtype=np.int64), (links.place[known], labels[known]))
    # rows of each class among the copies of a distinct row, (m, c)
    counts = coo_array(cells, shape=(links.place.max(initial=0) + 1, labels.max(initial=0) + 1)).tocsr()
    sizes = counts.sum(axis=1)
    within = (sizes * (sizes - 1) // 2).sum()
    right = (counts.data * (counts.data - 1) // 2).sum()
    i = links.pairs.i
    j = links.pairs.j
    within += sizes[i] @ sizes[j]
    right += counts[i].multiply(counts[j]).sum()
    return PairCounts(int(within), int(right), of_class)


def pairs_in(kinds: AnyArray) -> int:
    """Return the number of pairs of equal rows.

    >>> pairs_in(np.array([0, 0, 1, 0]))
    3
    """
    sizes = np.unique(kinds, axis=0, return_counts=True)[1]
    return int((sizes * (sizes - 1) // 2).sum())


def _numbered(joined: Ints, nearest: Array) -> Groups:
    """Number the groups in the order of their first rows; rows that are near no other are in none."""
    found = np.isfinite(nearest)
    first, number = np.unique(joined[found], return_index=True, return_inverse=True)[1:]
    numbers = np.full(len(joined), -1, dtype=np.intp)
    numbers[found] = np.argsort(np.argsort(first))[number]
    return Groups(numbers, nearest)


def _search(rows: AnyArray, distance: str, within: float, k: int | None) -> NearPairs:
    table = Nearness(rows, distance)
    found = NearPairs(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))
    for start, stop in counted_blocks(len(rows)):
        width = PAIR_BLOCK_CELLS // (stop - start)
        for first in range(start, len(rows), width):
            i, j = table.pairs(slice(start, stop), slice(first, first + width), within, k)
            if len(i) + len(found.i) > MAX_LISTED_PAIRS and k is None:
                raise ValueError(
                    f"within: more than {MAX_LISTED_PAIRS:,} pairs lie within {within:g}; choose a smaller distance"
                )
            d = pair_distances(rows, rows, i, j, distance)
            keep = d <= within
            found = _merged(found, NearPairs(i[keep], j[keep], d[keep]), k)
            # pairs of later blocks count only if they are no farther than the k-th so far
            if k is not None and len(found.i) == k:
                within = float(found.distances[-1])
        if within == 0 and k is not None:
            break  # pairs of later rows come after these
    return found


def counted_blocks(n: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of blocks of rows that take `PAIR_BLOCK_CELLS` with all following rows, or a part of these.

    A product of few rows takes several times as long per row, so a block has many rows and is compared with the others
    in parts.
    """
    start = 0
    least = int(PAIR_BLOCK_CELLS**0.5) // 4
    with stage("comparing", n * (n - 1) // 2) as done:
        while start < n - 1:
            stop = min(n, start + max(1, least, PAIR_BLOCK_CELLS // (n - start)))
            yield start, stop
            done((stop - start) * (2 * n - start - stop - 1) // 2)
            start = stop


class Nearness:
    """Nearness of rows to later rows: the cosine, or -|x - y|^2 / 2 in units of the square of the longest row.

    A float32 product finds candidates; if rounding leaves too many of them, a float64 product does.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Rows.
    distance : str
        Distance by which rows are compared.
    """

    def __init__(self, rows: AnyArray, distance: str) -> None:
        self.rows = rows
        self.distance = distance
        self.unit = 1.0
        if distance != "cosine":
            self.center = rows.mean(axis=0, dtype=np.float64)
            squares = (np.einsum("ij,ij->i", x, x).max() for x in (part - self.center for part in chunks(rows)))
            # a power of two, by which division does not round; no value is above 2 in this unit
            self.unit = float(2.0 ** np.ceil(np.log2(max(float(np.sqrt(max(squares))), 1e-100))))
        self.single = np.empty((len(rows), rows.shape[1] + 2), dtype=np.float32)
        for start, part in zip(starts(rows), chunks(rows), strict=True):
            of_part = slice(start, start + len(part))
            self.single[of_part] = self.factors(of_part, np.float32)

    def factors(self, rows: slice, dtype: Any) -> AnyArray:
        """Return rows with two more columns, which make the inner product of two rows their nearness."""
        x = self.rows[rows]
        if self.distance == "cosine":
            x = unit_rows(x)
        else:
            x = (x - self.center) / self.unit
        if self.distance == "cosine":
            half = 0.0 * x[:, 0]
        else:
            half = np.einsum("ij,ij->i", x, x) / 2
        return np.column_stack([x, -half, np.ones(len(x))]).astype(dtype)

    def bar(self, within: float) -> float:
        """Return the nearness of two rows at this distance."""
        if self.distance == "cosine":
            return 1.0 - within
        square = within * within if self.distance == "euclidean" else within
        return -square / self.unit / self.unit / 2

    def pairs(self, rows: slice, others: slice, within: float, k: int | None) -> tuple[Ints, Ints]:
        """Return pairs (i, j), i in `rows`, j > i in `others`, that may be within the distance and the k nearest."""
        left = self.single[rows]
        right = self.single[others]
        own = rows.start == others.start
        row, column = self._cells(left, right, own, within, k)
        if len(row) > MANY_CANDIDATES * len(left) * len(right):
            left, right = (self.factors(part, np.float64) for part in (rows, others))
            row, column = self._cells(left, right, own, within, k)
        return row + rows.start, column + others.start

    def _cells(self, left: AnyArray, right: AnyArray, own: bool, within: float, k: int | None) -> tuple[Ints, Ints]:
        # [x, 1, -|x|^2 / 2] . [y, -|y|^2 / 2, 1] = x.y - (|x|^2 + |y|^2) / 2 = -|x - y|^2 / 2
        swapped = np.r_[: right.shape[1] - 2, -1, -2]
        table = left[:, swapped] @ right.T
        if own:  # every pair once
            table[:, : len(left)][np.tri(len(left), dtype=np.bool_)] = -np.inf
        bar = self.bar(within)
        # no k pairs are known yet: the k nearest of this table alone are a first bar
        if k is not None and np.isinf(bar) and table.size > k:
            bar = float(np.partition(table.ravel(), table.size - k)[table.size - k])
        # d + 2 products err by d + 3 roundoffs of at most 2; a value and the bar err both
        row, column = true_cells(table >= bar - 2 * (right.shape[1] + 6) * float(np.finfo(right.dtype).eps))
        after = column > row if own else slice(None)
        return row[after], column[after]


def _merged(old: NearPairs, new: NearPairs, k: int | None) -> NearPairs:
    i, j, d = (np.concatenate(both) for both in zip(old, new, strict=True))
    order = np.lexsort((j, i, d))[:k]
    return NearPairs(i[order], j[order], d[order])
