"""Neighbors among rows of which only candidate classes are known: rows that may be of the same class, or cannot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ....numerics.types import Array, Bools, Ints
from .nnls import nnls

CANDIDATE_BLOCK_VALUES = 1 << 21  # values in one block of distances
CANDIDATE_ROUNDING = 1e-14  # share of squared lengths below which a sum of squared differences counts as 0


class CandidateNeighbors(NamedTuple):
    """Neighbors that share a candidate class, and the scatter of the nearer rows that share none.

    Attributes
    ----------
    near : ndarray of shape (n, k)
        Rows that share a candidate, in no particular order. Where `there` is False, the place is empty.
    there : ndarray of shape (n, k)
        Whether each neighbor exists.
    apart : ndarray of shape (d, d)
        Sum over pairs (i, t) of (x_i - x_t)(x_i - x_t)', where t shares no candidate with i and is nearer to i than
        the furthest neighbor of i.
    n_apart : int
        Number of these pairs (i, t).
    """

    near: Ints
    there: Bools
    apart: Array
    n_apart: int


def candidate_neighbors(X: Array, candidates: Bools, k: int) -> CandidateNeighbors:
    """Find the neighbors, comparing blocks of rows with all rows; nothing of size n^2 is kept.

    Raises
    ------
    ValueError
        No two rows share a candidate, or all do.
    """
    n, d = X.shape
    k = min(k, n - 1)
    near = np.empty((n, k), dtype=np.intp)
    there = np.empty((n, k), dtype=bool)
    apart = np.zeros((d, d))
    count = 0
    met = False
    C = candidates.astype(np.float32)
    square = np.einsum("nd,nd->n", X, X)
    step = max(1, CANDIDATE_BLOCK_VALUES // n)
    for a in range(0, n, step):
        rows = slice(a, min(a + step, n))
        share = C[rows] @ C.T > 0  # (b, n), whether rows have a candidate in common
        distance = np.maximum(square[rows, None] + square - 2 * X[rows] @ X.T, 0.0)
        near[rows], there[rows], reach = nearest_alike(distance, share, a, k)
        # rows without a common candidate that are nearer than the k-th row with one: only these have to be moved away
        A = ~share & (distance < reach[:, None])
        apart += outer_sums(X[rows], X, A)
        count = count + int(A.sum())
        met = met or not share.all()
    if not there.any():
        raise ValueError("y must hold rows that share a candidate class; no two rows do, so that no pair is similar")
    if not met:
        raise ValueError("y must hold rows without a common candidate class; all pairs of rows have one")
    if np.trace(apart) <= CANDIDATE_ROUNDING * count * square.max():
        apart = np.zeros((d, d))  # only rounding
    return CandidateNeighbors(near, there, apart, count)


def nearest_alike(distance: Array, share: Bools, first: int, k: int) -> tuple[Ints, Bools, Array]:
    """Return the k nearest rows of each row among `share`, which of them exist, and the distance of the furthest.

    Row i of the block is row first + i.
    """
    alike = np.where(share, distance, np.inf)
    alike[np.arange(len(alike)), first + np.arange(len(alike))] = np.inf
    near = np.argpartition(alike, k - 1, axis=1)[:, :k]
    found = np.take_along_axis(alike, near, axis=1)
    there = np.isfinite(found)
    return near, there, np.where(there, found, 0.0).max(axis=1)


def outer_sums(X_b: Array, X: Array, A: Bools) -> Array:
    """Return sum_{it} A_it (x_i - x_t)(x_i - x_t)' for the rows i of a block."""
    W = A.astype(np.float64)
    cross = X_b.T @ (W @ X)
    return (X_b * W.sum(axis=1)[:, None]).T @ X_b + (X * W.sum(axis=0)[:, None]).T @ X - cross - cross.T


def label_weights(candidates: Bools, near: Ints, there: Bools, ridge: float) -> Array:
    """Return argmin_{w >= 0} |y_i - sum_t w_t y_t|^2 / q + ridge / k |w|^2 over neighbors, scaled to rows of sum 1."""
    q = candidates.shape[1]
    k = near.shape[1]
    w = reconstruct(candidates.astype(np.float64) / np.sqrt(q), near, there, ridge / k)
    return w / np.where(there.any(axis=1), w.sum(axis=1), 1.0)[:, None]


def reconstruct(Y: Array, near: Ints, there: Bools, ridge: float = 0.0) -> Array:
    """Return argmin_{w >= 0} |y_i - sum_t w_t y_t|^2 + ridge |w|^2 over the neighbors of each row, (n, k)."""
    k = near.shape[1]
    w = np.empty(near.shape)
    step = max(1, CANDIDATE_BLOCK_VALUES // (k * (k + Y.shape[1])))
    for a in range(0, len(Y), step):
        rows = slice(a, a + step)
        # w' G w / 2 - c' w with G = Z Z' + ridge I and c = Z y, for the neighbors Z (b, k, q)
        Z = np.where(there[rows, :, None], Y[near[rows]], 0.0)
        G = Z @ Z.transpose(0, 2, 1) + ridge * np.eye(k)
        w[rows] = nnls(G, (Z @ Y[rows, :, None])[:, :, 0])
    return w


def residual(X: Array, near: Ints, there: Bools) -> Array:
    """Return x_i minus its best non-negative combination of neighbors, for rows that have neighbors."""
    n, k = near.shape
    w = reconstruct(X, near, there)
    W = csr_array((w.ravel(), near.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    R = X - W @ X
    return R[there.any(axis=1)]
