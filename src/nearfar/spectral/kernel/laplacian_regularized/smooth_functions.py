"""Functions on a neighborhood graph that change least along its edges, and their extension to new rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, dia_array
from scipy.sparse.linalg import LinearOperator, eigsh

from ....neighbors import graphs
from ....numerics.types import Array

DENSE_ROWS = 600  # rows up to which a dense solver is used
TOL = 1e-6  # relative error of eigenvalues


def graph_laplacian(X: Array, k: int) -> csr_array:
    """Return diag(W 1) - W, where W_ij is 1 if row i is among the k nearest of row j or vice versa, and 0 otherwise."""
    near = graphs.neighbors(X, k)
    n = len(near)
    A = csr_array((np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, near.shape[1])), shape=(n, n))
    W = A.maximum(A.T)
    return csr_array(dia_array((W.sum(axis=1)[None], [0]), shape=(n, n)) - W)


def smoothest(laplacian: csr_array, q: int) -> Array:
    """Return the q smoothest eigenvectors besides the constant one, orthonormal, shape (n, q)."""
    n = laplacian.shape[0]
    top = 2 * float(laplacian.diagonal().max())  # above all eigenvalues; that of the constant vector is moved there
    if n <= DENSE_ROWS or 4 * q >= n:
        return eigh(laplacian.toarray() + top / n, subset_by_index=[0, q - 1])[1]
    moved = LinearOperator((n, n), lambda x: laplacian @ x + top * x.mean(), dtype=np.float64)
    # a wide Krylov space instead of shift and invert: the factors of a graph of many dimensions would be dense
    return eigsh(moved, k=q, which="SA", ncv=4 * q, maxiter=1000, tol=TOL, v0=np.cos(np.arange(n)))[1]


def ridge_map(R: Array, Y: Array, ridge: float) -> Array:
    """Return L with R L' near Y, by ridge regression on rows R of a kernel map.

    `ridge` is in units of the mean k(x, x).
    """
    # L' = (R'R + ridge tr(R'R) / n I)^-1 R'Y
    K = R.T @ R
    return np.linalg.solve(K + ridge * np.trace(K) / len(R) * np.eye(len(K)), R.T @ Y).T
