"""Spreading points: the largest sum of distances under a bound on the factor of the metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..optimize import Report, Solution, stopped
from ..types import Array


def farthest(
    weight: Array,
    distance: Callable[[Array], Array],
    gradient: Callable[[Array], Array],
    top: Callable[[Array], float],
    F: Array,
    *,
    max_iter: int = 500,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """max sum_p weight_p distance_p(F) over |F| = 1, for distances that are norms of F times something.

    Parameters
    ----------
    weight : ndarray of shape (m,)
    distance : callable
        F -> (m,).
    gradient : callable
        a (m,) -> G with sum_p a_p distance_p^2 = <F G, F>; where G is a vector, F G is `F * G`.
    top : callable
        G -> its largest eigenvalue.
    F : ndarray
        Start, of full rank.
    tol : float
        On the Frank-Wolfe gap of the problem in F' F, which is concave there, relative to the value.

    Notes
    -----
    The objective is convex in F, so maximising its linear bound over the sphere, by F <- F G / |F G|, never lowers it:
    no step lengths, and no trouble where a distance is 0.
    """
    history: list[float] = []
    gap = value = np.inf
    F = F / np.linalg.norm(F)
    for k in range(1, max_iter + 1):
        d = distance(F)
        G = gradient(np.divide(weight, 2 * d, out=np.zeros_like(d), where=d > 0))
        value = float(weight @ d)
        gap = max(top(G) - value / 2, 0.0)
        history.append(value)
        if report is not None:
            report(k, value, gap)
        if gap <= tol * value:
            return Solution(F, value, k, duality_gap=gap, history=np.array(history))
        step = F @ G if G.ndim == 2 else F * G
        F = step / np.linalg.norm(step)
    message = stopped("the maximisation", max_iter, "gap", gap, tol * value)
    return Solution(F, value, max_iter, False, message, gap, np.array(history))
