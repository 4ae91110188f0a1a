"""The largest sum of distances of pairs under a bound on the factor of the metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....numerics import psd
from ....numerics.optimize import Report, Solution, stopped
from ....numerics.pair_differences import Edges
from ....numerics.types import Array, Ints

WRITTEN = 1 << 16  # values up to which the differences of pairs are stored
POWER_GROWTH = 1.5  # factor of the power from step to step
MAX_POWER = 100.0
DIRECTION_FLOOR = 1e-2  # least share of a direction that a step with a power above 1 keeps


def farthest(
    weight: Array,
    distance: Callable[[Array], Array],
    gradient: Callable[[Array], Array],
    bound: Callable[[Array], float],
    F: Array,
    *,
    max_iter: int = 500,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Maximize sum_p weight_p distance_p(F) over |F| = 1, for distances (c_p + |F z_p|^2)^(1/2).

    Parameters
    ----------
    weight : ndarray of shape (m,)
        Weights of the pairs.
    distance : callable
        Function that takes F and returns the distances (m,).
    gradient : callable
        Function that takes a (m,) and returns G with sum_p a_p distance_p^2 = <F G, F> plus a constant. If G is a
        vector, F G is `F * G`.
    bound : callable
        Function that takes the eigenvalues of G (or G itself if it is a vector) and returns an upper bound on sum_p
        a_p distance_p^2, which is the largest eigenvalue if all c_p are 0.
    F : ndarray
        Starting point, of full rank.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the Frank-Wolfe gap of the problem in F' F, which is concave there, falls below `tol` times the
        value.
    report : callable or None
        Function that is called with the progress.

    Notes
    -----
    The objective is convex in F, so the maximization of its linear bound over the sphere, by F <- F G / |F G|, never
    lowers it. No step lengths are needed, and distances of 0 cause no problem. Near the optimum this is slow, so
    powers of G are tried, and increased as long as they raise the objective. If one does not, the step is repeated
    with G itself.
    """
    history: list[float] = []
    best = gap = np.inf
    F = F / np.linalg.norm(F)
    last = None
    power = 1.0
    for k in range(1, max_iter + 1):
        d = distance(F)
        value = float(weight @ d)
        if last is not None and power > 1 and value < best:
            # the power was too high: take the step that cannot fail
            F = moved(last, 1.0)
            power = 1.0
            history.append(best)
            continue
        # a_p = weight_p / (2 distance_p), the derivative of the sum with respect to distance_p^2
        a = np.divide(weight, 2 * d, out=np.zeros_like(d), where=d > 0)
        G = gradient(a)
        if G.ndim == 2:
            # powers of G are powers of its eigenvalues
            w, V = np.linalg.eigh(G)
        else:
            w = G
            V = None
        best = value
        # Frank-Wolfe gap: max over |F| = 1 of sum_p a_p distance_p^2, minus its value at F, which is value / 2
        gap = max(bound(w) - value / 2, 0.0)
        history.append(value)
        if report is not None:
            report(k, value, gap)
        if gap <= tol * value:
            return Solution(F, value, k, duality_gap=gap, history=np.array(history))
        last = (F, w, V)
        power = min(POWER_GROWTH * power, MAX_POWER)
        F = moved(last, power)
    message = stopped("the maximization", max_iter, "gap", gap, tol * best)
    if last is not None:
        F = last[0]
    return Solution(
        x=F,
        objective=best,
        n_iter=max_iter,
        converged=False,
        message=message,
        duality_gap=gap,
        history=np.array(history),
    )


class Differences:
    """Differences z_p = y_i - y_j of few pairs.

    Parameters
    ----------
    Y : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (m,)
        Pairs of row numbers.
    weight : ndarray of shape (m,)
        Weights of the pairs.
    """

    def __init__(self, Y: Array, i: Ints, j: Ints, weight: Array) -> None:
        self.Z = Y.take(i, axis=0) - Y.take(j, axis=0)
        self.weight = weight

    def squares(self, F: Array) -> Array:
        """Return |F z_p|^2, (m,)."""
        D = self.Z @ F.T
        return np.einsum("pk,pk->p", D, D)

    def outer(self, a: Array) -> Array:
        """Return sum_p a_p z_p z_p'."""
        return (self.Z.T * a) @ self.Z


class DifferencesOfEdges:
    """Differences of many pairs, for which no array (m, d) is formed."""

    def __init__(self, Y: Array, i: Ints, j: Ints, weight: Array) -> None:
        self.Y = Y
        self.edges = Edges(i, j, len(Y))
        self.weight = self.edges.summed(weight)

    def squares(self, F: Array) -> Array:
        return self.edges.squares(self.Y @ F.T)

    def outer(self, a: Array) -> Array:
        return self.Y.T @ self.edges.laplacian_times(a, self.Y)


def differences(Y: Array, i: Ints, j: Ints, weight: Array) -> Differences | DifferencesOfEdges:
    """Return what `farthest` needs of the pairs, in the form that takes less time."""
    if Y.shape[1] * len(i) <= WRITTEN:
        return Differences(Y, i, j, weight)
    return DifferencesOfEdges(Y, i, j, weight)


def moved(at: tuple[Array, Array, Array | None], power: float) -> Array:
    """Return F G^power scaled to length 1, with G = V diag(w) V' (or w).

    A direction of which little is left is reduced at most to `DIRECTION_FLOOR`.
    """
    F, w, V = at
    if V is None:
        step = F * raised(w, power)
    else:
        step = ((F @ V) * raised(w, power)) @ V.T
    return step / np.linalg.norm(step)


def raised(w: Array, power: float) -> Array:
    """Return nonnegative numbers, relative to their largest, raised to a power."""
    share = np.maximum(w, 0.0) / max(float(w.max()), 1e-300)
    if power == 1:
        return share
    return np.maximum(share**power, np.minimum(share, DIRECTION_FLOOR))


def full_rank_factor(B: Array, floor: float) -> Array:
    """Return a factor of full rank of the part of B above the floor."""
    w, V = psd.spectrum(B / max(float(np.trace(B)), 1e-300))
    return (V * (np.sqrt(np.maximum(w - floor, 0.0)) + 1e-3)) @ V.T
