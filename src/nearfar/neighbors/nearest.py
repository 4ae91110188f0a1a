"""Exact nearest neighbors in blocks: a float32 product proposes, float64 values decide.

    The product of a block of queries with the gallery has a known error bound e in float32. It orders neighbors whose
    values differ by more than 2e; exact float64 values order the few that are closer. A query with too many such pairs
    (collapsed data, far outliers) is done again with a float64 product. So the order is that of float64 at about the
    price of float32, and depends neither on the block nor on the linear algebra library.

Candidates come from the maxima of groups of columns: the k-th largest maximum is a floor under the k-th largest value,
so one pass and a small partition replace the partition of whole rows.

Ties go to the smaller index. Distances tie when their float64 values are equal, cosines when they round to the same
multiple of 2^-44; equal rows always tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import as_rows, pair_cosines, pair_distances
from ..numerics.types import AnyArray, Array, Bools, Ints
from ..progress import stage
from .blocks import COLUMN_GROUP, Block, Hidden, Product, Space, passes

BLOCK_MEMORY_BYTES = 2**28  # memory of one block: its product, its candidates and their order
GROWTH_OF_BLOCKS = 4  # a block takes as much as the copy of a large gallery, at most so many times BLOCK_MEMORY_BYTES
Alike = Callable[[Ints, Ints], Bools]


def nearest(
    queries: Any,
    gallery: Any,
    k: int,
    *,
    distance: str = "euclidean",
    exclude_self: bool = False,
    hidden: Hidden | None = None,
    block: int | None = None,
) -> tuple[Array, Ints]:
    """Find the k nearest gallery rows of every query, exactly; ties are broken by index.

    Parameters
    ----------
    queries, gallery : array-like of shape (n, d), (m, d)
        Rows; tensors are accepted.
    k : int
        Number of neighbors, at most m (m - 1 with ``exclude_self``).
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance to compare and return.
    exclude_self : bool
        Query i is gallery row i and does not find itself. Other rows that equal it are found.
    hidden : callable, optional
        Function that marks further gallery rows that must not be found, as in `Space`. A query with fewer than k rows
        to find gets arbitrary rows for the rest.
    block : int, optional
        Number of queries per block. By default, as many as fit into 256 MB, or into as much memory as a larger
        gallery takes, up to 1 GB. The result does not depend on it.

    Returns
    -------
    distances : ndarray of float64, shape (n, k)
        Distances to the neighbors, nearest first.
    indices : ndarray of int, shape (n, k)
        Gallery rows of the neighbors.

    Raises
    ------
    ValueError
        The numbers of columns differ, k is out of range, or rows are not finite.

    Notes
    -----
    The search takes memory for one float32 copy of the gallery (float64 if the data are collapsed) and at most 256 MB,
    or as much again as a larger copy, up to 1 GB.

    Examples
    --------
    >>> nearest([[0.0], [1.0], [3.0]], [[0.0], [1.0], [3.0]], 1, exclude_self=True)[1].ravel().tolist()
    [1, 0, 1]
    """
    x = as_rows(queries, "queries")
    y = as_rows(gallery, "gallery")
    _check_columns(x, y)
    if exclude_self and len(x) != len(y):
        raise ValueError(f"exclude_self: needs queries and gallery of equal length, got {len(x)} and {len(y)}")
    own = np.arange(len(x)) if exclude_self else None
    _check_k(k, len(y) - exclude_self)
    space = Space(x, y, distance, own, hidden)
    indices = np.empty((len(x), k), dtype=np.intp)
    # in float32 for all queries, then in float64 for those that it leaves unsettled
    for product, rows in passes(space, np.arange(len(x))):
        for part in parts(rows, np.full(len(rows), k), product, block):
            ranked = rank_block(product, part, k)
            indices[part[ranked.done]] = ranked.columns[ranked.done, :k]
            product.postpone(part[~ranked.done])
    pairs = np.broadcast_to(np.arange(len(x))[:, None], indices.shape)
    return pair_distances(x, y, pairs, indices, distance), indices


class Gallery:
    """Rows that are prepared once and searched many times; finds the same neighbors as `nearest`.

    Parameters
    ----------
    rows : array-like of shape (m, d)
        Rows, which are kept as they are, together with one float32 copy.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance to compare and return.
    """

    def __init__(self, rows: Any, distance: str = "euclidean") -> None:
        self.rows = as_rows(rows, "gallery")
        self.distance = distance
        self._product = Product(Space(self.rows[:1], self.rows, distance), np.float32)

    def nearest(self, queries: Any, k: int, *, hidden: Hidden | None = None) -> tuple[Array, Ints]:
        """Return distances (n, k) and rows (n, k) of the k nearest neighbors, nearest first; ties are broken by row.

        Parameters
        ----------
        queries : array-like of shape (n, d)
            Queries.
        k : int
            Number of neighbors.
        hidden : callable, optional
            Function that marks rows that must not be found, as for the function `nearest`.

        Raises
        ------
        ValueError
            The numbers of columns differ, k is out of range, or rows are not finite.
        """
        x = as_rows(queries, "queries")
        _check_columns(x, self.rows)
        _check_k(k, len(self.rows))
        product = self._product.asking(x)
        product.space.hidden = hidden
        indices = np.empty((len(x), k), dtype=np.intp)
        for part in parts(np.arange(len(x)), np.full(len(x), k), product):
            ranked = rank_block(product, part, k)
            indices[part[ranked.done]] = ranked.columns[ranked.done, :k]
            product.postpone(part[~ranked.done])
        # queries with too many pairs within the error of float32 are asked again, in float64
        left = np.concatenate([np.empty(0, np.intp), *product.postponed])
        if left.size:
            of_left = None if hidden is None else lambda rows: hidden(left[rows])
            indices[left] = nearest(x[left], self.rows, k, distance=self.distance, hidden=of_left)[1]
        return self._distances(product.space, indices), indices

    def _distances(self, space: Space, indices: Ints) -> Array:
        pairs = np.broadcast_to(np.arange(len(indices))[:, None], indices.shape)
        if space.cosine:  # the squares of the gallery are known
            return np.maximum(1.0 - pair_cosines(space.queries, self.rows, pairs, indices, space.squares), 0.0)
        return pair_distances(space.queries, self.rows, pairs, indices, self.distance)


def _check_columns(x: AnyArray, y: AnyArray) -> None:
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"gallery: expected {x.shape[1]} columns as in queries, got {y.shape[1]}")


def _check_k(k: int, available: int) -> None:
    if not isinstance(k, Integral) or not 1 <= k <= available:
        raise ValueError(f"k: expected 1 to {available} (the rows a query can find), got {k!r}")


class Ranked(NamedTuple):
    """Neighbors of a block, nearest first: ``columns`` (b, w), ``alike`` (b, w); rows not ``done`` are unsettled."""

    block: Block
    columns: Ints
    alike: Bools | None
    done: Bools


def parts(rows: Ints, k: Ints, product: Product, block: int | None = None) -> Iterator[Ints]:
    """Yield blocks of queries that fit into the memory of a block; ``k`` (len(rows),) must not increase."""
    start = 0
    # a product reads the whole gallery, so that blocks of few queries would take several times as long for each
    memory = max(BLOCK_MEMORY_BYTES, min(product.right.nbytes, GROWTH_OF_BLOCKS * BLOCK_MEMORY_BYTES))
    width = len(product.right)
    with stage("comparing", len(rows)) as done:
        while start < len(rows):
            if product.last:
                candidates = width
            else:
                candidates = min(width, 2 * int(k[start]) + product.limit)
            size = 3 * product.right.itemsize * width // 2 + 90 * candidates
            stop = start + (block or max(1, min(2048, memory // size)))
            yield rows[start:stop]
            done(len(rows[start:stop]))
            start = stop


def rank_block(product: Product, rows: Ints, k: int, alike: Alike | None = None) -> Ranked:
    """Return the k nearest of each row, in order; the order among neighbors that are ``alike`` may be left open.

    ``alike(rows, columns)`` returns a boolean for cells of shape (b, w): only the order between a True and a False
    matters.
    """
    block = product.block(rows)
    values, columns, count, done = _candidates(block, k)
    order = np.argsort(values, axis=1)[:, ::-1]
    values = np.take_along_axis(values, order, 1)
    if columns is None:
        columns = order
    else:
        columns = np.take_along_axis(columns, order, 1)
    kinds = None if alike is None else alike(rows, columns)
    # neighbors whose values differ by less than their error: exact values have to order them. The difference of two
    # cells of -inf, which are no candidates, is NaN and so not close
    with np.errstate(invalid="ignore"):
        close = values[:, :-1] - values[:, 1:] <= block.slack[:, None]
    close &= np.arange(1, values.shape[1]) < count[:, None]
    done &= _settle(block, columns, kinds, close, k)
    return Ranked(block, columns, None if alike is None else alike(rows, columns), done)


def _candidates(block: Block, k: int) -> tuple[AnyArray, Ints | None, Ints, Bools]:
    """Return cells that may be among the k nearest, (b, w) filled with -inf, their number, and rows with few enough.

    Their columns are None where the cells are whole rows.
    """
    b, width = block.values.shape
    if 8 * k > width:  # nearly all of them: sorting whole rows is the cheapest
        m = len(block.product.space.gallery)
        return block.values[:, :m], None, np.full(b, m), np.ones(b, dtype=bool)
    groups = _groups(width, k)
    grouped = block.values.reshape(b, -1, groups)
    peaks = grouped[:, 0] if groups == width else grouped.max(axis=1)
    # k groups have a maximum of at least this, so the k-th largest value is no smaller, up to the errors in `slack`
    floor = np.partition(peaks, groups - k, axis=1)[:, groups - k] - block.slack
    floor = np.maximum(floor, np.finfo(floor.dtype).min)  # a query with fewer than k rows to find: all but the hidden
    # a group whose maximum is below the floor holds no candidate
    row, group = true_cells(peaks >= floor[:, None])
    most = 2 * k + block.product.limit
    few = np.bincount(row, minlength=b) <= most
    row, group = row[few[row]], group[few[row]]
    cells = grouped[row, :, group]
    at, member = true_cells(cells >= floor[row][:, None])
    row = row[at]
    column = member * groups + group[at]
    value = cells[at, member]
    count = np.bincount(row, minlength=b)
    few &= count <= most
    keep = few[row]
    count = np.where(few, count, 0)
    return *_dense(row[keep], value[keep], column[keep], count, k), count, few


def _groups(width: int, k: int) -> int:
    """Return the number of column groups, which balances the cost of their maxima and of the cells in kept groups."""
    size = 2.0 ** np.floor(np.log2(max(1.0, np.sqrt(width / k))))
    return width // int(min(size, COLUMN_GROUP))


def _dense(row: Ints, value: AnyArray, column: Ints, count: Ints, k: int) -> tuple[AnyArray, Ints]:
    shape = (len(count), max(int(count.max()), k))
    place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    values = np.full(shape, -np.inf, dtype=value.dtype)
    columns = np.zeros(shape, dtype=np.intp)
    values[row, place] = value
    columns[row, place] = column
    return values, columns


def _settle(block: Block, columns: Ints, kinds: Bools | None, close: Bools, k: int) -> Bools:
    """Order runs of close neighbors by exact values and index, in place; return False for rows with too many."""
    b, width = columns.shape
    run = np.zeros((b, width), dtype=np.intp)
    # number of the run of close neighbors that a place belongs to, (b, w)
    np.cumsum(~close, axis=1, out=run[:, 1:])
    if kinds is None:
        unclear = close
    else:
        unclear = close & (kinds[:, 1:] != kinds[:, :-1])
    # runs that begin within the first k places
    needed = run <= run[:, k - 1 : k]
    run += width * np.arange(b)[:, None]
    # of these, the runs with two neighbors whose order matters
    open_run = np.zeros(b * width, dtype=bool)
    open_run[run[:, 1:][unclear]] = True
    needed &= open_run[run]
    settled = needed.sum(axis=1) <= block.product.limit
    at, place = true_cells(needed & settled[:, None])
    column = columns[at, place]
    # each run by its exact values, ties by column
    order = np.lexsort((column, -block.exact(at, column), run[at, place]))
    columns[at, place] = column[order]
    return settled


def true_cells(mask: Bools) -> tuple[Ints, Ints]:
    """Return rows and columns of the True cells in row order, on sparse tables several times faster than `nonzero`."""
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column
