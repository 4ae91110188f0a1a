"""Metric whose squared distances are close to given ones: convex least squares with a linear term and a certificate.

min_M  sum_P (z' M z - b)^2 + <A, M>   s.t.  M PSD,    z = x_i - x_j
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular

from ....numerics import optimize, psd
from ....numerics.optimize import Report, Solution
from ....numerics.types import Array

OBJECTIVE_FLOOR = 1e-5  # `tol` is relative to the objective, or to this share of sum_p b_p^2 if that is larger


def match_distances(
    Z: Array,
    b: Array,
    A: Array,
    start: Array | None = None,
    *,
    max_iter: int = 1000,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return M (d, d) as `x`; `duality_gap` bounds the difference between its objective f and the optimum.

    The gap is at most tol |f|, or tol times `OBJECTIVE_FLOOR` sum_p b_p^2 if |f| is below that, because rounding
    errors are relative to sums.

    Parameters
    ----------
    Z : ndarray of shape (p, d)
        Differences z of the pairs.
    b : ndarray of shape (p,)
        Squared target distances of the pairs.
    A : ndarray of shape (d, d)
        Symmetric matrix.
    start : ndarray of shape (d, d) or None
        Initial M, a PSD matrix.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Tolerance of the duality gap.
    report : callable or None
        Function that is called with the progress.

    Raises
    ------
    ValueError
        The problem is unbounded: A has a negative direction to which all of Z is orthogonal.

    Notes
    -----
    Projected gradient descent in coordinates in which the differences are white. The dual, max_u -b'u - |u|^2 / 4
    subject to sum_p u_p z z' + A PSD, is evaluated at u = 2 (z' M z - b) moved into the feasible set.
    """
    d = Z.shape[1]
    Q = Z.T @ Z / len(Z)
    ridge = 1e-3 if psd.is_singular(psd.spectrum(Q)[0]) else 1e-9
    # y = C^-1 z with C C' = Q (and a ridge); M in these coordinates is C' M C, A is C^-1 A C'^-1
    C = cholesky(Q + ridge * np.trace(Q) / d * np.eye(d), lower=True)
    Y = solve_triangular(C, Z.T, lower=True).T
    A = solved(C, A)
    lift = lifter(Y, A)
    size = OBJECTIVE_FLOOR * max(float(b @ b), float(np.sum(A * A)) / len(Y)) or 1.0

    def fun(M: Array) -> tuple[float, Array]:
        off = np.einsum("pd,pd->p", Y @ M, Y) - b  # y'My - b, (p,)
        value = float(off @ off + np.sum(A * M)) / size
        gradient = ((2 * Y * off[:, None]).T @ Y + A) / size
        return value, gradient

    def gap(M: Array, value: float, G: Array) -> float:
        # u = 2 (y'My - b) + s, with the least s for which u is feasible
        u = 2 * (np.einsum("pd,pd->p", Y @ M, Y) - b) + lift(size * G)
        return value + float(b @ u + u @ u / 4) / size

    def project(M: Array, step: float) -> Array:
        return psd.project(M)[0]

    if start is None:
        M0 = np.zeros((d, d))
    else:
        M0 = C.T @ start @ C
    limits: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "report": optimize.in_unit(report, size)}
    found = optimize.fista(fun, project, M0, gap=gap, step=size / (2 * len(Y)), **limits).times(size)
    K = solve_triangular(C, found.x, lower=True, trans="T")
    return found.with_x(psd.symmetrize(solve_triangular(C, K.T, lower=True, trans="T")))


def solved(C: Array, A: Array) -> Array:
    """Return C^-1 A C'^-1."""
    return psd.symmetrize(solve_triangular(C, solve_triangular(C, A, lower=True).T, lower=True))


def lifter(Y: Array, A: Array) -> Callable[[Array], float]:
    """Return a function that returns the least s >= 0 for which G + s sum y y' is PSD, given the gradient G."""
    q, V = psd.spectrum(Y.T @ Y)
    r = psd.rank(q)
    inside = V[:, :r]
    outside = V[:, r:]
    free = outside.T @ A @ outside
    low = 0.0
    if r < len(q) and A.any():
        low = eigh(free, eigvals_only=True)[0]
    if low < -1e-10 * np.abs(A).max():
        cause = "dissimilar pairs are farther apart than similar ones in a direction that the target pairs do not limit"
        raise ValueError(f"the optimum is infinite, because {cause}; give more target distances or beta=0")
    bound = r < len(q) and low > 0

    def lift(G: Array) -> float:
        # G + s sum y y' is PSD if and only if the Schur complement of its part outside of the span is, for all y
        core = inside.T @ G @ inside
        if bound:
            cross = inside.T @ G @ outside
            core = core - cross @ np.linalg.solve(free, cross.T)
        return max(0.0, -float(eigh(psd.symmetrize(core), np.diag(q[:r]), eigvals_only=True)[0]))

    return lift
