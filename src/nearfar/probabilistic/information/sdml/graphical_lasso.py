"""A sparse matrix whose inverse is near a symmetric one, which need not be definite: the graphical lasso.

    min_{M PD}  tr(S M) - log det M + lam sum_{i != j} |M_ij|
    max_{W PD}  log det W + d    s.t.  W_ii = S_ii,  |W_ij - S_ij| <= lam

The dual has a feasible point, and the minimum exists, if and only if there is no M with tr(S M) + lam sum |M_ij| <= 0:
along such an M, the objective decreases without bound. A search over M finds either, whether S is definite or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ....numerics.optimize import Report, Solution, stopped
from ....numerics.types import Array, Bools
from ..logdet_newton import logdet, logdet_gap

NEWTON_ROUNDS = 6  # Newton systems per step, each with fewer free entries


class UnboundedError(ValueError):
    """The objective has no minimum: it decreases without bound along `direction`, a positive definite matrix."""

    def __init__(self, direction: Array) -> None:
        super().__init__("the objective has no minimum")
        self.direction = direction


class InversePoint(NamedTuple):
    """An M with its Cholesky factor C, M = C C', its inverse W, and `linear` = tr(S M) + sum lam |M_ij|."""

    M: Array
    C: Array
    W: Array
    linear: float

    @property
    def value(self) -> float:
        """Objective tr(S M) - log det M + sum lam |M_ij|."""
        return self.linear - logdet(self.C)


def sparse_inverse(
    S: Array,
    lam: float,
    *,
    start: Array | None = None,
    max_iter: int,
    tol: float,
    report: Report | None = None,
    feasible: bool = False,
) -> Solution:
    """Return M (d, d) as `x`, with exact zeros.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Symmetric matrix.
    lam : float
        Weight of the penalty, at least 0.
    start : ndarray of shape (d, d), optional
        M to start from, if it is positive definite and better than the inverse of the diagonal of S.
    max_iter : int
        Maximum number of Newton steps.
    tol : float
        Stop when the duality gap is at most tol^2 / 2.
    feasible : bool
        Stop as soon as the gap is finite, which proves that there is a minimum.

    Raises
    ------
    UnboundedError
        There is no minimum.

    Notes
    -----
    S is scaled to a unit diagonal. Newton's method runs on the entries that are not fixed at zero, within the orthant
    of their signs (Oztoprak, Nocedal, Rennie & Olsen, 2012). Entries whose sign a step would change are fixed at zero,
    and the step is computed again. Conjugate gradients solve for it, preconditioned by M x M, the inverse of the
    Hessian of all entries.
    """
    scale = np.sqrt(np.maximum(S.diagonal(), 0.0))
    if not scale.all():
        # a diagonal entry of M costs nothing there but raises log det M without bound
        raise UnboundedError(np.diag((scale == 0).astype(np.float64)))
    one = np.eye(len(S))
    sizes = np.outer(scale, scale)
    # S_ij / sqrt(S_ii S_jj): M in these units is M_ij sqrt(S_ii S_jj), and lam changes with it
    S = S / sizes
    lams = lam / sizes * (1 - one)
    # what the change of units adds to -log det M
    volume = 2 * float(np.log(scale).sum())
    history = []
    now = measured(one, S, lams)
    assert now is not None
    if start is not None:
        last = measured(start * sizes, S, lams)
        if last is not None and last.value < now.value:
            now = last
    for k in range(max_iter + 1):
        # tr(S M) + lam sum |M_ij| <= 0: along M, the objective falls without bound
        if now.linear <= 0:
            raise UnboundedError(now.M / sizes)
        gap = duality_gap(now, S, lams)
        history.append(now.value + volume)
        if report is not None and k:
            report(k, history[-1], gap)
        if gap <= tol**2 / 2 or k == max_iter or (feasible and np.isfinite(gap)):
            break
        now = step(now, S, lams)
    converged = bool(gap <= tol**2 / 2)
    if converged:
        message = ""
    else:
        message = stopped("Newton's method", k, "duality gap", gap, tol**2 / 2)
    return Solution(
        x=now.M / sizes,
        objective=history[-1],
        n_iter=max(1, k),
        converged=converged,
        message=message,
        duality_gap=gap,
        history=np.array(history),
    )


def measured(M: Array, S: Array, lams: Array) -> InversePoint | None:
    """Return the point at M, or None if M is not positive definite."""
    C, failed = lapack.dpotrf(M, lower=1, clean=1)
    if failed:
        return None
    W = lapack.dpotri(C, lower=1)[0]  # lower triangle
    W = np.tril(W) + np.tril(W, -1).T
    linear = float(np.vdot(S, M) + np.vdot(lams, np.abs(M)))
    return InversePoint(M, C, W, linear)


