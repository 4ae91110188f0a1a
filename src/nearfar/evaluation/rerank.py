"""Better neighbors without training: query expansion, database augmentation, k-reciprocal neighbors, and CSLS.

All four use several items of the collection to answer one query. So they help if a class has many items that are near
each other. Scores with them follow another protocol, because they use the test items jointly.

    query expansion    q' = q + sum_{j in N_k(q)} max(cos(q, j), 0)^alpha j         (Radenović et al., 2019)
    augmentation       the same for every item of the gallery
    k-reciprocal       (1 - w) Jaccard(V_q, V_j) + w d(q, j) / max d(q, .)          (Zhong et al., 2017)
    CSLS               2 cos(q, j) - r(q) - r(j), r the mean cosine to the k nearest on the other side
                                                                                    (Conneau et al., 2018)
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ..neighbors.nearest import nearest, true_cells
from ..numerics.distances import as_rows, pair_distances, unit_rows
from ..numerics.types import AnyArray, Array, Ints

BLOCK_BYTES = 2**26  # maximum size of the temporary arrays of one block of queries
MAX_BLOCK_ROWS = 4096  # maximum number of queries of a block


class Ranking(NamedTuple):
    """The nearest items of every query after re-ranking, nearest first.

    Attributes
    ----------
    distances : ndarray of float64, shape (n, depth)
        Values by which the method ranks, smaller is nearer. They are not distances of the embedding space.
    indices : ndarray of int, shape (n, depth)
        Row numbers of the gallery.
    """

    distances: Array
    indices: Ints


def expand_queries(queries: Any, gallery: Any = None, *, k: int = 5, alpha: float = 3.0) -> Array:
    """Replace every query by a weighted mean of itself and its k nearest items.

    Parameters
    ----------
    queries : array-like of shape (n, d)
        Embeddings, compared by cosine.
    gallery : array-like of shape (m, d), optional
        Embeddings to search. By default, each query searches all other queries.
    k : int
        Number of neighbors to add.
    alpha : float
        Exponent of the weights, at least 0: a neighbor has its cosine to the query to this power as weight. With 0, all
        neighbors have the same weight.

    Returns
    -------
    ndarray of float64, shape (n, d)
        Rows of unit length.

    Raises
    ------
    ValueError
        If the numbers of columns differ, k is larger than the gallery, or alpha is negative.

    References
    ----------
    Radenović, Tolias & Chum, "Fine-tuning CNN image retrieval with no human annotation", IEEE TPAMI 41, 2019. Their
    alpha is 3.

    Examples
    --------
    >>> expand_queries([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], k=1).round(2).tolist()
    [[1.0, 0.0]]
    """
    _check_count("k", k)
    _check_not_negative("alpha", alpha)
    rows = as_rows(queries, "queries")
    own_gallery = gallery is None
    searched = rows if own_gallery else as_rows(gallery, "gallery")
    distances, indices = nearest(rows, searched, k, distance="cosine", exclude_self=own_gallery)
    weights = np.maximum(1.0 - distances, 0.0) ** alpha  # (n, k)
    items = unit_rows(searched)
    expanded = unit_rows(rows)
    for place in range(k):
        # one neighbor of all queries at a time: no (n, k, d) array
        expanded += weights[:, place, None] * items[indices[:, place]]
    return unit_rows(expanded)


def augment_gallery(gallery: Any, *, k: int = 5, alpha: float = 3.0) -> Array:
    """Replace every item of a gallery by a weighted mean of itself and its k nearest other items.

    Do it once, before the first search.

    Parameters
    ----------
    gallery : array-like of shape (m, d)
        Embeddings, compared by cosine.
    k : int
        Number of neighbors to add.
    alpha : float
        Exponent of the weights, as for `expand_queries`.

    Returns
    -------
    ndarray of float64, shape (m, d)
        Rows of unit length.

    Examples
    --------
    >>> augment_gallery([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], k=1).round(2).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    return expand_queries(gallery, k=k, alpha=alpha)


