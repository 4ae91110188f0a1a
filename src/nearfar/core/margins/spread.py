"""Spreading points: the largest sum of distances under a bound on the factor of the metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import psd
from ..optimize import Report, Solution, stopped
from ..types import Array

GROWTH = 1.5  # of the power from step to step
MOST = 100.0
LEAST = 1e-2  # what a step leaves of a direction, where the power is above 1


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
    """max sum_p weight_p distance_p(F) over |F| = 1, for distances (c_p + |F z_p|^2)^(1/2).

    Parameters
    ----------
    weight : ndarray of shape (m,)
    distance : callable
        F -> (m,).
    gradient : callable
        a (m,) -> G with sum_p a_p distance_p^2 = <F G, F> and a constant; where G is a vector, F G is `F * G`.
    top : callable
        G -> the most that sum_p a_p distance_p^2 can be: its largest eigenvalue where all c_p are 0.
    F : ndarray
        Start, of full rank.
    tol : float
        On the Frank-Wolfe gap of the problem in F' F, which is concave there, relative to the value.

    Notes
    -----
    The objective is convex in F, so maximising its linear bound over the sphere, by F <- F G / |F G|, never lowers it:
    no step lengths, and no trouble where a distance is 0. Near the optimum that is slow, so powers of G are tried,
    higher ones as long as they raise the objective; where one does not, the step is taken again with G itself.
    """
    history: list[float] = []
    best = gap = np.inf
    F, last, power = F / np.linalg.norm(F), None, 1.0
    for k in range(1, max_iter + 1):
        d = distance(F)
        value = float(weight @ d)
        if last is not None and power > 1 and value < best:
            F, power = moved(*last, 1.0), 1.0
            history.append(best)
            continue
        G = gradient(np.divide(weight, 2 * d, out=np.zeros_like(d), where=d > 0))
        best, gap = value, max(top(G) - value / 2, 0.0)
        history.append(value)
        if report is not None:
            report(k, value, gap)
        if gap <= tol * value:
            return Solution(F, value, k, duality_gap=gap, history=np.array(history))
        last, power = (F, G), min(GROWTH * power, MOST)
        F = moved(F, G, power)
    message = stopped("the maximisation", max_iter, "gap", gap, tol * best)
    return Solution(last[0] if last else F, best, max_iter, False, message, gap, np.array(history))


def moved(F: Array, G: Array, power: float) -> Array:
    """F G^power of length 1; a direction that G would keep more of shrinks to `LEAST` at most."""
    if power == 1:
        step = F @ G if G.ndim == 2 else F * G
    elif G.ndim == 1:
        step = F * raised(G, power)
    else:
        w, V = np.linalg.eigh(G)
        step = ((F @ V) * raised(w, power)) @ V.T
    return step / np.linalg.norm(step)


def raised(w: Array, power: float) -> Array:
    """Nonnegative numbers relative to their largest, to a power."""
    share = np.maximum(w, 0.0) / max(float(w.max()), 1e-300)
    return np.maximum(share**power, np.minimum(share, LEAST))


def above(B: Array, even: float) -> Array:
    """A factor of full rank of what B has above the floor."""
    w, V = psd.spectrum(B / max(float(np.trace(B)), 1e-300))
    return (V * (np.sqrt(np.maximum(w - even, 0.0)) + 1e-3)) @ V.T


def scaled(found: Solution, unit: float) -> Solution:
    """Objective, its history and the gap in other units."""
    value, gap = unit * (found.objective or 0.0), unit * (found.duality_gap or 0.0)
    return found.with_x(found.x, objective=value, duality_gap=gap, history=unit * np.asarray(found.history))
