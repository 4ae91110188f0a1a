"""Points that are matrices: orthonormal columns, positive definite matrices and their logarithms, and subspaces.

A stack holds one matrix per sample, shape (n, d, q).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ..fit_warnings import warn
from .types import Array

SPD_FLOOR = 1e-12  # least eigenvalue of a matrix whose logarithm is taken, relative to its largest


def orthonormal(A: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return U, whose orthonormal columns span those of A (d, p), and a map from gradients in U to gradients in A.

    A search over any A of full rank is a search over the Stiefel manifold, without constraints. If the function
    depends only on the span of U, it is a search over the Grassmann manifold.

    Returns
    -------
    U : ndarray of shape (d, p)
        Orthonormal basis, with A = U R for an upper triangular R with positive diagonal.
    pullback : callable
        Function that maps df/dU (d, p) to df/dA (d, p).
    """
    Q, R = np.linalg.qr(A)
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    U = Q * signs
    R = signs[:, None] * R

    def pullback(G: Array) -> Array:
        # dA = [(I - U U') G + U tril(U'G - G'U, -1)] R'^-1
        Y = U.T @ G
        H = G - U @ Y + U @ np.tril(Y - Y.T, -1)
        return solve_triangular(R, H.T).T

    return U, pullback


def through_rows(check: Callable[..., Any], X: Any, *rest: Any) -> Any:
    """Apply a check of tables to X.

    If X is a stack, each matrix is one row during the check and becomes a matrix again afterwards.

    Parameters
    ----------
    check : callable
        Function (rows, *rest) that returns rows, or a tuple that starts with them.
    X : array-like
        Table or stack of matrices.
    *rest
        Further arguments of `check`.
    """
    stack = X if hasattr(X, "ndim") else np.asarray(X)
    if stack.ndim != 3:
        return check(X, *rest)
    stack = np.asarray(stack)
    found = check(stack.reshape(len(stack), -1), *rest)
    if isinstance(found, tuple):
        return (found[0].reshape(stack.shape), *found[1:])
    return found.reshape(stack.shape)


def require_spd(X: Array) -> None:
    """Raise a ValueError that names a matrix of X (n, d, d) unless all are square, symmetric and positive definite."""
    if X.shape[1] != X.shape[2]:
        raise ValueError(f"X must hold square matrices; got shape {X.shape}")
    scale = np.maximum(np.abs(X).max(axis=(1, 2)), np.finfo(X.dtype).tiny)
    off = np.abs(X - X.transpose(0, 2, 1)).max(axis=(1, 2)) / scale
    if off.max() > 1e-5:
        gap = f"X[{off.argmax()}] differs from its transpose by {off.max():.3g} of its largest entry"
        raise ValueError(f"X must hold symmetric matrices; {gap}")
    w = np.linalg.eigvalsh(X)
    low = np.where(w[:, -1] > 0, w[:, 0] / scale, -np.inf)
    if low.min() < -10 * np.finfo(X.dtype).eps:
        k = low.argmin()
        raise ValueError(f"X must hold positive definite matrices; the smallest eigenvalue of X[{k}] is {w[k, 0]:.3g}")


def spd_log(X: Array) -> Array:
    """Return the matrix logarithms of positive definite matrices (n, d, d).

    Warns
    -----
    UserWarning
        A matrix is singular to working precision. Its eigenvalues are then raised to 1e-12 of the largest.
    """
    w, V = np.linalg.eigh((X + X.transpose(0, 2, 1)) / 2)
    low = SPD_FLOOR * w[:, -1:]
    if (w < low).any():
        count = (w < low).any(axis=1).sum()
        warn(f"X: {count} matrices are singular; their eigenvalues were raised to {SPD_FLOOR:g} of the largest")
    # log X = V diag(log w) V'; (n, d, d)
    return (V * np.log(np.maximum(w, low))[:, None, :]) @ V.transpose(0, 2, 1)


