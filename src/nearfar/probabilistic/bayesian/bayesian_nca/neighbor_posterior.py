"""A Gaussian posterior over weights m of directions, learned from which rows are near each other.

    log p_ij = -u_ij'm - log sum_{t in N_i} exp(-u_it'm),  u_ij = ((x_i - x_j)' V)^2
    C_T^-1 = C_0^-1 + 1/2 sum_i |J_i| sum_t (u_it - mean_i)(u_it - mean_i)'

N_i holds the k nearest rows, J_i those of them in the class of i. The second line is Böhning's bound (1992) on the
curvature of all terms, which does not depend on m. The mean maximizes sum_i sum_{j in J_i} log p_ij plus the log prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, inv, solve_triangular
from scipy.special import logsumexp

from ....numerics import optimize, psd
from ....numerics.optimize import Report, Solution
from ....numerics.types import Array, Bools, Ints
from ..variational import Gaussian

POSTERIOR_BLOCK_VALUES = 1 << 20  # values in one block of u


class ProjectedNeighbors(NamedTuple):
    """Projected rows Z (n, d), neighbors N (n, k), and which of them share the row's class (n, k)."""

    Z: Array
    N: Ints
    same: Bools

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Yield u (b, k, d) and, as 0 or 1, whether classes agree (b, k), for rows with a neighbor of their class."""
        anchors = np.flatnonzero(self.same.any(axis=1))
        step = max(1, POSTERIOR_BLOCK_VALUES // max(self.N.shape[1] * self.Z.shape[1], 1))
        for a in range(0, len(anchors), step):
            i = anchors[a : a + step]
            yield (self.Z[i, None] - self.Z[self.N[i]]) ** 2, self.same[i].astype(float)


def curvature(near: ProjectedNeighbors) -> Array:
    """Return 1/2 sum_i |J_i| sum_t (u_it - mean_i)(u_it - mean_i)', shape (d, d)."""
    d = near.Z.shape[1]
    H = np.zeros((d, d))
    for U, same in near.blocks():
        U -= U.mean(axis=1, keepdims=True)
        flat = U.reshape(-1, d)
        H += (flat.T * np.repeat(same.sum(axis=1) / 2, U.shape[1])) @ flat
    return psd.symmetrize(H)


def log_likelihood(m: Array, near: ProjectedNeighbors) -> tuple[float, Array]:
    """Return sum_i sum_{j in J_i} log p_ij and its gradient sum_i [|J_i| sum_t p_it u_it - sum_{j in J_i} u_ij]."""
    value = 0.0
    gradient = np.zeros(len(m))
    for U, same in near.blocks():
        flat = U.reshape(-1, len(m))
        log_p = -(flat @ m).reshape(same.shape)
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        value += float(np.vdot(same, log_p))
        gradient += (same.sum(axis=1, keepdims=True) * np.exp(log_p) - same).ravel() @ flat
    return value, gradient


def log_posterior(m: Array, near: ProjectedNeighbors, prior: Gaussian) -> tuple[float, Array]:
    """Return log likelihood + log prior (without its constant), and its gradient."""
    value, gradient = log_likelihood(m, near)
    pull = np.linalg.solve(prior.cov, m - prior.mean)
    return value - float((m - prior.mean) @ pull) / 2, gradient - pull


def neighbor_posterior(
    near: ProjectedNeighbors,
    prior: Gaussian,
    *,
    start: Array | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the mean as `x`, ``attributes["cov"]``, and the evidence bound (`objective`, `history`).

    L-BFGS works in coordinates in which the covariance is I: the curvature is at most 1 there, and `tol` applies to the
    gradient. It starts at `start`, or by default at the mean of the prior.
    """
    precision = inv(prior.cov) + curvature(near)
    d = len(precision)
    C = cholesky(psd.symmetrize(precision), lower=True)
    R = solve_triangular(C, np.eye(d), lower=True).T  # R R' = C_T; m = m0 + R z
    if start is None:
        first = np.zeros(d)
    else:
        first = C.T @ (start - prior.mean)

    def fun(z: Array) -> tuple[float, Array]:
        value, gradient = log_posterior(prior.mean + R @ z, near, prior)
        return -value, -(R.T @ gradient)

    found = optimize.lbfgs(fun, first, max_iter=max_iter, tol=tol, report=report)
    # the traces in the bound and in KL(q | prior) cancel
    volume = float(np.log(np.diag(R)).sum()) - float(np.linalg.slogdet(prior.cov)[1]) / 2
    best = volume - found.value
    history = volume - np.asarray(found.history)
    return found.with_x(prior.mean + R @ found.x, objective=best, history=history, attributes={"cov": R @ R.T})
