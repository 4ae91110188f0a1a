"""Hinges on the neighbors of each row in its class, and on its rivals, the nearest rows of other classes.

    sum_{(i, j) same class} c_ij [d_ij - 1]_+ + sum_{(i, l) different} c_il [1 + margin - d_il]_+ + gamma |M - I|^2

With fixed rivals, the problem is convex and solved through its dual. Rivals that follow the metric are searched for
repeatedly. The nearest rivals cost most, so the value over them is the largest over any rivals: it is convex as well,
and the optimum for any fixed rivals is a lower bound on it. The search therefore ends once the value of the best metric
so far is close to the best bound, even if the rivals of some rows keep changing.
"""

from __future__ import annotations

import numpy as np

from ....neighbors import by_class
from ....numerics import psd
from ....numerics.checks import class_sizes
from ....numerics.optimize import Report, Solution, lbfgs
from ....numerics.types import Array, Ints
from ..impostors import target_neighbors
from . import hinge_dual
from .hinge_dual import Hinges

LOOKS = 20  # most searches for rivals
LOOSE = 1000  # gap that ends the search if rivals follow the metric, in units of tol


def class_weights(labels: Ints, k: Ints, share: float, weighting: str) -> Array:
    """Return the weight of the pairs of each row: the same total for every class, or the share of the other classes.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Sorted class codes.
    k : ndarray of shape (c,)
        Number of pairs of each row of a class.
    share : float
        Factor of the weights: a for similar pairs, 1 - a for dissimilar pairs.
    weighting : {"mean", "frequency"}
        How weights are assigned, as in `IML`.
    """
    size = class_sizes(labels).astype(float)
    if weighting == "mean":
        weight = 1 / (2 * len(size) * size * np.maximum(k, 1))
    else:
        weight = 1 - size / size.sum()
    return share * weight[labels]


def hinges(
    X: Array,
    labels: Ints,
    k: int = 3,
    *,
    a: float = 0.5,
    width: float = 1.0,
    gamma: float = 0.1,
    weighting: str = "mean",
    dynamic: bool = True,
    max_iter: int = 1000,
    tol: float = 1e-6,
    start: Array | None = None,
    report: Report | None = None,
) -> Solution:
    """Return L (d, d) as `x`; labels must be sorted.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Sorted class codes.
    k : int
        Number of neighbors of each kind, or fewer if there are fewer: of the same class for each row separately, of
        other classes for all rows together.
    a : float
        Weight of the similar pairs, in [0, 1].
    width : float
        Margin between the bounds 1 and 1 + width.
    gamma : float
        Weight of the regularizer. With 0, the search is over L, without a certificate.
    weighting : {"mean", "frequency"}
        How pairs are weighted, as in `IML`.
    dynamic : bool
        Search for the rivals again under the learned metric.
    max_iter : int
        Maximum number of iterations for each set of rivals.
    tol : float
        Tolerance of the duality gap, as in `IML`.
    start : ndarray of shape (d, d), optional
        Initial L.
    report : callable or None
        Function that is called with the progress.
    """
    sizes = class_sizes(labels)
    mates = target_neighbors(X, labels, k)
    i, place = np.nonzero(mates != np.arange(len(X))[:, None])  # places without a neighbor hold the row itself
    n_mates = np.minimum(k, sizes - 1)
    n_rivals = min(k, len(X) - int(sizes.max()))
    # the first row of each dissimilar pair; the second, its rival, may change
    first = np.repeat(np.arange(len(X)), n_rivals)
    near = X[i] - X[mates[i, place]]  # differences of the similar pairs, which come first in all arrays of pairs
    s = np.repeat([1.0, -1.0], [len(i), len(first)])
    b = np.repeat([1.0, 1.0 + width], [len(i), len(first)])
    own = class_weights(labels, n_mates, a, weighting)
    other = class_weights(labels, np.full(len(sizes), n_rivals), 1 - a, weighting)
    c = np.concatenate([own[i], other[first]])
    I = np.eye(X.shape[1])

    def against(others: Ints) -> Hinges:
        return Hinges(Z=np.concatenate([near, X[first] - X[others.ravel()]]), s=s, b=b, c=c, A0=I, gamma=gamma)

    L = start
    if L is None:
        L = I
    dual = None
    others = by_class.nearest_of_others(X, labels, n_rivals)
    spent = 0
    settled = False
    seen: list[Ints] = []
    best = L
    value = np.inf
    bound = -np.inf
    problem = against(others)
    while not settled and len(seen) < LOOKS and not any(np.array_equal(others, before) for before in seen):
        found = fixed(problem, L, dual, max_iter=max_iter, tol=tol, report=report)
        L = found.x
        dual = found.attributes.get("dual")
        spent = spent + found.n_iter
        # the optimum for any rivals is a lower bound, because the nearest rivals cost most
        bound = max(bound, found.value - (found.duality_gap or 0.0))
        seen.append(others)
        if dynamic:
            others = by_class.nearest_of_others(X @ L.T, labels, n_rivals)
            problem = against(others)
        # the value over the rivals under the new metric, which decides
        now = problem(L.T @ L)
        if now < value:
            best = L
            value = now
        gap = max(value - bound, 0.0)
        settled = np.array_equal(others, seen[-1]) or gap <= LOOSE * tol * max(1.0, value)
    message = found.message
    if not message and not settled:
        message = f"rivals still change after {len(seen)} searches for them, with a gap of {gap:.3g}"
    return Solution(
        best,
        objective=value,
        n_iter=spent,
        converged=found.converged and settled,
        message=message,
        duality_gap=gap if gamma > 0 else None,
        history=found.history,
        attributes={"n_looks": len(seen), "rivals_settled": bool(settled)},
    )


def fixed(
    problem: Hinges, L: Array, dual: Array | None, *, max_iter: int, tol: float, report: Report | None
) -> Solution:
    """Return the solution for given pairs, with L as `x`, starting from L or from the multipliers `dual`."""
    if problem.gamma > 0:
        found = hinge_dual.minimize(problem, start=dual, max_iter=max_iter, tol=tol, report=report)
        return found.with_x(psd.components(found.x))
    Z, s, b, c, _, _ = problem

    def on_factor(L: Array) -> tuple[float, Array]:
        # sum_p c_p [u_p]_+, u_p = s_p (|L z_p|^2 - b_p)
        Y = Z @ L.T
        u = s * (np.einsum("pk,pk->p", Y, Y) - b)
        active = c * (u > 0)
        return float(active @ u), 2 * (Y * (active * s)[:, None]).T @ Z

    return lbfgs(on_factor, L, max_iter=max_iter, tol=tol, report=report)
