"""Pairs of rows: their squared distances, and the weighted sums of their differences, without a (pairs, d) array.

    d_p = |z_i - z_j|^2,  sum_p w_p x_p x_p' = X' (diag(S 1) - S) X,  x_p = x_i - x_j,  S = W + W', W_ij = w_p

A function f of the distances under M = L' L with w_p = df/dd_p has, with Z = X L',

    df/dM = X' Y,  df/dL = 2 Y_Z' X,  Y = (diag(S 1) - S) X,  Y_Z = (diag(S 1) - S) Z.

`PairList` holds the pairs in the order of a list. `Edges` holds them as the edges of a graph, which measures a pair
once even if it is listed several times, and keeps one sparse matrix for weights that change from step to step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from .types import AnyArray, Array, Ints

DIFFERENCE_BLOCK_VALUES = 1 << 15  # values in one block of differences, which stay in the cache
GRAPH_BLOCK_ROWS = 128  # rows in one block of products
SPARSE = 32  # pairs of rows per edge above which products of all rows take longer than differences
NARROW_COLUMNS = 32  # columns up to which the time of differences is proportional to them, and idle edges are kept
ENTRY_BLOCK = 1 << 16  # entries of a sparse matrix that are filled at a time
PRODUCT_CANCELLATION = 1e-5  # share of |z_a|^2 + |z_b|^2 below which a square from products has too few digits


def pair_squares(Z: AnyArray, i: Ints, j: Ints) -> AnyArray:
    """Return |z_i - z_j|^2 of listed pairs of rows, from differences in blocks."""
    out = np.empty(len(i), Z.dtype)
    for part, D in differences(Z, i, j):
        np.einsum("pk,pk->p", D, D, out=out[part])
    return out


def differences(Z: AnyArray, i: Ints, j: Ints, least: int = 1) -> Iterator[tuple[slice, AnyArray]]:
    """Yield blocks of at least `least` pairs and their z_i - z_j, in a buffer that the next block overwrites."""
    step = max(least, DIFFERENCE_BLOCK_VALUES // max(Z.shape[1], 1))
    Z = np.ascontiguousarray(Z)  # otherwise, `take` would copy all rows for each block
    left, right = np.empty((2, min(step, len(i)), Z.shape[1]), Z.dtype)
    for a in range(0, len(i), step):
        part = slice(a, a + step)
        m = len(i[part])
        # `take` is several times as fast as indexing for short rows; mode "clip" writes to the buffer without a copy
        D = Z.take(i[part], 0, left[:m], "clip")
        D -= Z.take(j[part], 0, right[:m], "clip")
        yield part, D


class PairList:
    """Pairs (i, j) of n rows, sorted by i; weights and values of pairs are in that order.

    Parameters
    ----------
    i, j : ndarray of shape (m,)
        Pairs of row numbers.
    n : int
        Number of rows.

    Attributes
    ----------
    order : ndarray of shape (m,)
        Permutation that sorts the pairs: ``values[order]`` are values of the given pairs in the order of the list.
    bounds : ndarray of shape (n + 1,)
        The pairs of row i are ``bounds[i]:bounds[i + 1]``.
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
        """Return |z_i - z_j|^2 of every pair, from differences, so that distances of near pairs are accurate."""
        return pair_squares(Z, self.i, self.j)

    def laplacian_times(self, w: Array, Y: AnyArray) -> AnyArray:
        """Return (diag(S 1) - S) Y, shape (n, q)."""
        W = csr_array((w, self.j, self.bounds), shape=(self.n, self.n))
        degree = np.bincount(self.i, w, self.n) + np.bincount(self.j, w, self.n)
        return degree[:, None] * Y - W @ Y - W.T @ Y


