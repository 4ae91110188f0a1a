"""Rows that represent others: a greedy facility location, for a choice of what to label.

A set S covers row y by the nearest of its rows. Chosen are rows that make the sum of weighted squared distances small:

    C(S) = sum_y w_y min_{x in S} |x - y|^2,    where an empty S is farther than all rows are from each other

The greedy choice adds the row of the largest decrease each time, and is at least 1 - 1/e as good as the best set of its
size (Nemhauser et al., 1978), because the decrease by a row never grows with S. So a decrease that was computed before
bounds today's, and few rows are compared again (Minoux, 1978). Most are compared in float32, whose error is added to
the bound; float64 decides between the few rows that may be the best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.distances import as_rows, check_distance, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from ..progress import stage

COVERED_CELLS = 1 << 24  # squared distances in float64 that are computed at a time: 128 MB
AGAIN = (
    64  # rows whose decrease is computed again at a time: a product of few rows costs as much per row as one of many
)
DECIDED = 8  # rows whose decrease is computed in float64 at a time
BLOCK_ROWS = 512  # of square blocks in float32, which stay in the cache between the product and the sum
FLOAT32_ERROR = 2.0**-24  # relative error of one operation in float32


def representatives(
    rows: Any, count: int, *, chosen: Ints | None = None, weights: Array | None = None, distance: str = "euclidean"
) -> Ints:
    """Choose rows that cover all rows, beyond those that are chosen already.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Rows.
    count : int
        Number of rows to choose; if there are fewer, all are chosen.
    chosen : ndarray of int, optional
        Rows that are chosen already.
    weights : ndarray of shape (n,), optional
        How much it counts that a row is covered, at least 0. By default 1.
    distance : {"euclidean", "sqeuclidean", "cosine"}
        Distance by which rows are compared.

    Returns
    -------
    ndarray of int, shape (count,)
        The rows in the order of their choice; of equally good ones, the first.

    Notes
    -----
    The first decreases take n^2 d products, in blocks of 128 MB, and each choice a few times n d.

    Examples
    --------
    >>> representatives([[0.0], [0.1], [0.2], [9.0], [9.1], [9.3]], 2)
    array([3, 1])
    """
    x = as_rows(rows, "rows")
    check_distance(distance)
    points = unit_rows(x) if distance == "cosine" else x.astype(np.float64)
    points = points - points.mean(axis=0)
    n = len(points)
    squares = np.einsum("ij,ij->i", points, points)
    weighted = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    taken = np.zeros(n, dtype=np.bool_)
    # squared distance of each row to what covers it (n,), at first a bound of all |x - y|^2 <= 2 |x|^2 + 2 |y|^2
    open_squares = np.full(n, 4 * squares.max())
    for block in blocks_of(np.empty(0, np.intp) if chosen is None else chosen, n):
        np.minimum(open_squares, squared_to(points, squares, block).min(axis=0, initial=np.inf), out=open_squares)
        taken[block] = True
    count = min(int(count), n - int(taken.sum()))
    found = np.empty(count, dtype=np.intp)
    begun = 0
    if count and not taken.any():
        # the sum of w_y |x - y|^2 over y is W |x|^2 - 2 x . (sum of w_y y) + a constant
        found[0] = np.argmin(weighted.sum() * squares - 2 * points @ (weighted @ points))
        taken[found[0]] = True
        open_squares = squared_to(points, squares, found[:1])[0]
        begun = 1
    decreases = Decreases(points, squares, open_squares, weighted)
    decreases.bounds[taken] = -np.inf
    for place in range(begun, count):
        found[place] = decreases.largest()
        decreases.cover(found[place])
    return found


def blocks_of(rows: Ints, n: int) -> list[Ints]:
    """Split rows into blocks whose distances to n rows fit into memory."""
    step = max(1, COVERED_CELLS // max(n, 1))
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def squared_to(points: AnyArray, squares: Array, block: Ints) -> Array:
    """Return the squared distances of a block of rows to all rows, (b, n)."""
    table: Array = points[block] @ points.T
    table *= -2
    table += squares[block, None]
    table += squares
    return np.maximum(table, 0.0, out=table)


class Decreases:
    """By how much each row would decrease the sum, as an upper bound; it never grows when rows are covered.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Rows.
    squares, open_squares, weights : ndarray of shape (n,)
        Their squared lengths, their squared distances to what covers them, and how much they count.
    """

    def __init__(self, points: AnyArray, squares: Array, open_squares: Array, weights: Array) -> None:
        self.points = points
        self.squares = squares
        self.open_squares = open_squares
        self.weights = weights
        n, d = points.shape
        ones = np.ones((n, 1))
        # open_y - |x - y|^2 = (2 x, 1, -|x|^2) . (y, open_y - |y|^2, 1)
        self.left = np.hstack([2 * points, ones, -squares[:, None]]).astype(np.float32)
        self.right = np.hstack([points, (open_squares - squares)[:, None], ones]).astype(np.float32)
        self.error = (d + 6) * FLOAT32_ERROR  # of this product, relative to the sum of the sizes of its terms
        self.bounds = np.empty(n)
        with stage("comparing", n) as done:
            for start in range(0, n, BLOCK_ROWS):
                block = np.arange(start, min(start + BLOCK_ROWS, n))
                self.bounds[block] = self.at_most(block)
                done(len(block))

    def at_most(self, block: Ints) -> Array:
        """Return an upper bound of the decrease by each row of a block, (b,), from float32."""
        found = np.zeros(len(block))
        left = self.left[block]
        weights = self.weights.astype(np.float32)
        wide = BLOCK_ROWS * BLOCK_ROWS // max(len(block), 1)
        for start in range(0, len(self.right), wide):
            part = slice(start, start + wide)
            table = left @ self.right[part].T
            np.maximum(table, 0, out=table)
            found += table @ weights[part]
        lengths = np.sqrt(self.squares)
        # the sum of w_y (2 |x| |y| + |open_y - |y|^2| + |x|^2) over y
        sizes = 2 * lengths[block] * (self.weights @ lengths)
        sizes += self.weights @ np.abs(self.open_squares - self.squares) + self.squares[block] * self.weights.sum()
        result: Array = found * (1 + (wide + 2) * FLOAT32_ERROR) + self.error * sizes
        return result

    def largest(self) -> int:
        """Return the row of the largest decrease, of equally large ones the first."""
        n = len(self.bounds)
        bounded = np.zeros(n, dtype=np.bool_)
        exact = np.zeros(n, dtype=np.bool_)
        step = min(AGAIN, n)
        few = min(DECIDED, n, max(1, COVERED_CELLS // n))
        while True:
            best = int(self.bounds.argmax())
            if exact[best]:
                return best
            if not bounded[best]:
                first = np.argpartition(-self.bounds, step - 1)[:step]
                again = first[~bounded[first] & np.isfinite(self.bounds[first])]
                self.bounds[again] = np.minimum(self.bounds[again], self.at_most(again))
                bounded[again] = True
                continue
            first = np.argpartition(-self.bounds, few - 1)[:few]
            again = first[bounded[first] & ~exact[first]]
            decrease = decrease_of(self.points, self.squares, self.open_squares, self.weights, again)
            # rounding must not raise a bound above that of an equal row
            self.bounds[again] = np.minimum(self.bounds[again], decrease)
            exact[again] = True

    def cover(self, row: int) -> None:
        """Take a row, which covers others from now on."""
        self.bounds[row] = -np.inf
        near = squared_to(self.points, self.squares, np.array([row]))[0]
        np.minimum(self.open_squares, near, out=self.open_squares)
        self.right[:, -2] = self.open_squares - self.squares


def decrease_of(points: AnyArray, squares: Array, open_squares: Array, weights: Array, block: Ints) -> Array:
    """Return sum_y w_y max(0, open_y - |x - y|^2) for each row x of a block, (b,)."""
    table = squared_to(points, squares, block)
    np.subtract(open_squares, table, out=table)
    found: Array = np.maximum(table, 0.0, out=table) @ weights
    return found
