"""Rows that represent others: a greedy facility location, for a choice of what to label.

A set S covers row y by the nearest of its rows. Chosen are rows that make the sum of weighted squared distances small:

    C(S) = sum_y w_y min_{x in S} |x - y|^2,    where an empty S is farther than all rows are from each other

The greedy choice adds the row of the largest decrease each time, and is at least 1 - 1/e as good as the best set of its
size (Nemhauser et al., 1978), because the decrease by a row never grows with S. So a decrease that was computed before
bounds today's, and few rows are compared again (Minoux, 1978).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.distances import as_rows, check_distance, unit_rows
from ..numerics.types import AnyArray, Array, Ints
from ..progress import stage

COVERED_CELLS = 1 << 24  # squared distances that are computed at a time: 128 MB
AGAIN = (
    64  # rows whose decrease is computed again at a time: a product of few rows costs as much per row as one of many
)


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
    bounds = decreases(points, squares, open_squares, weighted)
    bounds[taken] = -np.inf
    for place in range(begun, count):
        found[place] = best_row(bounds, points, squares, open_squares, weighted)
        bounds[found[place]] = -np.inf
        np.minimum(open_squares, squared_to(points, squares, found[place : place + 1])[0], out=open_squares)
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


def decreases(points: AnyArray, squares: Array, open_squares: Array, weights: Array) -> Array:
    """Return by how much each row would decrease the sum, (n,)."""
    n = len(points)
    found = np.empty(n)
    with stage("comparing", n) as done:
        for block in blocks_of(np.arange(n), n):
            found[block] = decrease_of(points, squares, open_squares, weights, block)
            done(len(block))
    return found


def decrease_of(points: AnyArray, squares: Array, open_squares: Array, weights: Array, block: Ints) -> Array:
    """Return sum_y w_y max(0, open_y - |x - y|^2) for each row x of a block, (b,)."""
    table = squared_to(points, squares, block)
    np.subtract(open_squares, table, out=table)
    found: Array = np.maximum(table, 0.0, out=table) @ weights
    return found


def best_row(bounds: Array, points: AnyArray, squares: Array, open_squares: Array, weights: Array) -> int:
    """Return the row of the largest decrease. Its `bounds` (n,) become exact for the rows that are compared again."""
    exact = np.zeros(len(bounds), dtype=np.bool_)
    step = min(AGAIN, len(bounds), max(1, COVERED_CELLS // len(bounds)))
    while True:
        best = int(bounds.argmax())
        if exact[best]:
            return best
        first = np.argpartition(-bounds, step - 1)[:step]
        again = first[~exact[first] & np.isfinite(bounds[first])]
        # rounding must not raise a bound above that of an equal row
        bounds[again] = np.minimum(bounds[again], decrease_of(points, squares, open_squares, weights, again))
        exact[again] = True