def csls(queries: Any, gallery: Any = None, *, depth: int = 10, k: int = 10) -> Ranking:
    """Rank by cross-domain similarity local scaling, which prevents hubs from being found by every query.

    A hub is an item that is close to nearly all queries. Its mean cosine to its k nearest queries is high, and is
    subtracted from its cosine to every query.

    Parameters
    ----------
    queries : array-like of shape (n, d)
        Embeddings, compared by cosine.
    gallery : array-like of shape (m, d), optional
        Embeddings to search. By default, each query searches all other queries.
    depth : int
        Number of items to return for each query.
    k : int
        Number of neighbors over which the mean cosines are taken; the paper uses 10. If there are fewer queries, the
        mean of an item is over all of them, so that a single query is ranked by cosine.

    Returns
    -------
    Ranking
        Its distances are the negative scores, r(q) + r(j) - 2 cos(q, j).

    Raises
    ------
    ValueError
        If the numbers of columns differ, or `depth` or `k` is too large.

    References
    ----------
    Conneau, Lample, Ranzato, Denoyer & Jégou, "Word translation without parallel data", ICLR 2018.

    Examples
    --------
    >>> csls([[1.0, 0.0]], [[1.0, 0.1], [0.0, 1.0]], depth=1, k=1).indices.tolist()
    [[0]]
    """
    return LocalScaling(queries, gallery, k=k).ranking(depth)


def k_reciprocal(
    queries: Any,
    gallery: Any = None,
    *,
    depth: int = 10,
    k1: int = 20,
    k2: int = 6,
    weight: float = 0.3,
    distance: str = "cosine",
) -> Ranking:
    """Rank by how many mutual neighbors two items share (k-reciprocal re-ranking).

    Every item is described by its k-reciprocal neighbors, weighted by their distance. Two items are close if their
    descriptions overlap; if they do not overlap, the original distance decides.

    Parameters
    ----------
    queries : array-like of shape (n, d)
        Embeddings.
    gallery : array-like of shape (m, d), optional
        Embeddings to search. By default, each query searches all other queries.
    depth : int
        Number of items to return for each query.
    k1 : int
        Number of neighbors among which reciprocal ones are searched; the paper uses 20.
    k2 : int
        Number of items, including the item itself, whose descriptions are averaged; the paper uses 6. With 1, there is
        no averaging.
    weight : float
        Weight of the original distance, in [0, 1]; the paper uses 0.3.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        The original distance.

    Returns
    -------
    Ranking
        Its distances are those of the method.

    Raises
    ------
    ValueError
        If the numbers of columns differ, `depth` is larger than the gallery, or a setting is out of range.

    Notes
    -----
    The distances equal those of the full matrices in the paper's code, which needs several arrays of (n + m)^2 numbers.
    Here the descriptions are sparse, and no array is larger than a block of queries times the gallery.

    References
    ----------
    Zhong, Zheng, Cao & Li, "Re-ranking person re-identification with k-reciprocal encoding", CVPR 2017.

    Examples
    --------
    >>> rows = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> k_reciprocal(rows, depth=1, k1=1, k2=1).indices.ravel().tolist()
    [1, 0, 3, 2]
    """
    return Reciprocal(queries, gallery, k1=k1, k2=k2, weight=weight, distance=distance).ranking(depth)


class RankedByValues:
    """Base class of methods that rank a gallery by other values than distances; smaller is nearer.

    Parameters
    ----------
    queries : array-like of shape (n, d)
        Embeddings.
    gallery : array-like of shape (m, d), or None
        Embeddings to search; None if each query searches all other queries.

    Attributes
    ----------
    row_bytes : int
        Memory in bytes of the temporary arrays of one query.
    """

    row_bytes: int

    def __init__(self, queries: Any, gallery: Any) -> None:
        self.x = as_rows(queries, "queries")
        self.leave_one_out = gallery is None
        if self.leave_one_out:
            self.y = self.x
        else:
            self.y = as_rows(gallery, "gallery")

    def values(self, rows: Ints) -> Array:
        """Return the (b, m) values of these queries; infinity for a query itself if it is in the gallery."""
        values = self.all_values(rows)
        if self.leave_one_out:
            values[np.arange(len(rows)), rows] = np.inf
        return values

    def all_values(self, rows: Ints) -> Array:
        """Return the (b, m) values of these queries by the method's formula."""
        raise NotImplementedError

    def ranking(self, depth: int) -> Ranking:
        """Return the `depth` nearest items of every query, ties by index."""
        _check_depth(depth, len(self.y) - self.leave_one_out)
        n = len(self.x)
        found = Ranking(np.empty((n, depth)), np.empty((n, depth), dtype=np.intp))
        for rows in row_blocks(np.arange(n), self.row_bytes):
            values = self.values(rows)
            order = smallest(values, depth)
            found.indices[rows] = order
            found.distances[rows] = np.take_along_axis(values, order, axis=1)
        return found