def vectors(T: Array) -> Array:
    """Return symmetric matrices (n, d, d) as rows of d (d + 1) / 2 values with the same inner products.

    >>> vectors(np.array([[[1.0, 2.0], [2.0, 3.0]]])).round(3)
    array([[1.   , 2.828, 3.   ]])
    """
    i, j = np.triu_indices(T.shape[1])
    # <S, T> has every entry off the diagonal twice, and a row has it once: sqrt 2 in both rows makes up for it
    return T[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def matrices(rows: Array) -> Array:
    """Return the symmetric matrices (n, d, d) from which `vectors` made these rows.

    Raises
    ------
    ValueError
        The length of the rows is not d (d + 1) / 2 for any d.
    """
    k = rows.shape[1]
    d = int((np.sqrt(8 * k + 1) - 1) / 2)
    if d * (d + 1) // 2 != k:
        raise ValueError(f"rows must hold d (d + 1) / 2 values of a symmetric matrix, 1, 3, 6, 10, ...; got {k}")
    i, j = np.triu_indices(d)
    T = np.zeros((len(rows), d, d))
    T[:, i, j] = T[:, j, i] = rows / np.where(i == j, 1.0, np.sqrt(2.0))
    return T


def rectified(T: Array, floor: float = 0.0) -> Array:
    """Return the symmetric matrices T (n, d, d) with eigenvalues below `floor` raised to it."""
    w, V = np.linalg.eigh(T)
    return (V * np.maximum(w, floor)[:, None, :]) @ V.transpose(0, 2, 1)


def require_spans(X: Array) -> None:
    """Raise a ValueError unless the columns of each basis (n, d, q) are linearly independent.

    Raises
    ------
    ValueError
        A basis spans too few dimensions; the message names it.

    Warns
    -----
    UserWarning
        The columns of a basis are not orthonormal, or rows (n, d) are 0 and define no line.
    """
    if X.ndim == 2:
        zero = ~X.any(axis=1)
        if zero.any():
            warn(f"X: {np.count_nonzero(zero)} of {len(X)} rows are 0 and define no line; their projectors are 0")
        return
    d, q = X.shape[1:]
    if q > d:
        raise ValueError(f"X must hold matrices with at least as many rows as columns; got shape {X.shape}")
    s = np.linalg.svd(X, compute_uv=False)
    thin = s[:, -1] <= d * np.finfo(X.dtype).eps * s[:, 0]
    if thin.any():
        raise ValueError(f"X must hold matrices of {q} independent columns; those of X[{thin.argmax()}] are dependent")
    off = np.abs(s - 1).max(axis=1)
    if off.max() > 1e-5:
        warn(f"the columns of X[{off.argmax()}] are not orthonormal; their span is used")


def spans(X: Array) -> Array:
    """Return orthonormal bases (n, d, q) of the columns of each matrix, or (n, d, 1) of each row; rows of 0 stay 0."""
    if X.ndim == 3:
        return np.linalg.qr(X)[0]
    largest = np.abs(X).max(axis=1, keepdims=True)
    unit = X / np.where(largest > 0, largest, 1.0)  # so that no square overflows
    length = np.linalg.norm(unit, axis=1, keepdims=True)
    return (unit / np.where(length > 0, length, 1.0))[:, :, None]


def inner_products(U: Array, M: Array) -> Array:
    """Return U' M U of every basis (n, d, q), with the identity where U is 0."""
    G = U.transpose(0, 2, 1) @ M @ U
    G[~U.any(axis=(1, 2))] = np.eye(U.shape[2])
    return G


def unit_bases(U: Array, M: Array) -> Array:
    """Return for every basis U (n, d, q) a basis V of the same span with V' M V = I; `projectors` returns V V'."""
    # U'MU = C C' and V' = C^-1 U', so V'MV = C^-1 C C' C'^-1 = I
    C = np.linalg.cholesky(inner_products(U, M))
    return np.linalg.solve(C, U.transpose(0, 2, 1)).transpose(0, 2, 1)


def projectors(U: Array, M: Array) -> Array:
    """Return U (U' M U)^-1 U' for every basis U (n, d, q), which depends only on the span of U."""
    # for another basis U A of the span, A (A'U'MUA)^-1 A' = (U'MU)^-1: the same projector
    return U @ np.linalg.solve(inner_products(U, M), U.transpose(0, 2, 1))
