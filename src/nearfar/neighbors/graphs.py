"""Neighborhood graphs: nearest neighbors, and the weights that reconstruct each row from its neighbors (LLE)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..fit_warnings import warn
from ..numerics import checks
from ..numerics.types import Array, Ints
from .nearest import nearest


def neighbors(X: Array, k: int) -> Ints:
    """Return the k nearest other rows of each row, shape (n, k); if there are fewer, all of them, with a warning."""
    checks.counts(1, n_neighbors=k)
    others = len(X) - 1
    if k > others:
        warn(f"n_neighbors={k}, but there are {len(X)} rows: each has {others} neighbors")
    return nearest(X, X, min(k, others), exclude_self=True)[1]


def lle_weights(X: Array, k: int = 10, reg: float = 1e-3) -> csr_array:
    """Return weights S (n, n), with rows of sum 1 over the k neighbors of each row, that make S X closest to X.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    k : int
        Number of neighbors of each row.
    reg : float
        Ridge penalty of the k x k Gram matrix of each row, in units of its mean eigenvalue.

    Notes
    -----
    Roweis & Saul, "Nonlinear dimensionality reduction by locally linear embedding", Science 290, 2000.
    """
    near = neighbors(X, k)
    k = near.shape[1]
    S = np.empty(near.shape)
    step = max(1, (1 << 22) // (k * (k + X.shape[1])))
    for a in range(0, len(X), step):
        Z = X[near[a : a + step]] - X[a : a + step, None]
        # Gram matrices of the differences to the k neighbors, (b, k, k), and a ridge of `reg` mean eigenvalues
        G = Z @ Z.transpose(0, 2, 1)
        ridge = reg * np.trace(G, axis1=1, axis2=2) / k
        G += np.where(ridge > 0, ridge, 1.0)[:, None, None] * np.eye(k)
        # min |sum_j s_j z_j|^2 with sum s = 1 is solved by s = G^-1 1, scaled to the sum 1
        s = np.linalg.solve(G, np.ones((len(Z), k, 1)))[:, :, 0]
        S[a : a + step] = s / s.sum(axis=1, keepdims=True)
    return csr_array((S.ravel(), near.ravel(), np.arange(0, near.size + 1, k)), shape=(len(X), len(X)))
