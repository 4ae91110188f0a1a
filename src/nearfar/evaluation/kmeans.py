"""k-means for many clusters: seeds from products of blocks, and steps that look only at centers that moved.

Greedy k-means++ (Arthur & Vassilvitskii, 2007) draws some candidates for each next seed with probability D_i, the
squared distance of row i to the nearest seed so far, and keeps the one that leaves the smallest sum of D. Here
candidates of several seeds are drawn at once, with the D' of their block's beginning, so that their distances are one
matrix product. A candidate counts with probability D_i / D'_i <= 1 when its turn comes: that is a draw from D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..numerics.types import Ints

Rows: TypeAlias = NDArray[np.float32]
Nearest: TypeAlias = Callable[[Rows, Rows], tuple[Rows, Ints]]  # squared distance to, and number of the nearest center

TOGETHER = 16  # seeds whose candidates are drawn at once, at most: of more, too many would not count
MAX_KMEANS_DISTANCES = 1 << 24  # distances that are held at once


def seeds(rows: Rows, k: int, rng: np.random.Generator) -> Ints:
    """Numbers of k different rows (n, d), far from each other: greedy k-means++ with 2 + log k candidates for each."""
    n = len(rows)
    tries = 2 + int(np.log(k))
    square = np.einsum("nd,nd->n", rows, rows)
    found = [int(rng.integers(n))]
    D = _squares(rows, square, np.array(found))[0]
    D[found] = 0
    while len(found) < k:
        mass = np.cumsum(D, dtype=np.float64)
        if mass[-1] <= 0:  # the other rows equal seeds
            rest = np.setdiff1d(np.arange(n), found)
            return np.concatenate([found, rest[: k - len(found)]]).astype(np.intp)
        drawn = tries * max(1, min(TOGETHER, MAX_KMEANS_DISTANCES // (tries * n)))
        candidates = np.minimum(np.searchsorted(mass, mass[-1] * rng.random(drawn), side="right"), n - 1)
        bar = rng.random(drawn) * D[candidates]
        squares = _squares(rows, square, candidates)
        at = 0
        while len(found) < k:
            count = at + np.flatnonzero(bar[at:] < D[candidates[at:]])[:tries]
            if len(count) < tries:
                break
            left = np.minimum(squares[count], D)
            best = int(left.sum(axis=1).argmin())
            found.append(int(candidates[count[best]]))
            D = left[best]
            at = int(count[-1]) + 1
            D[found[-1]] = 0
    return np.array(found)


def _squares(rows: Rows, square: Rows, some: Ints) -> Rows:
    """Squared distances (s, n) of some rows to all."""
    out: Rows = rows[some] @ rows.T
    out *= -2
    out += square
    out += square[some, None]
    return np.maximum(out, 0, out=out)


def lloyd(rows: Rows, centers: Rows, iterations: int, nearest: Nearest) -> tuple[Ints, float]:
    """Lloyd's steps from these centers (k, d): the cluster of each row, and the sum of squares to the centers.

    Ends when no row changes its cluster. A row whose center stays is compared only with centers that moved, and these
    soon are few.
    """
    squares, numbers = nearest(rows, centers)
    for _ in range(iterations):
        after = _means(rows, numbers, centers, squares)
        moved = (after != centers).any(axis=1)
        if not moved.any():
            break
        before = numbers
        centers = after
        squares, numbers = _again(rows, centers, moved, squares, numbers, nearest)
        if np.array_equal(numbers, before):
            break
    return numbers, float(squares.sum(dtype=np.float64))


def _means(rows: Rows, numbers: Ints, centers: Rows, squares: Rows) -> Rows:
    """The mean of each cluster; one without rows takes one of those that are farthest from their centers."""
    k = len(centers)
    n = len(rows)
    size = np.bincount(numbers, minlength=k)
    member = csr_array((np.ones(n, dtype=np.float32), (numbers, np.arange(n))), shape=(k, n))
    means: Rows = (member @ rows) / np.maximum(size, 1)[:, None].astype(np.float32)
    empty = np.flatnonzero(size == 0)
    if len(empty):
        means[empty] = rows[np.argsort(-squares, kind="stable")[: len(empty)]]
    return means


def _again(
    rows: Rows, centers: Rows, moved: NDArray[np.bool_], squares: Rows, numbers: Ints, nearest: Nearest
) -> tuple[Rows, Ints]:
    """The nearest centers after some moved."""
    lost = moved[numbers]
    there = np.flatnonzero(moved)
    stayed = np.flatnonzero(~moved)
    found, which = nearest(rows, centers[there])
    which = there[which]
    squares = np.where(lost, np.inf, squares)
    numbers = numbers.copy()
    if len(stayed) and lost.any():
        squares[lost], near = nearest(rows[lost], centers[stayed])
        numbers[lost] = stayed[near]
    closer = found < squares
    return np.where(closer, found, squares), np.where(closer, which, numbers)