def duality_gap(now: InversePoint, S: Array, lams: Array) -> float:
    """Return the gap between M and the dual point near the inverse of its best multiple; infinite if not definite."""
    d = len(S)
    # t M has the smallest value for t = d / linear = 1 / (1 + more)
    more = now.linear / len(S) - 1
    # W = S + R with |R| <= lam is the dual point nearest to the inverse of the best multiple of M
    R = np.clip(now.W * (1 + more) - S, -lams, lams)
    E = (now.C.T @ (S + R) @ now.C) / (1 + more) - np.eye(d)
    multiple = logdet_gap(E) + float(np.sum(lams * np.abs(now.M) - R * now.M)) / (1 + more)
    return multiple + d * float(more - np.log1p(more))


def step(now: InversePoint, S: Array, lams: Array) -> InversePoint:
    """Return the next point, by a Newton step in the orthant of the signs or else a thresholded gradient step."""
    G = S - now.W
    size = np.abs(now.M)
    # minus the subgradient of smallest length, and the signs that the entries have or are about to have
    pull = np.where(size > 0, -G - lams * np.sign(now.M), -soft(G, lams))
    signs = np.where(size > 0, np.sign(now.M), np.sign(pull))
    X = newton_point(now, pull, signs, lams > 0)
    D = X - now.M
    fall = -float(np.vdot(pull, D))
    K = solve_triangular(now.C, solve_triangular(now.C, D, lower=True).T, lower=True)
    t = 1.0
    while fall < 0 and t > 1e-6:
        # log det(M + t D) - log det M = log det(I + t C^-1 D C'^-1); the difference would be rounding near the minimum
        C, failed = lapack.dpotrf(np.eye(len(K)) + t * K, lower=1)
        if not failed:
            M = X if t == 1 else now.M + t * D
            change = t * float(np.vdot(S, D)) + float(np.vdot(lams, np.abs(M) - size)) - logdet(C)
            if change <= 1e-4 * t * fall + 1e-16 * len(K):
                return measured(M, S, lams) or now
        t /= 2
    t = 1.0
    for _ in range(60):
        found = measured(soft(now.M - t * G, t * lams), S, lams)
        if found is not None and found.value < now.value:
            return found
        t /= 2
    return now


def soft(X: Array, lams: Array) -> Array:
    """Return X with its entries moved toward 0 by lams, at most to 0."""
    return np.sign(X) * np.maximum(np.abs(X) - lams, 0.0)


def newton_point(now: InversePoint, pull: Array, signs: Array, sparse: Bools) -> Array:
    """Return the Newton point with the entries that would change sign fixed at 0."""
    free = (signs != 0) | ~sparse
    D = np.zeros_like(pull)
    for _ in range(NEWTON_ROUNDS):
        D = direction(now, D, -pull, free)
        crossing = free & sparse & ((now.M + D) * signs < 0)
        if not crossing.any():
            break
        free &= ~crossing
        D[crossing] = -now.M[crossing]
    X = now.M + D
    return np.where(sparse & (X * signs <= 0), 0.0, X)


def direction(now: InversePoint, D: Array, slope: Array, free: Bools, max_iter: int = 100) -> Array:
    """Return D with W D W + slope = 0 on the free entries, by preconditioned conjugate gradients.

    The other entries of D keep their values.
    """
    # rest = -slope - W D W on the free entries; preconditioner R -> M R M, which inverts D -> W D W if all are free
    rest = np.where(free, -slope - now.W @ D @ now.W, 0.0)
    Z = np.where(free, now.M @ rest @ now.M, 0.0)
    P = Z.copy()
    rz = float(np.vdot(rest, Z))
    D = D.copy()
    # the residual in the norm of the preconditioner; relative at first, and far smaller near the solution
    goal = rz * min(1e-4, rz)
    for _ in range(max_iter if rz > 0 else 0):
        HP = np.where(free, now.W @ P @ now.W, 0.0)
        t = rz / float(np.vdot(P, HP))
        D += t * P
        rest -= t * HP
        Z = np.where(free, now.M @ rest @ now.M, 0.0)
        before = rz
        rz = float(np.vdot(rest, Z))
        if rz <= goal:
            break
        P = Z + rz / before * P
    # rounding makes D slightly unsymmetric
    return (D + D.T) / 2
