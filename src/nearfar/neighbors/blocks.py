"""Nearness of queries to a gallery: exact for listed pairs, and fast with a known error for whole blocks.

    cosine:     nearness = x.y / (|x| |y|)
    euclidean:  nearness = -|x - y|^2 / 2, in units of a power of two near the radius of the data

A block is one matrix product of centered factors, with a known bound on its error. Cosines are rounded to a grid of
2^-44 (far above float64 rounding errors, far below differences between float32 rows), so that rounding errors never
decide an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from ..numerics.distances import check_distance, chunks, pair_cosines, pair_distances, row_squares, starts, unit_rows
from ..numerics.types import AnyArray, Array, Ints

GRID = 2.0**-44
CENTER_SAMPLE = 1024  # number of gallery rows from which the center is computed
Hidden = Callable[[Ints], tuple[Ints, Ints]]
COLUMN_GROUP = 128  # the product is padded to a multiple of this, so that columns form groups of equal size


class Space:
    """Queries and a gallery under one distance: computes the nearness of listed pairs, where larger means nearer.

    Parameters
    ----------
    queries, gallery : ndarray of shape (n, d), (m, d)
        Rows as returned by `as_rows`.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which they are compared.
    own : ndarray of int, shape (n,), optional
        Gallery row that each query must not find.
    hidden : callable, optional
        Function that marks further gallery rows that must not be found. It takes the positions of b queries, 0 to b -
        1, and the gallery rows.
    """

    def __init__(
        self,
        queries: AnyArray,
        gallery: AnyArray,
        distance: str,
        own: Ints | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        self.queries = queries
        self.gallery = gallery
        self.own = own
        self.hidden = hidden
        self.cosine = check_distance(distance) == "cosine"
        sample = gallery[:: -(-len(gallery) // CENTER_SAMPLE)]
        self.center = np.median(unit_rows(sample) if self.cosine else sample.astype(np.float64), axis=0)
        self.squares = (row_squares(queries), row_squares(gallery)) if self.cosine else None
        radius = 1.0
        if not self.cosine:
            # rows that are all equal have no radius, and later queries (`asking`) would overflow in units of 0
            size = float(np.linalg.norm(self.center)) or 1.0
            radius = max(self._radius(queries), self._radius(gallery), 2.0**-30 * size)
        self.unit = float(2.0 ** np.ceil(np.log2(radius)))

    def asking(self, queries: AnyArray) -> Space:
        """Return a space with other queries and the same gallery, which need not be prepared again."""
        other = copy(self)
        other.queries = queries
        other.own = None
        other.hidden = None
        other.squares = None if self.squares is None else (row_squares(queries), self.squares[1])
        return other

    def _radius(self, rows: AnyArray) -> float:
        return max(float(np.linalg.norm(part - self.center, axis=1).max()) for part in chunks(rows))

    def exact(self, i: Ints, j: Ints) -> Array:
        """Return the nearness of the pairs ``queries[i], gallery[j]``; each value depends only on its two rows."""
        if self.cosine:
            return on_grid(pair_cosines(self.queries, self.gallery, i, j, self.squares))
        return pair_distances(self.queries, self.gallery, i, j, "sqeuclidean") / (-2.0 * self.unit**2)

    def left(self, rows: Ints) -> Array:
        """Return the factors of queries, (b, d) or (b, d + 1)."""
        x = self.queries[rows]
        return unit_rows(x) if self.cosine else np.insert((x - self.center) / self.unit, x.shape[1], 1.0, axis=1)

    def right(self, y: AnyArray) -> Array:
        """Return the factors of gallery rows.

        They are centered, which adds the same to all values of one query and improves the accuracy.
        """
        if self.cosine:
            return unit_rows(y) - self.center
        y = (y - self.center) / self.unit
        return np.insert(y, y.shape[1], -0.5 * np.einsum("ij,ij->i", y, y), axis=1)

    def error(self, left: Array, longest: float, unit: float) -> Array:
        """Return a bound (b,) on |value - exact| for products in a precision with the given unit roundoff.

        ``longest`` is the length of the longest gallery factor. The error of a dot product of d terms is at most d
        roundoffs times the sum of |factor| |factor|. The exact values have such an error as well, in float64.
        """
        length = np.linalg.norm(left[:, : len(self.center)], axis=1)
        if self.cosine:
            product = length * longest
            exact = np.ones(len(left))
        else:
            product = (length + 0.5 * longest) * longest
            exact = 0.5 * (length + longest) ** 2
        return (len(self.center) + 10) * (unit * product + 2.0**-51 * exact) + self.cosine * GRID


class Product:
    """Nearness of blocks of queries to the whole gallery, up to a constant per query and a known error.

    Parameters
    ----------
    space : Space
        Queries and gallery.
    dtype : numpy.float32 or numpy.float64
        Precision. float64 cosines are final: they are on the grid, and equal for equal gallery rows.
    """

    def __init__(self, space: Space, dtype: Any) -> None:
        self.space = space
        self.last = dtype is np.float64
        self.final = self.last and space.cosine
        m = len(space.gallery)
        self.right = np.zeros(
            (-(-m // COLUMN_GROUP) * COLUMN_GROUP, space.right(space.gallery[:1]).shape[1]), dtype=dtype
        )
        for start, part in zip(starts(space.gallery), chunks(space.gallery), strict=True):
            self.right[start : start + len(part)] = space.right(part)
        d = len(space.center)
        self.longest = float(np.sqrt(np.einsum("ij,ij->i", self.right[:, :d], self.right[:, :d]).max()))
        # maximum number of close pairs of a query that are computed one by one
        if self.last:
            self.limit = len(self.right)
        else:
            self.limit = 64 + m // 64
        self.postponed: list[Ints] = []
        self._buffer = np.empty(0, dtype=dtype)
        self.original = originals(space.gallery) if self.last else np.arange(0)

    def asking(self, queries: AnyArray) -> Product:
        """Return a product with other queries and the same gallery factors; tables are not shared."""
        other = copy(self)
        other.space = self.space.asking(queries)
        other.postponed = []
        other._buffer = self._buffer[:0]
        return other

    def postpone(self, rows: Ints) -> None:
        """Postpone these queries to the float64 product."""
        self.postponed.append(rows)

    def free(self) -> None:
        """Release the memory."""
        self.right = self._buffer = np.empty((0, 0), dtype=self.right.dtype)

    def block(self, rows: Ints) -> Block:
        """Return the values of these queries, in a table that the next block overwrites."""
        left = self.space.left(rows)
        values = self._table(len(rows))
        np.matmul(left.astype(self.right.dtype), self.right.T, out=values)
        if self.final:
            # the products are of centered vectors; their common part is added in float64
            values += (left @ self.space.center)[:, None]
            on_grid(values, out=values)
            # equal rows get equal values, so that a tie is one on every processor
            copies = np.flatnonzero(self.original != np.arange(len(self.original)))
            values[:, copies] = values[:, self.original[copies]]
        # columns behind the gallery fill up the table, and are no neighbors
        values[:, len(self.space.gallery) :] = -np.inf
        if self.space.own is not None:
            values[np.arange(len(rows)), self.space.own[rows]] = -np.inf
        if self.space.hidden is not None:
            values[self.space.hidden(rows)] = -np.inf
        return Block(self, rows, values, self._slack(left))

    def _table(self, rows: int) -> AnyArray:
        size = rows * len(self.right)
        if self._buffer.size < size:
            self._buffer = np.empty(size, dtype=self.right.dtype)
        return self._buffer[:size].reshape(rows, len(self.right))

    def _slack(self, left: Array) -> AnyArray:
        if self.final:
            return np.zeros(len(left))
        unit = 2.0**-53 if self.last else 2.0**-24
        slack = 2.0 * self.space.error(left, self.longest, unit)
        return np.nextafter(slack.astype(self.right.dtype), np.inf, dtype=self.right.dtype)

    def exact(self, rows: Ints, columns: Ints) -> Array:
        """Return the exact nearness of listed pairs; in the last pass, equal gallery rows are computed only once."""
        if not self.last:
            return self.space.exact(rows, columns)
        m = len(self.original)
        pairs, inverse = np.unique(rows * m + self.original[columns], return_inverse=True)
        return self.space.exact(pairs // m, pairs % m)[inverse.ravel()]


class Block(NamedTuple):
    """Values (b, padded m) of the queries ``rows``, in which differences above ``slack`` (b,) are certain."""

    product: Product
    rows: Ints
    values: AnyArray
    slack: AnyArray

    def exact(self, at: Ints, columns: Ints) -> Array:
        """Return the final nearness of the listed cells; ``at`` counts rows of the block."""
        product = self.product
        return self.values[at, columns] if product.final else product.exact(self.rows[at], columns)


def passes(space: Space, rows: Ints) -> Iterator[tuple[Product, Ints]]:
    """Yield the float32 product for all rows, then the float64 product for those that were postponed."""
    for dtype in (np.float32, np.float64):
        product = Product(space, dtype)
        yield product, rows
        rows = np.concatenate([np.empty(0, np.intp), *product.postponed])
        product.free()
        if rows.size == 0:
            return


def originals(gallery: AnyArray) -> Ints:
    """Return for every row the first row that equals it."""
    rows = np.ascontiguousarray(gallery) + gallery.dtype.type(0)  # -0 becomes 0
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse.ravel()]


def on_grid(values: Array, out: Array | None = None) -> Array:
    """Return the values rounded to multiples of 2^-44."""
    out = np.multiply(values, 1.0 / GRID, out=out)
    return np.multiply(np.rint(out, out=out), GRID, out=out)
