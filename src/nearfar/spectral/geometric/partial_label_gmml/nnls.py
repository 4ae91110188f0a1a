"""Many small non-negative least-squares problems at once (Lawson & Hanson, 1974)."""

from __future__ import annotations

import numpy as np

from ....numerics.types import Array, Bools

NNLS_RIDGE = 1e-13  # share of the trace that is added to each diagonal
NNLS_TOL = 1e-10  # share of max |c| that no entry of c - G w outside of the support of a solution exceeds


def nnls(G: Array, c: Array) -> Array:
    """Return the minimizer over w >= 0 of w' G w / 2 - c' w, for each of n problems with k unknowns.

    Parameters
    ----------
    G : ndarray of shape (n, k, k)
        Positive semi-definite matrices.
    c : ndarray of shape (n, k)
        Linear terms, each in the range of its G.

    Returns
    -------
    ndarray of shape (n, k)
        Minimizers.

    Notes
    -----
    Active-set method: in each round, every unsolved problem adds the unknown of steepest descent to its support, and
    then takes the longest step toward the solution on the support, dropping the unknowns that would turn negative.
    """
    n, k = c.shape
    G = G + NNLS_RIDGE * np.trace(G, axis1=1, axis2=2)[:, None, None] * np.eye(k)
    w = np.zeros((n, k))
    support = np.zeros((n, k), dtype=bool)
    floor = NNLS_TOL * np.abs(c).max(axis=1, initial=0.0)
    open_rows = np.arange(n)
    for _ in range(3 * k):
        # c - G w, the negative gradient
        descent = c[open_rows] - (G[open_rows] @ w[open_rows, :, None])[:, :, 0]
        slope = np.where(support[open_rows], -np.inf, descent)
        rising = slope.max(axis=1) > floor[open_rows]
        open_rows = open_rows[rising]
        if len(open_rows) == 0:
            break
        support[open_rows, slope[rising].argmax(axis=1)] = True
        w[open_rows], support[open_rows] = inside(G[open_rows], c[open_rows], w[open_rows], support[open_rows])
    return w


def inside(G: Array, c: Array, w: Array, support: Bools) -> tuple[Array, Bools]:
    """Return solutions on supports, and these supports, which shrink until no solution has a negative entry."""
    w = w.copy()
    support = support.copy()
    rows = np.arange(len(w))
    while len(rows):
        s = on_support(G[rows], c[rows], support[rows])
        out = support[rows] & (s <= 0)
        # w + step (s - w) reaches 0 in an entry with s <= 0 at step = w / (w - s)
        ratio = np.where(out, w[rows] / np.where(out, w[rows] - s, 1.0), np.inf)
        step = np.minimum(ratio.min(axis=1), 1.0)[:, None]
        w[rows] += step * (s - w[rows])
        support[rows] &= ~(out & (ratio <= step))
        w[rows] = np.where(support[rows], w[rows], 0.0)
        rows = rows[out.any(axis=1)]
    return w, support


def on_support(G: Array, c: Array, support: Bools) -> Array:
    """Solve each linear system on its support; the solution is 0 outside."""
    both = support[:, :, None] & support[:, None, :]
    rows_of_I = np.where(support[:, :, None], 0.0, np.eye(c.shape[1]))
    A = np.where(both, G, rows_of_I)
    b = np.where(support, c, 0.0)
    return np.linalg.solve(A, b[:, :, None])[:, :, 0]