class LocalScaling(RankedByValues):
    """Ranks by `csls`."""

    def __init__(self, queries: Any, gallery: Any, *, k: int = 10) -> None:
        _check_count("k", k)
        super().__init__(queries, gallery)
        x = self.x
        y = self.y
        own = self.leave_one_out
        self.of_queries = 1.0 - nearest(x, y, k, distance="cosine", exclude_self=own)[0].mean(axis=1)  # (n,)
        self.of_items = self.of_queries
        if not own:
            # r(j) of an item is its mean cosine to its nearest queries
            few = min(k, len(x))
            self.of_items = 1.0 - nearest(y, x, few, distance="cosine")[0].mean(axis=1)  # (m,)
        self.left = unit_rows(x)
        self.right = unit_rows(y).T
        self.row_bytes = 32 * len(y)

    def all_values(self, rows: Ints) -> Array:
        # r(q) + r(j) - 2 cos(q, j), (b, m)
        return np.asarray(self.of_queries[rows, None] + self.of_items - 2.0 * (self.left[rows] @ self.right))


class Reciprocal(RankedByValues):
    """Ranks by `k_reciprocal`."""

    weight: float
    distance: str
    work: Array
    items: Array
    farthest: Array
    descriptions: csr_array
    columns: csr_array

    def __init__(
        self, queries: Any, gallery: Any, *, k1: int = 20, k2: int = 6, weight: float = 0.3, distance: str = "cosine"
    ) -> None:
        _check_count("k1", k1)
        _check_count("k2", k2)
        if not isinstance(weight, Real) or not 0 <= weight <= 1:
            raise ValueError(f"weight: expected a number in 0..1, got {weight!r:.40}")
        super().__init__(queries, gallery)
        self.weight = float(weight)
        self.distance = distance
        if self.leave_one_out:
            rows = self.x
            first_item = 0  # number of the first gallery row among all rows
        else:
            rows = np.concatenate([self.x, self.y])
            first_item = len(self.x)
        neighbors = _neighbors_with_self(rows, min(max(k1, k2 - 1), len(rows) - 1), distance)
        self.work = _compared(rows, distance)  # (n + m, d)
        self.items = self.work[first_item:]
        self.farthest = _farthest(self.work, distance)
        descriptions = _descriptions(rows, neighbors, self.farthest, k1, distance)
        self.descriptions = _averaged(descriptions, neighbors[:, :k2])
        # (n + m, m): which items have each row in their description
        self.columns = self.descriptions[first_item:].T.tocsr()
        widest = int(np.diff(self.columns.indptr).max())
        described = int(np.diff(self.descriptions.indptr).max())
        self.row_bytes = 48 * described * widest + 32 * len(self.items)

    def all_values(self, rows: Ints) -> Array:
        shared = _minimum_sums(self.descriptions[rows], self.columns).toarray()  # (b, m)
        # sum min / sum max of descriptions that both sum to 1: sum max = 2 - sum min
        jaccard = 1.0 - shared / (2.0 - shared)
        plain = _distances(self.work[rows], self.items, self.distance) / self.farthest[rows, None]
        return np.asarray((1.0 - self.weight) * jaccard + self.weight * plain)


def smallest(values: Array, depth: int) -> Ints:
    """Return the (b, depth) columns of the smallest values of each row, smallest first, ties by column."""
    if 4 * depth > values.shape[1]:
        return np.argsort(values, axis=1, kind="stable")[:, :depth]
    # all cells up to the depth-th smallest, with its ties, which the sort breaks by column
    limit = np.partition(values, depth - 1, axis=1)[:, depth - 1 : depth]
    at, column = true_cells(values <= limit)
    order = np.lexsort((column, values[at, column], at))
    begins = np.searchsorted(at, np.arange(len(values)))
    return column[order[begins[:, None] + np.arange(depth)]]


def _check_count(name: str, number: int) -> None:
    if not isinstance(number, Integral) or number < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {number!r:.40}")


def _check_not_negative(name: str, number: float) -> None:
    if not isinstance(number, Real) or not 0 <= number < np.inf:
        raise ValueError(f"{name}: expected a finite number of at least 0, got {number!r:.40}")


def _check_depth(depth: int, most: int) -> None:
    _check_count("depth", depth)
    if depth > most:
        raise ValueError(f"depth: expected at most {most}, the number of items that a query can find, got {depth}")


def row_blocks(rows: Ints, row_bytes: int) -> Iterator[Ints]:
    """Split rows into blocks whose temporary arrays, of `row_bytes` per row, have at most BLOCK_BYTES."""
    step = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(row_bytes, 1)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _neighbors_with_self(rows: AnyArray, k: int, distance: str) -> Ints:
    """Return (n, k + 1) neighbors of every row, the row itself first."""
    own = np.arange(len(rows))[:, None]
    if k < 1:
        return own
    return np.concatenate([own, nearest(rows, rows, k, distance=distance, exclude_self=True)[1]], axis=1)


