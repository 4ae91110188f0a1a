"""Functions on a neighbourhood graph that change least along its edges, and their extension to new rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, svd
from scipy.sparse import csr_array, dia_array
from scipy.sparse.linalg import eigsh

from . import graphs
from .types import Array

DENSE = 600  # rows up to which all eigenvectors are computed


def graph_laplacian(X: Array, k: int) -> csr_array:
    """diag(W 1) - W, where W joins two rows with 1 if either is among the other's k nearest."""
    near = graphs.neighbors(X, k)
    n = len(near)
    A = csr_array((np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, k)), shape=(n, n))
    W = A.maximum(A.T)
    return csr_array(dia_array((W.sum(axis=1)[None], [0]), shape=(n, n)) - W)


def smoothest(laplacian: csr_array, q: int) -> Array:
    """Orthonormal functions (n, q) that span the constant's complement in the q + 1 smoothest eigenvectors."""
    n = laplacian.shape[0]
    if n <= DENSE or 4 * q > n:
        V = eigh(laplacian.toarray(), subset_by_index=[0, q])[1]
    else:
        # a little below 0, where the matrix is singular
        shift = -1e-4 * float(laplacian.diagonal().mean())
        V = eigsh(laplacian, k=q + 1, sigma=shift, v0=np.cos(np.arange(n)))[1]
    return svd(V - V.mean(axis=0), full_matrices=False)[0][:, :q]


def ridge_map(R: Array, Y: Array, ridge: float) -> Array:
    """L with R L' near Y: ridge regression on the rows of a kernel map, in units of the mean k(x, x)."""
    K = R.T @ R
    return np.linalg.solve(K + ridge * np.trace(K) / len(R) * np.eye(len(K)), R.T @ Y).T
