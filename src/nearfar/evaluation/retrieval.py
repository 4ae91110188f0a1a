"""Retrieval scores of every query, exactly, in blocks.

    rank of an item    1 + the number of items nearer to the query (ties: smaller index first)
    Recall@K           1 if the best relevant item has rank <= K, else 0
    precision@K        relevant items among the first K, over K
    R-precision        relevant items among the first R, over R, with R relevant items in all
    MAP@R              (1/R) sum_{i <= R} precision@i [item i is relevant]       (Musgrave et al., ECCV 2020)
    average precision  (1/R) sum_i precision@i [item i is relevant], over the whole ranking
    reciprocal rank    1 / rank of the best relevant item, over the whole ranking

No array of size queries x gallery is stored, and nothing is sorted beyond rank max(K, R). If none of these is relevant,
the rank of the best relevant item is found by counting the nearer items. A K above the size of the gallery means the
whole gallery.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ..labels import check_lengths, class_numbers
from ..neighbors.blocks import Block, Product, Space, passes
from ..neighbors.nearest import Ranked, parts, rank_block, true_cells
from ..numerics.distances import as_rows
from ..numerics.types import Array, Bools, Ints
from ..quoting import quoted
from .given_distances import PRECOMPUTED, GivenDistances
from .groups import Members, count_in_gallery, kinds_of, warn_of_queries_in_gallery
from .products import Products
from .rerank import RankedByValues, row_blocks, smallest
from .reranking import compared

BYTES_PER_VALUE = 40  # temporary memory per value of a query, for its order and comparisons
MAX_K = 2**62  # the largest K for which sums with ranks fit into 64 bits
SLICE = 64  # number of rows for which nearer items are counted at a time


class Retrieval(NamedTuple):
    """Retrieval scores of each query, in the order of the queries; they are 0 for queries without a relevant item.

    Attributes
    ----------
    relevant : ndarray of int, shape (n,)
        Number R of relevant items: gallery items of the query's class, without the query itself and those of its group.
    first_rank : ndarray of int, shape (n,)
        Rank of the first relevant item, counted from 1; 0 if there is none, or none among the largest K if
        ``whole=False``.
    hits : ndarray of int, shape (n, len(ks))
        Number of relevant items among the first K.
    r_precision : ndarray of float64, shape (n,)
        R-precision of each query.
    map_at_r : ndarray of float64, shape (n,)
        Average precision over the R nearest items of each query.
    average_precision : ndarray of float64, shape (n,), or None
        Average precision over the whole ranking; None if no K covers it.
    n_gallery : int
        Maximum number of items that a query can find.
    ks : tuple of int
        Values of K of the columns of `hits`.
    available : ndarray of int, shape (n,)
        Number of items that each query can find.
    n_in_gallery : int
        Number of queries that equal a gallery item of their class and can find it, which is probably the query itself.
    """

    relevant: Ints
    first_rank: Ints
    hits: Ints
    r_precision: Array
    map_at_r: Array
    average_precision: Array | None
    n_gallery: int
    ks: tuple[int, ...]
    available: Ints
    n_in_gallery: int = 0

    def found(self, k: int) -> Bools:
        """Return whether any of the first k items is relevant, of shape (n,)."""
        return (self.first_rank > 0) & (self.first_rank <= k)

    def reciprocal_rank(self) -> Array:
        """Return 1 / first_rank, of shape (n,); 0 for queries without a relevant item."""
        return np.where(self.first_rank > 0, 1.0 / np.maximum(self.first_rank, 1), 0.0)


def retrieve(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    groups: Any = None,
    gallery_groups: Any = None,
    ids: Any = None,
    gallery_ids: Any = None,
    ks: Iterable[int] | int = (1, 2, 4, 8),
    distance: str = "cosine",
    whole: bool = True,
    up_to_r: bool = True,
    rerank: str | RankedByValues | None = None,
    group_by: Any = None,
    group_score: str = "best",
) -> Retrieval:
    """Compute retrieval scores of each query, from its ranking of the gallery or of all other embeddings.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Queries, as arrays or tensors; or distances of shape (n, m), as in `evaluate`.
    labels : array-like of shape (n,)
        Class of each query, of any hashable type.
    gallery : array-like of shape (m, d), optional
        Embeddings that the queries search. By default, each query searches all other embeddings (leave one out).
    gallery_labels : array-like of shape (m,), optional
        Class of each gallery item; needed with `gallery`.
    groups : array-like of shape (n,), optional
        Camera, video or the like of each query. Items of a query's class in its group are left out of its ranking.
    gallery_groups : array-like of shape (m,), optional
        Group of each gallery item; needed with `groups` and `gallery`.
    ids, gallery_ids : array-like of shape (n,) and (m,), optional
        Name or number of each query and of each gallery item. A query does not search the item with its own id.
    ks : int or iterable of int
        Values of K of `hits`, each at least 1.
    distance : {"cosine", "euclidean", "sqeuclidean", "precomputed"}
        Distance by which embeddings are compared, as in `evaluate`.
    whole : bool
        Find the rank of the first relevant item in the whole ranking. If False, only up to the largest K.
    up_to_r : bool
        Also compute R-precision and MAP@R.
    rerank : str or RankedByValues, optional
        Method that reorders the neighbors of a query with the help of other items, as in `evaluate`.
    group_by : array-like of shape (m,), optional
        Product of each item that is searched, as in `evaluate`.
    group_score : {"best", "mean"}
        Distance of a product: that of its nearest item, or the mean over its items.

    Returns
    -------
    Retrieval
        Scores of each query.

    Raises
    ------
    ValueError
        If rows, labels, groups, `ks`, the distance or `rerank` are not valid, or if a gallery comes without labels, or
        without groups although the queries have them.

    Notes
    -----
    Memory beyond the input: a float32 copy of the gallery and at most 256 MB, or as much again as a larger copy, up
    to 1 GB. Time: one matrix product and a few passes over its blocks.
    """
    how: dict[str, Any] = {"ks": _checked(ks), "whole": whole, "up_to_r": up_to_r}
    apart = {"groups": groups, "gallery_groups": gallery_groups, "ids": ids, "gallery_ids": gallery_ids}
    if distance == PRECOMPUTED:
        _refuse_beside(f"{PRECOMPUTED} distances", gallery=gallery, rerank=rerank, group_by=group_by)
        table = GivenDistances(embeddings, labels, gallery_labels)
        kinds = kinds_of(table.query_class, table.item_class, leave_one_out=table.leave_one_out, **apart)
        scoring = _Scoring(table.query_class, table.item_class, kinds, table.leave_one_out, **how)
        scoring.score_all(table)
        return scoring.result()
    x, y, query_class, gallery_class, own = protocol_of(embeddings, labels, gallery, gallery_labels)
    leave_one_out = own is not None
    n_in_gallery = 0
    if own is None and groups is None and ids is None:
        n_in_gallery = count_in_gallery(x, y, query_class, gallery_class)
        warn_of_queries_in_gallery(n_in_gallery, len(x))
    if group_by is not None:
        _refuse_beside("group_by, which ranks products", **apart, rerank=rerank)
        compare: dict[str, Any] = {"score": group_score, "leave_one_out": leave_one_out, "distance": distance}
        products = Products(x, y, gallery_class, group_by, **compare)
        scoring = _Scoring(query_class, products.classes, products.kinds, leave_one_out=False, **how)
        scoring.score_all(products)
        return scoring.result(n_in_gallery)
    kinds = kinds_of(query_class, gallery_class, leave_one_out=leave_one_out, **apart)
    scoring = _Scoring(query_class, gallery_class, kinds, leave_one_out, **how)
    by = None
    if rerank is not None:
        x, y, by = compared(rerank, x, y, leave_one_out=leave_one_out, distance=distance)
    if by is not None:
        scoring.score_all(by)
    elif scoring.scored.size:
        hidden = None if kinds is None else scoring.hidden
        # queries that float32 leaves undecided are scored again from a float64 product
        for product, rows in passes(Space(x, y, distance, own, hidden), scoring.scored):
            for part in parts(rows, scoring.depth[rows], product):
                product.postpone(scoring.score(product, part))
    return scoring.result(n_in_gallery)


def _refuse_beside(what: str, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name}: does not work with {what}; give only one of them")


def protocol_of(x: Any, labels: Any, y: Any, y_labels: Any) -> tuple[Any, Any, Ints, Ints, Ints | None]:
    """Check the rows; return queries, gallery, the classes of both, and the gallery row of each query or None."""
    x = as_rows(x, "embeddings")
    if (y is None) != (y_labels is None):
        raise ValueError("gallery: expected gallery and gallery_labels together, got only one of them")
    if y is None:
        (query_class,) = class_numbers(labels)
        check_lengths(len(x), query_class)
        return x, x, query_class, query_class, np.arange(len(x))
    y = as_rows(y, "gallery")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"gallery: expected {x.shape[1]} columns as in embeddings, got {y.shape[1]}")
    query_class, gallery_class = class_numbers(labels, y_labels)
    check_lengths(len(x), query_class)
    check_lengths(len(y), gallery_class, "gallery_labels")
    return x, y, query_class, gallery_class, None


def _checked(ks: Iterable[int] | int) -> tuple[int, ...]:
    found = tuple(ks) if isinstance(ks, Iterable) and not isinstance(ks, str) else (ks,)
    if not found or any(not isinstance(k, Real) or not 1 <= k <= MAX_K or int(k) != k for k in found):
        raise ValueError(f"ks: expected integers from 1 to 2**62, got {quoted(ks)}")
    return tuple(int(k) for k in found)


class _Scoring:
    """The scores so far, and how many neighbors of each query they need."""

    def __init__(
        self,
        query_class: Ints,
        gallery_class: Ints,
        kinds: tuple[Ints, Ints] | None,
        leave_one_out: bool,
        ks: tuple[int, ...],
        whole: bool,
        up_to_r: bool,
    ) -> None:
        self.query_class = query_class
        self.gallery_class = gallery_class
        self.kinds = kinds
        self.ks = ks
        self.whole = whole
        self.leave_one_out = leave_one_out
        self.members = Members(query_class, gallery_class)
        # items that a query does not search: itself, or those of its class in its group
        n_hidden = np.full(len(query_class), leave_one_out, dtype=np.intp)
        if kinds is not None:
            self.class_and_group = Members(*kinds)
            n_hidden = self.class_and_group.sizes[kinds[0]]  # without a gallery, these include the query itself
        self.available = len(gallery_class) - n_hidden
        self.to_the_end = max(ks) >= self.available.max()
        # R: all items of the class, less the hidden ones, which are of that class, too
        self.relevant = self.members.sizes[query_class] - n_hidden
        if up_to_r:
            # MAP@R and R-precision need R neighbors, Recall@K needs K
            deepest = np.maximum(self.relevant, max(ks))
        else:
            deepest = np.full(len(query_class), max(ks))
        self.depth = np.minimum(deepest, self.available)
        scored = np.flatnonzero(self.relevant > 0)
        # the deepest first: the queries of a block need about the same number of neighbors
        self.scored = scored[np.argsort(-self.depth[scored], kind="stable")]
        n = len(query_class)
        self.first_rank = np.zeros(n, np.intp)
        self.hits = np.zeros((n, len(ks)), np.intp)
        self.r_precision = np.zeros(n)
        self.map_at_r = np.zeros(n)
        self.average_precision = np.zeros(n)

    def same_class(self, rows: Ints, columns: Ints) -> Bools:
        return self.gallery_class[columns] == self.query_class[rows][:, None]

    def hidden(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the position in `rows` and the gallery item of the items of each query's class and group."""
        assert self.kinds is not None
        return self.class_and_group.of(self.kinds[0][rows])

    def score(self, product: Product, rows: Ints) -> Ints:
        """Fill in the scores of these queries, and return the queries that need more precision."""
        depth = int(self.depth[rows[0]])
        ranked = rank_block(product, rows, depth, self.same_class)
        done = ranked.done
        assert ranked.alike is not None
        listed = ranked.alike[:, :depth] & done[:, None]
        listed &= np.arange(depth) < self.available[rows, None]  # hidden items come last
        found = self._record(rows, listed)
        if self.whole:
            absent = done & ~found
            # no relevant item among the neighbors found: count those nearer than the best relevant one, without a sort
            done = done & ~self._count(ranked, np.flatnonzero(absent))
        return rows[~done]

    def score_all(self, by: RankedByValues | Products | GivenDistances) -> None:
        """Fill in the scores of all queries from the values by which they rank the gallery."""
        for rows in row_blocks(self.scored, by.row_bytes + BYTES_PER_VALUE * len(self.gallery_class)):
            self.score_values(by.values(rows), rows)

    def score_values(self, values: Array, rows: Ints) -> None:
        """Fill in the scores of these queries from values (b, m) that rank the gallery, smaller first."""
        if self.kinds is not None:
            values[self.hidden(rows)] = np.inf
        columns = smallest(values, int(self.depth[rows[0]]))
        listed = self.same_class(rows, columns)
        listed &= np.arange(columns.shape[1]) < self.available[rows, None]  # hidden items come last
        absent = np.flatnonzero(~self._record(rows, listed))
        if self.whole and len(absent):
            alike = self.gallery_class == self.query_class[rows[absent]][:, None]
            self.first_rank[rows[absent]] = _rank_of_smallest(values[absent], alike)

    def _record(self, rows: Ints, listed: Bools) -> Bools:
        """Fill in the scores from the relevant cells among the nearest of each row; return the rows that have any."""
        at, place = true_cells(listed)
        self._listed(rows, at, place + 1)
        for column, k in enumerate(self.ks):
            self.hits[rows, column] = _row_counts(listed[:, :k])
        return np.bincount(at, minlength=len(rows)) > 0

    def _listed(self, rows: Ints, at: Ints, rank: Ints) -> None:
        """Compute the scores from row and rank of the relevant items found, in row order and nearest first."""
        b = len(rows)
        r = self.relevant[rows]
        found = np.bincount(at, minlength=b)
        begin = np.cumsum(found) - found
        # precision at the rank of the n-th relevant item is n / rank
        nth = np.arange(len(at)) - begin[at] + 1
        # only ranks up to R count for R-precision and MAP@R
        within = rank <= r[at]
        precision = nth / rank
        self.r_precision[rows] = np.bincount(at, within, minlength=b) / r
        self.map_at_r[rows] = np.bincount(at, within * precision, minlength=b) / r
        if self.to_the_end:
            self.average_precision[rows] = np.bincount(at, precision, minlength=b) / r
        hit = np.flatnonzero(found)
        self.first_rank[rows[hit]] = rank[begin[hit]]

    def _count(self, ranked: Ranked, at: Ints) -> Bools:
        """Rank the best relevant item of these rows of the block by counting; return True for undecided rows."""
        block = ranked.block
        undecided = np.zeros(len(block.rows), dtype=bool)
        for start in range(0, len(at), SLICE):
            part = at[start : start + SLICE]
            rank = _rank_of_best(block, part, *self._relevant(block.rows[part]))
            self.first_rank[block.rows[part]] = rank
            undecided[part] = rank == 0
        return undecided

    def _relevant(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the position in `rows` and the gallery item of all relevant items, including hidden ones."""
        at, item = self.members.of(self.query_class[rows])
        if self.leave_one_out:
            keep = item != rows[at]
        else:
            keep = np.ones(len(at), dtype=bool)
        return at[keep], item[keep]

    def result(self, n_in_gallery: int = 0) -> Retrieval:
        whole = self.average_precision if self.to_the_end else None
        scores = (self.first_rank, self.hits, self.r_precision, self.map_at_r, whole)
        return Retrieval(self.relevant, *scores, int(self.available.max()), self.ks, self.available, n_in_gallery)


def _rank_of_best(block: Block, part: Ints, at: Ints, item: Ints) -> Ints:
    """Return the rank of the nearest of the items (``at``, ``item``) of each row in ``part``.

    It is 0 if too many other items are about as near.
    """
    values = block.values[part]
    slack = block.slack[part]
    near = values[at, item]
    # the largest value of each row, and the items that may equal it within the error: exact values choose among them
    top = np.maximum.reduceat(near, np.flatnonzero(np.diff(at, prepend=-1)))
    rival = near >= (top - slack)[at]
    best, best_value = _nearest_of(block, part, at[rival], item[rival])
    center = values[np.arange(len(part)), best]
    # certainly nearer than the best relevant item; those within the error of it are compared exactly
    above = values > (center + slack)[:, None]
    close = values >= (center - slack)[:, None]
    rank = 1 + _row_counts(above)
    close ^= above
    row, column = true_cells(close)
    crowded = np.bincount(row, minlength=len(part)) > block.product.limit
    row, column = row[~crowded[row]], column[~crowded[row]]
    value = block.exact(part[row], column)
    nearer = (value > best_value[row]) | ((value == best_value[row]) & (column < best[row]))
    rank += np.bincount(row, nearer, minlength=len(part)).astype(np.intp)
    return np.where(crowded, 0, rank)


def _rank_of_smallest(values: Array, alike: Bools) -> Ints:
    """Return the rank of the smallest of the values (b, m) of relevant items, ties by column."""
    best = np.where(alike, values, np.inf).argmin(axis=1)
    value = values[np.arange(len(values)), best][:, None]
    nearer = (values < value) | ((values == value) & (np.arange(values.shape[1]) < best[:, None]))
    return 1 + _row_counts(nearer)


def _nearest_of(block: Block, part: Ints, at: Ints, item: Ints) -> tuple[Ints, Array]:
    """Return the nearest of the listed items of each row and its exact nearness, ties by index."""
    value = block.exact(part[at], item)
    order = np.lexsort((item, -value, at))
    first = order[np.flatnonzero(np.diff(at[order], prepend=-1))]
    return item[first], value[first]


def _row_counts(mask: Bools) -> Ints:
    return mask.view(np.uint8).sum(axis=1, dtype=np.uint32).astype(np.intp)  # several times faster than count_nonzero
