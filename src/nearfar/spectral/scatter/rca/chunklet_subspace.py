"""Subspace in which chunklets keep the largest volume, after whitening by all chunklets together."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from ....fit_warnings import warn
from ....numerics import optimize, scatter
from ....numerics.optimize import Report, Solution
from ....numerics.types import Array, Ints

COVARIANCE_FLOOR = 1e-6  # ridge on the covariance of a chunklet of too few rows, in units of the mean variance


def widest_chunklets(
    X: Array,
    chunklets: Ints,
    C: Array,
    start: Array,
    shrinkage: float = 0.0,
    *,
    last: Array | None = None,
    max_iter: int = 200,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Solve max_U sum_l logdet(U' Sigma_l U)  s.t.  U' C U = I, by L-BFGS on a form without the constraint.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    chunklets : ndarray of shape (n,)
        Chunklet codes; rows with -1 are in none. Sigma_l is the covariance of chunklet l (divided by its number of
        rows).
    C : ndarray of shape (d, d)
        Positive definite matrix.
    start : ndarray of shape (k, d)
        Rows that span the initial subspace.
    shrinkage : float
        Share of the scaled identity in each Sigma_l.
    last : ndarray of shape (k', d), optional
        Rows that span the initial subspace instead, if they are k linearly independent rows as well.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is U' (k, d), a local maximum: the value depends only on the span of the rows and is not concave in it.
    """
    X, chunklets = scatter.known(X, chunklets)
    sizes = np.bincount(chunklets)
    # (c, n): a product with it takes the mean over each chunklet
    members = csr_array((1 / sizes[chunklets], (chunklets, np.arange(len(X)))), shape=(len(sizes), len(X)))
    X = X - scatter.class_means(X, chunklets)[chunklets]
    variance = np.asarray(members @ np.sum(X * X, axis=1)) / X.shape[1]
    ridge = shrinkage * variance
    if shrinkage == 0 and sizes.min() <= len(start):
        ridge = np.full(len(sizes), COVARIANCE_FLOOR * variance.mean())
        few = int((sizes <= len(start)).sum())
        warn(
            f"{few} chunklets have at most n_components rows; {ridge[0]:.3g} was added to the diagonal of every "
            "chunklet's covariance"
        )

    # search over K with L = K H and H C H' = I, so that the steps do not depend on the units of X
    T = cholesky(C, lower=True)
    H = solve_triangular(T, np.eye(len(C)), lower=True)
    X = X @ H.T
    R = H @ H.T

    def fun(K: Array) -> tuple[float, Array]:
        # -sum_l logdet(G_l) - c logdet(P), with G_l = K H Sigma_l H' K' and P = (K K')^-1, which removes the constraint
        Y = X @ K.T  # (n, k)
        P = np.linalg.inv(K @ K.T)
        # G (c, k, k), one column at a time, so that memory stays (n, k)
        G = np.stack([np.asarray(members @ (Y * column[:, None])) for column in Y.T], axis=1)
        G = (1 - shrinkage) * G + ridge[:, None, None] * (K @ R @ K.T)
        inverse = np.linalg.inv(G)
        value = np.linalg.slogdet(G)[1].sum() + len(sizes) * np.linalg.slogdet(P)[1]
        # half the gradient of sum_l logdet(G_l): sum_l G_l^-1 K H Sigma_l H'
        pulled = np.einsum("nk,nkj->nj", Y, inverse[chunklets]) / sizes[chunklets, None]
        slope = (1 - shrinkage) * pulled.T @ X + np.einsum("l,lkj->kj", ridge, inverse) @ K @ R
        return -float(value), 2 * len(sizes) * P @ K - 2 * slope

    def orthonormal(K: Array) -> Array:
        # (K K')^(-1/2) K
        w, V = np.linalg.eigh(K @ K.T)
        return (V / np.sqrt(w)) @ V.T @ K

    if last is not None and last.shape == start.shape and np.linalg.matrix_rank(last @ T) == len(last):
        start = last
    limits: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "report": report}
    found = optimize.lbfgs_in_rounds(fun, orthonormal(start @ T), orthonormal, **limits)
    return found.times(-1).with_x(found.x @ H)