class Edges:
    """Distinct unordered pairs in a list of pairs.

    Parameters
    ----------
    i, j : ndarray of shape (m,)
        Listed pairs, in any order, possibly with repetitions.
    n : int
        Number of rows.

    Attributes
    ----------
    a, b : ndarray of shape (e,)
        Ends of the edges.
    of : ndarray of shape (m,)
        Edge of each listed pair.
    """

    def __init__(self, i: Ints, j: Ints, n: int) -> None:
        key, self.of = distinct_numbered(np.minimum(i, j) * np.int64(n) + np.maximum(i, j))
        self.n = n
        # numbers of rows and edges in 4 bytes: with millions of edges, these lists are most of the memory
        self.a: AnyArray = (key // n).astype(np.int32)
        self.b: AnyArray = (key % n).astype(np.int32)
        e = len(key)
        del key
        # every edge twice, in the order of its ends: a conversion of a matrix of one row sorts its columns by counting
        ends = np.concatenate([self.a, self.b])
        by_end = csr_array((np.arange(2 * e, dtype=np.int32), ends, [0, 2 * e]), shape=(1, n)).tocsc()
        self.starts = by_end.indptr
        self.entry = by_end.data
        del ends, by_end
        self.columns = np.concatenate([self.b, self.a])[self.entry]
        self.entry[self.entry >= e] -= e

    def squares(self, Z: Array) -> Array:
        """Return |z_a - z_b|^2 of all edges, from differences, or from products of all rows if there are many edges."""
        dense = len(self.a) * SPARSE * min(1.0, Z.shape[1] / NARROW_COLUMNS) > self.n**2
        if dense:
            return dense_squared_distances(Z, self.a, self.b)
        return pair_squares(Z, self.a, self.b)

    def summed(self, values: Array, listed: Ints | None = None) -> Array:
        """Return the sums over each edge of the values of all pairs, or of the values on the `listed` edges."""
        if listed is None:
            listed = self.of
        out = np.zeros(len(self.a))
        out += np.bincount(listed, values, len(out))
        return out

    def laplacian_times(self, weight: Array, Y: Array) -> Array:
        """Return (diag(W 1) - W) Y for edges with these weights, of any sign."""
        data = np.empty(len(self.entry))
        for start in range(0, len(data), ENTRY_BLOCK):  # `take` makes an 8-byte copy of the numbers
            part = slice(start, start + ENTRY_BLOCK)
            weight.take(self.entry[part], out=data[part], mode="clip")
        W = csr_array((data, self.columns, self.starts), shape=(self.n, self.n))
        if Y.shape[1] > NARROW_COLUMNS and 2 * np.count_nonzero(weight) < len(weight):
            W = W.copy()
            W.eliminate_zeros()
        out = (np.bincount(self.a, weight, self.n) + np.bincount(self.b, weight, self.n))[:, None] * Y
        out -= W @ Y
        return out


def distinct_numbered(keys: Ints) -> tuple[Ints, AnyArray]:
    """Return the distinct keys in increasing order, and the number of each key among them in 4 bytes.

    This is `np.unique` with `return_inverse`, in half of its memory.
    """
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    new = np.diff(keys, prepend=-1) > 0
    number = np.empty(len(keys), dtype=np.int32)
    number[order] = np.cumsum(new, dtype=np.int32) - np.int32(1)
    return keys[new], number


def dense_squared_distances(Z: Array, a: Ints, b: Ints) -> Array:
    """Return |z_a - z_b|^2 of pairs in order of a < b, from products of all rows in blocks.

    Distances of near pairs are computed from differences.
    """
    C = Z - Z.mean(axis=0)
    length = np.einsum("np,np->n", C, C)
    # |z_a|^2 + |z_b|^2 - 2 z_a'z_b
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


def squared_distances(x: AnyArray, y: AnyArray) -> Array:
    """Return all squared Euclidean distances, (n, m), from one product of centered rows; never negative.

    This is faster than differences and as accurate as the spread of the rows around their mean allows: values far
    below the square of that spread lose digits. Use `pair_distances` if such small values matter.
    """
    center = y.mean(axis=0, dtype=np.float64)
    a = x - center
    b = y - center
    # |a|^2 + |b|^2 - 2 a'b
    out = a @ b.T
    out *= -2.0
    out += np.einsum("ij,ij->i", a, a)[:, None]
    out += np.einsum("ij,ij->i", b, b)
    return np.maximum(out, 0.0, out=out)
