"""Pulls and impostors as one graph: each pair of rows is an edge that is measured once, whoever pulls or pushes it."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from .impostors import Impostors, pair_squares
from .types import Array, Ints


class Edges:
    """The unordered pairs of rows among pulls and impostors.

    Parameters
    ----------
    i, j : ndarray of shape (q,)
        Pulls.
    near : Impostors
    n : int
        Rows.

    Attributes
    ----------
    a, b : ndarray of shape (e,)
        Ends of the edges.
    pull, push : ndarray of shape (q,) and (m,)
        The edge of each pull, and of each impostor.
    """

    def __init__(self, i: Ints, j: Ints, near: Impostors, n: int) -> None:
        first, second = np.concatenate([i, near.i]), np.concatenate([j, near.l])
        key, edge = np.unique(np.minimum(first, second) * n + np.maximum(first, second), return_inverse=True)
        self.near, self.n = near, n
        self.a, self.b = np.divmod(key, n)
        self.pull, self.push = edge[: len(i)], edge[len(i) :]
        ends = np.concatenate([self.a, self.b])
        order = np.argsort(ends, kind="stable")
        self.entry = order % max(len(key), 1)
        self.columns = np.concatenate([self.b, self.a])[order].astype(np.int32)
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))]).astype(np.int32)

    def squares(self, Z: Array) -> Array:
        """|z_a - z_b|^2 of all edges."""
        return pair_squares(Z, self.a, self.b)

    def weights(self, pulled: Array, pushed: Array) -> Array:
        """Of each edge: what pulls it less what pushes it."""
        out = np.zeros(len(self.a))
        out += np.bincount(self.pull, pulled, len(out))
        out -= np.bincount(self.push, pushed, len(out))
        return out

    def laplacian_times(self, weight: Array, Y: Array) -> Array:
        """(diag(W 1) - W) Y for edges of such weights, of any sign."""
        W = csr_array((weight[self.entry], self.columns, self.starts), shape=(self.n, self.n))
        out = (np.bincount(self.a, weight, self.n) + np.bincount(self.b, weight, self.n))[:, None] * Y
        out -= W @ Y
        return out