def _compared(rows: AnyArray, distance: str) -> Array:
    """Return rows for products: with unit length, or centered, which makes Euclidean distances more accurate."""
    if distance == "cosine":
        return unit_rows(rows)
    work = rows.astype(np.float64)
    return np.asarray(work - work.mean(axis=0))


def _distances(left: Array, right: Array, distance: str) -> Array:
    """Return the (b, m) distances of rows from `_compared`."""
    products = left @ right.T
    if distance == "cosine":
        return np.asarray(np.maximum(1.0 - products, 0.0))
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    found = np.maximum(squares - 2.0 * products, 0.0)
    if distance == "euclidean":
        return np.asarray(np.sqrt(found))
    return np.asarray(found)


def _farthest(work: Array, distance: str) -> Array:
    """Return the (n,) distance of every row to the farthest one; 1 if all rows are equal."""
    most = np.empty(len(work))
    for rows in row_blocks(np.arange(len(work)), 24 * len(work)):
        most[rows] = _distances(work[rows], work, distance).max(axis=1)
    return np.where(most > 0, most, 1.0)


def _pattern(neighbors: Ints) -> csr_array:
    """Return the sparse (n, n) matrix with a 1 if a column is among the neighbors of a row."""
    n, k = neighbors.shape
    ones = np.ones(n * k, dtype=np.int32)
    return csr_array((ones, neighbors.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))


def _descriptions(rows: AnyArray, neighbors: Ints, farthest: Array, k1: int, distance: str) -> csr_array:
    """Return V, (n, n): row i holds exp(-d(i, j)) / sum over its expanded k-reciprocal neighbors j."""
    half = round(k1 / 2)
    forward = _pattern(neighbors[:, : k1 + 1])
    # R(i, k1): j is among the k1 nearest of i, and i among those of j
    reciprocal = (forward * forward.T).tocsr()
    forward = _pattern(neighbors[:, : half + 1])
    # R(j, k1 / 2)
    small = (forward * forward.T).tocsr()
    size = np.diff(small.indptr)  # |R(j, k1 / 2)|
    transposed = small.T.tocsr()
    blocks = []
    for part in row_blocks(np.arange(len(rows)), 64 * (k1 + 1) * (half + 1)):
        own = reciprocal[part]
        # the set of a neighbor is added if more than two thirds of it are reciprocal neighbors of i already
        common = (own @ transposed) * own
        common = common.tocoo()
        joins = 3 * common.data > 2 * size[common.col]
        chosen = csr_array((common.data[joins], (common.row[joins], common.col[joins])), shape=own.shape)
        blocks.append((own + chosen @ small).tocoo())
    at = np.concatenate([block.row + start for block, start in zip(blocks, _starts(blocks), strict=True)])
    column = np.concatenate([block.col for block in blocks])
    # V_ij = exp(-d(i, j) / max d(i, .)), scaled to a sum of 1
    weights = np.exp(-pair_distances(rows, rows, at, column, distance) / farthest[at])
    totals = np.bincount(at, weights, minlength=len(rows))
    table = csr_array((weights / totals[at], (at, column)), shape=(len(rows), len(rows)))
    table.sum_duplicates()
    return table


def _starts(blocks: list[Any]) -> list[int]:
    """Return the first row of every block of consecutive rows."""
    sizes = [0, *(block.shape[0] for block in blocks)]
    return np.cumsum(sizes)[:-1].tolist()


def _averaged(descriptions: csr_array, neighbors: Ints) -> csr_array:
    """Return the mean description of every row's first neighbors, including the row itself."""
    if neighbors.shape[1] == 1:
        return descriptions
    return ((_pattern(neighbors) @ descriptions) / neighbors.shape[1]).tocsr()


def _minimum_sums(queries: csr_array, columns: csr_array) -> csr_array:
    """Return (b, m) sums over c of min(queries[i, c], columns[c, j]), from the entries that both have."""
    entries = queries.tocoo()
    counts = np.diff(columns.indptr)[entries.col]
    at = np.repeat(entries.row, counts)
    # positions of the entries of row `entries.col` of `columns`, one after the other
    begins = np.repeat(columns.indptr[entries.col] - (np.cumsum(counts) - counts), counts)
    place = begins + np.arange(len(at))
    values = np.minimum(np.repeat(entries.data, counts), columns.data[place])
    table = csr_array((values, (at, columns.indices[place])), shape=(queries.shape[0], columns.shape[1]))
    table.sum_duplicates()
    return table
