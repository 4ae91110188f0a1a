"""Pairs of rows as the edges of a graph: each is measured once, and one sparse matrix holds what weighs on it."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..pairs import pair_squares
from ..types import Array, Ints


class Edges:
    """The different unordered pairs in a list of pairs.

    Parameters
    ----------
    i, j : ndarray of shape (m,)
        Listed pairs, in any order, some perhaps many times.
    n : int
        Rows.

    Attributes
    ----------
    a, b : ndarray of shape (e,)
        Ends of the edges.
    of : ndarray of shape (m,)
        The edge of each listed pair.
    """

    def __init__(self, i: Ints, j: Ints, n: int) -> None:
        key, self.of = np.unique(np.minimum(i, j) * n + np.maximum(i, j), return_inverse=True)
        self.n = n
        self.a, self.b = np.divmod(key, n)
        ends = np.concatenate([self.a, self.b])
        order = np.argsort(ends, kind="stable")
        self.entry = order % max(len(key), 1)
        columns = np.concatenate([self.b, self.a])[order].astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))]).astype(np.int32)
        self.W = csr_array((np.zeros(len(columns)), columns, starts), shape=(n, n))

    def squares(self, Z: Array) -> Array:
        """|z_a - z_b|^2 of all edges."""
        return pair_squares(Z, self.a, self.b)

    def summed(self, values: Array, listed: Ints | None = None) -> Array:
        """The sum of what the pairs of each edge say: all of them, or those of these edges."""
        out = np.zeros(len(self.a))
        out += np.bincount(self.of if listed is None else listed, values, len(out))
        return out

    def laplacian_times(self, weight: Array, Y: Array) -> Array:
        """(diag(W 1) - W) Y for edges of such weights, of any sign."""
        weight.take(self.entry, out=self.W.data, mode="clip")
        out = (np.bincount(self.a, weight, self.n) + np.bincount(self.b, weight, self.n))[:, None] * Y
        out -= self.W @ Y
        return out
