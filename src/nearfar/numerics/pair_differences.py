"""Listed pairs of rows: their distances, and the weighted sums of their differences, without a (pairs, d) array.

    d_p = |z_i - z_j|^2,  sum_p w_p x_p x_p' = X' (diag(S 1) - S) X,  x_p = x_i - x_j,  S = W + W', W_ij = w_p

A function f of the distances under M = L' L with w_p = df/dd_p has, with Z = X L',

    df/dM = X' Y,  df/dL = 2 Y_Z' X,  Y = (diag(S 1) - S) X,  Y_Z = (diag(S 1) - S) Z.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from .types import AnyArray, Array, Ints

DIFFERENCE_BLOCK_VALUES = 1 << 15  # numbers in one block of differences: they stay in the cache


def pair_squares(Z: AnyArray, i: Ints, j: Ints) -> AnyArray:
    """|z_i - z_j|^2 of listed pairs of rows, by differences in blocks."""
    out = np.empty(len(i), Z.dtype)
    for part, D in differences(Z, i, j):
        np.einsum("pk,pk->p", D, D, out=out[part])
    return out


def differences(Z: AnyArray, i: Ints, j: Ints, least: int = 1) -> Iterator[tuple[slice, AnyArray]]:
    """Yield blocks of at least `least` pairs, and their z_i - z_j in a buffer that the next block overwrites."""
    step = max(least, DIFFERENCE_BLOCK_VALUES // max(Z.shape[1], 1))
    Z = np.ascontiguousarray(Z)  # else `take` would copy all rows for each block
    left, right = np.empty((2, min(step, len(i)), Z.shape[1]), Z.dtype)
    for a in range(0, len(i), step):
        part = slice(a, a + step)
        m = len(i[part])
        # `take` is several times as fast as indexing where rows are short; "clip" writes to the buffer at once
        D = Z.take(i[part], 0, left[:m], "clip")
        D -= Z.take(j[part], 0, right[:m], "clip")
        yield part, D


class PairList:
    """Pairs (i, j) of n rows, sorted by i; weights and values of pairs are in that order.

    Parameters
    ----------
    i, j : ndarray of shape (m,)
    n : int

    Attributes
    ----------
    order : ndarray of shape (m,)
        ``values[order]`` brings values of the given pairs into the list's order.
    bounds : ndarray of shape (n + 1,)
        Row i's pairs are ``bounds[i]:bounds[i + 1]``.
    """

    def __init__(self, i: Ints, j: Ints, n: int) -> None:
        self.order = np.argsort(i, kind="stable")
        self.i = i[self.order]
        self.j = j[self.order]
        self.n = n
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))])

    def __len__(self) -> int:
        return len(self.i)

    def squared_distances(self, Z: AnyArray) -> Array:
        """Return |z_i - z_j|^2 of every pair, computed from differences so that near pairs keep their digits."""
        return pair_squares(Z, self.i, self.j)

    def laplacian_times(self, w: Array, Y: AnyArray) -> AnyArray:
        """(diag(S 1) - S) Y, shape (n, q)."""
        W = csr_array((w, self.j, self.bounds), shape=(self.n, self.n))
        degree = np.bincount(self.i, w, self.n) + np.bincount(self.j, w, self.n)
        return degree[:, None] * Y - W @ Y - W.T @ Y
