"""Subspaces on which the eigenvalues of U' S U U' D U are optimal: costs on the Grassmann manifold and their search."""

from __future__ import annotations

import numpy as np

from ....numerics import manifolds, psd
from ....numerics.constraints import generator
from ....numerics.optimize import Report, Solution, in_unit, lbfgs
from ....numerics.types import Array, Seed


def cost(U: Array, S: Array, D: Array, kind: str) -> tuple[float, Array]:
    """Return sum_i f(lam_i) and its gradient in U (d, p): f = log^2(lam) / 4 for "riemannian", 2 sqrt(lam) for "trace".

    With U' S U = C C' and C' U' D U C = Q diag(lam) Q', a basis in which both are diagonal gives the gradient.
    """
    C, lam, Q = psd.sharp_spectrum(U.T @ S @ U, U.T @ D @ U)
    lam = np.maximum(lam, np.finfo(np.float64).tiny)
    if kind == "riemannian":
        value = np.log(lam) ** 2 / 4
        slope = np.log(lam) / (2 * lam)
    else:
        value = 2 * lam**0.5
        slope = lam**-0.5
    # with P = C'^-1 Q and R = C Q:  2 S U P diag(f' lam) P' + 2 D U R diag(f') R'
    P = psd.sharp_from_spectrum(C, np.ones_like(lam), Q, 1.0).T
    R = C @ Q
    gradient = 2 * S @ U @ (P * (slope * lam)) @ P.T + 2 * D @ U @ (R * slope) @ R.T
    return float(value.sum()), gradient


def search(
    S: Array,
    D: Array,
    U: Array,
    kind: str,
    init: str = "discriminant",
    restarts: int = 3,
    last: Array | None = None,
    seed: Seed = None,
    max_iter: int = 250,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the best of several searches over the Grassmann manifold, or of one from the span of `last` (p, d).

    For "trace", the scatters are scaled so that the mean of log lam is 0 at U (d, p), and the search does not depend on
    the units of X. For "riemannian", they are not scaled, because its subspace depends on the scale.
    """
    if kind == "riemannian":
        size = 1.0
    else:
        lam = np.maximum(psd.sharp_spectrum(U.T @ S @ U, U.T @ D @ U)[1], np.finfo(np.float64).tiny)
        size = float(np.exp(np.mean(np.log(lam))))
    D = D / size
    unit = size**0.5

    def fun(A: Array) -> tuple[float, Array]:
        V, pullback = manifolds.orthonormal(A)
        # the cost depends on the span of A alone: a search over all A is one over subspaces
        value, G = cost(V, S, D, kind)
        return value, pullback(G)

    rng = generator(seed)
    starts = []
    if init == "discriminant":
        starts = [U]
    elif init == "pca":
        # the directions in which the pairs of both kinds differ most
        starts = [psd.spectrum(S + D)[1][:, : U.shape[1]]]
    if last is not None and np.linalg.matrix_rank(last) == len(last) == U.shape[1]:
        starts = [last.T]
        restarts = 1
    starts += [rng.normal(size=U.shape) for _ in range(restarts - len(starts))]
    found = [lbfgs(fun, A, max_iter=max_iter, tol=tol, report=in_unit(report, unit)) for A in starts]
    # the first of the searches whose values are equal up to rounding
    lowest = min(solution.value for solution in found)
    best = next(solution for solution in found if solution.value <= lowest + 1e-8 * max(1.0, abs(lowest)))
    return best.with_x(manifolds.orthonormal(best.x)[0]).times(unit)
