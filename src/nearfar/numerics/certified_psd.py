"""Convex problems over positive semi-definite M: a search over a full-rank factor that ends with a certificate.

    min over M = L' L of f(M), f convex and smooth, G = df/dM

A full-rank square L has no bad stationary points in practice, and its gradient 2 L G needs no projection. The search
stops as soon as the bound of the method on f(M) - min f is small. If L stalls before, projected gradient descent
continues from M.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import inv

from . import psd
from .optimize import Report, Solution, fista, lbfgs, stopped
from .types import Array

Evaluate = Callable[[Array], tuple[float, Array]]
Gap = Callable[[Array, float, Array], float]
STALL = 1e-14  # relative decrease of f in one iteration below which the search over L has stalled
MIN_START_EIGENVALUE = 1e-6  # least eigenvalue of the metric of a start, relative to the largest
CERTIFIED_MEMORY = 30  # correction pairs of L-BFGS: they cost little, and with fewer the gap closes later


def minimize(
    evaluate: Evaluate,
    gap: Gap,
    A: Array,
    *,
    max_iter: int = 500,
    tol: float = 1e-6,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """Return a metric whose value is within ``tol * max(1, |f|)`` of the minimum.

    Parameters
    ----------
    evaluate : callable
        Function that takes L and returns (f, G).
    gap : callable
        Function that takes (L, f, G) and returns an upper bound on f - min f, which is infinite if there is none.
    A : ndarray of shape (d, d)
        Positive definite matrix that scales the problem well: the search is over K with L = K A.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Tolerance of the bound.
    start : ndarray of shape (k, d), optional
        Initial L. Directions that it lacks get a small part of A. By default, A.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is L (d, d); ``attributes["kkt"]`` is (negative part of the smallest eigenvalue of G, |<M, G>|).
    """
    if start is None:
        K0 = np.eye(len(A))
    else:
        K0 = of_full_rank(start @ inv(A))
    # values near 1, in whatever units f is
    scale = max(1.0, abs(evaluate(K0 @ A)[0]))
    seen: dict[str, Any] = {}

    def on_factor(K: Array) -> tuple[float, Array]:
        L = K @ A
        f, G = evaluate(L)
        seen.update(L=L, f=f, G=G)
        return f / scale, 2 / scale * K @ (A @ G @ A)  # df/dK = 2 L G A

    def certified(before: float, now: float) -> bool:
        close = gap(seen["L"], seen["f"], seen["G"]) <= tol * max(1.0, abs(seen["f"]))
        return close or before - now <= STALL * max(1.0, abs(now))

    found = lbfgs(on_factor, K0, stop=certified, max_iter=max_iter, tol=0.0, memory=CERTIFIED_MEMORY, report=report)
    history = scale * np.asarray(found.history)
    rest = max_iter - found.n_iter
    first = finished(evaluate, gap, found.x @ A, found.n_iter, tol, history)
    if first.converged or rest < 1:
        return first
    second = projected(evaluate, gap, A, found.x, max_iter=rest, tol=tol, report=report)
    both = np.concatenate([history, np.asarray(second.history)])
    return finished(evaluate, gap, second.x, found.n_iter + second.n_iter, tol, both)


def of_full_rank(K: Array) -> Array:
    """Return K if it is square and of full rank; otherwise such a K with almost the same metric.

    A search over factors cannot increase their rank.
    """
    if np.linalg.matrix_rank(K) == len(K) == K.shape[1]:
        return K
    w, V = psd.spectrum(K.T @ K)
    floor = max(MIN_START_EIGENVALUE * w[0], np.finfo(np.float64).tiny)
    return np.sqrt(np.maximum(w, floor))[:, None] * V.T


def projected(evaluate: Evaluate, gap: Gap, A: Array, K: Array, **settings: Any) -> Solution:
    """Solve the same problem by projected gradient descent on K' K."""

    def of_metric(M: Array) -> tuple[float, Array]:
        # the metric is A M A, so that df/dM = A G A; (d, d)
        f, G = evaluate(psd.components(M) @ A)
        return f, A @ G @ A

    def bound(M: Array, f: float, G: Array) -> float:
        # df/d(A M A) = A^-1 (df/dM) A^-1
        back = inv(A)
        return gap(psd.components(M) @ A, f, back @ G @ back)

    def project(M: Array, step: float) -> Array:
        return psd.project(M)[0]

    G = of_metric(K.T @ K)[1]
    # at least 1e-2, because K may be 0: with one feature, the first step of L-BFGS from 1 often leads there
    step = max(float(np.linalg.norm(K.T @ K)), 1e-2) / max(float(np.linalg.norm(G)), 1e-300)
    found = fista(of_metric, project, K.T @ K, gap=bound, step=step, **settings)
    return found.with_x(psd.components(found.x) @ A)


def finished(evaluate: Evaluate, gap: Gap, L: Array, n_iter: int, tol: float, history: Array) -> Solution:
    """Return the solution at L, with its bound and the violation of the optimality conditions."""
    f, G = evaluate(L)
    bound = gap(L, f, G)
    limit = tol * max(1.0, abs(f))
    converged = bool(bound <= limit)
    if converged:
        message = ""
    else:
        message = stopped("the search", n_iter, "duality gap", bound, limit)
    # G is positive semi-definite and <M, G> = 0 at the optimum
    low = max(0.0, -float(np.linalg.eigvalsh(G)[0]))
    kkt = np.array([low, abs(float(np.vdot(L, L @ G)))])
    return Solution(
        x=psd.compress(L),
        objective=f,
        n_iter=n_iter,
        converged=converged,
        message=message,
        duality_gap=bound,
        history=history,
        attributes={"kkt": kkt},
    )
