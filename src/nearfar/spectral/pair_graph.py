"""Pairs of rows as the edges of a graph: each is measured once, and one sparse matrix holds its weights."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..numerics.pair_differences import pair_squares
from ..numerics.types import Array, Ints

GRAPH_BLOCK_ROWS = 128  # rows in one block of products
SPARSE = 32  # pairs of rows per edge, above which products of all rows take longer than differences
NARROW_COLUMNS = (
    32  # columns up to which differences cost in proportion to them, and leaving out idle edges does not pay
)
PRODUCT_CANCELLATION = 1e-5  # share of |z_a|^2 + |z_b|^2 below which a square from products has too few digits


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
        """Return |z_a - z_b|^2 of all edges: by differences, or by products of all rows if edges are many."""
        dense = len(self.a) * SPARSE * min(1.0, Z.shape[1] / NARROW_COLUMNS) > self.n**2
        if dense:
            return dense_squared_distances(Z, self.a, self.b)
        return pair_squares(Z, self.a, self.b)

    def summed(self, values: Array, listed: Ints | None = None) -> Array:
        """Return sums by edge of the values of all pairs, or of values on the `listed` edges."""
        out = np.zeros(len(self.a))
        out += np.bincount(self.of if listed is None else listed, values, len(out))
        return out

    def laplacian_times(self, weight: Array, Y: Array) -> Array:
        """(diag(W 1) - W) Y for edges of such weights, of any sign."""
        weight.take(self.entry, out=self.W.data, mode="clip")
        W = self.W
        if Y.shape[1] > NARROW_COLUMNS and 2 * np.count_nonzero(weight) < len(weight):
            W = W.copy()
            W.eliminate_zeros()
        out = (np.bincount(self.a, weight, self.n) + np.bincount(self.b, weight, self.n))[:, None] * Y
        out -= W @ Y
        return out


def dense_squared_distances(Z: Array, a: Ints, b: Ints) -> Array:
    """|z_a - z_b|^2 of pairs by rising a < b, from the products of all rows in blocks; of near pairs by differences."""
    C = Z - Z.mean(axis=0)
    length = np.einsum("np,np->n", C, C)
    both = length.take(a) + length.take(b)
    out = both.copy()
    starts = range(0, len(Z), GRAPH_BLOCK_ROWS)
    cuts = np.searchsorted(a, [*starts, len(Z)])
    for start, low, high in zip(starts, cuts[:-1], cuts[1:], strict=True):
        products = C[start : start + GRAPH_BLOCK_ROWS] @ C[start:].T
        out[low:high] -= 2 * products[a[low:high] - start, b[low:high] - start]
    near = np.flatnonzero(out < PRODUCT_CANCELLATION * both)
    out[near] = pair_squares(Z, a[near], b[near])
    return out
