"""Metrics whose distances are close to target distances, over all pairs implied by classes or over listed pairs.

    sstress:  f(M) = sum_p w_p (t_p - z_p' M z_p)^2 = <M, Q(M)> - 2 <M, T> + const,  T = sum_p w_p t_p z_p z_p'
    stress:   f(L) = sum_p w_p (sqrt t_p - |L z_p|)^2

t are squared target distances, and sstress is convex in M. With M = L' L, G = 2 (Q(M) - T), S = sum_p w_p z_p z_p' and
W = sum_p w_p, scaling the optimum M* shows that <M*, S> <= W lmax(T, S), so that

    f(M) - min f <= <M, G> + max(0, -lmin(G, S)) W lmax(T, S)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, inv

from ....numerics import certified_psd, psd, scatter
from ....numerics.checks import class_sizes
from ....numerics.gradient_descent import hardly_changes
from ....numerics.optimize import Report, Solution, fista, in_unit, lbfgs, stopped
from ....numerics.pair_differences import PairList
from ....numerics.types import Array, Ints

STRESS_FLOOR = 1e-5  # `tol` is relative to f, or to this share of sum_p w_p t_p^2 if that is larger
TRACE_SHARE = 0.5  # coefficient of tr(N)^2 in the curvature, relative to that of |N|^2


class Targets(Protocol):
    """Pairs with weights and squared targets, represented by sums over them.

    Attributes
    ----------
    S, T : ndarray of shape (d, d)
        Sums defined above.
    weight, constant : float
        Sums W and sum_p w_p t_p^2.
    """

    S: Array
    T: Array
    weight: float
    constant: float

    def misfit(self, M: Array) -> tuple[float, Array]:
        """Return f(M), and Q(M) - T = sum_p w_p (z_p' M z_p - t_p) z_p z_p'."""
        ...


class ClassTargets:
    """All pairs of rows with weight 1: t = same |z|^2 within classes and t = other |z|^2 between them; none is listed.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes, all known.
    same, other : float
        Factors of the squared distances within and between classes.
    """

    def __init__(self, X: Array, labels: Ints, same: float, other: float) -> None:
        self.X = X
        I = np.eye(X.shape[1])
        self.S = len(X) * scatter.total(X)
        self.weight = len(X) * (len(X) - 1) / 2
        # T = other sum_all |z|^2 z z' + (same - other) sum_within |z|^2 z z'
        whole = scatter.quartic(X, I)
        order = np.argsort(labels, kind="stable")
        classes = np.split(X[order], np.cumsum(class_sizes(labels))[:-1])
        within = np.sum([scatter.quartic(rows, I) for rows in classes], axis=0)
        self.T = other * whole + (same - other) * within
        self.constant = float(other**2 * np.trace(whole) + (same**2 - other**2) * np.trace(within))

    def misfit(self, M: Array) -> tuple[float, Array]:
        # f = <M, Q(M)> - 2 <M, T> + const = <M, (Q(M) - T) - T> + const
        off = scatter.quartic(self.X, M) - self.T
        return max(float(np.vdot(M, off - self.T)) + self.constant, 0.0), off


class ListedTargets:
    """Listed pairs with squared target distances.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (m,)
        Pairs.
    t : ndarray of shape (m,)
        Squared target distances.
    w : ndarray of shape (m,), optional
        Weights. By default, all 1.
    """

    def __init__(self, X: Array, i: Ints, j: Ints, t: Array, w: Array | None = None) -> None:
        self.X = X
        self.pairs = PairList(i, j, len(X))
        self.t = t[self.pairs.order]
        if w is None:
            self.w = np.ones(len(t))
        else:
            self.w = w[self.pairs.order]
        self.S = self.outer(self.w)
        self.T = self.outer(self.w * self.t)
        self.weight = float(self.w.sum())
        self.constant = float(self.w @ self.t**2)

    def outer(self, w: Array) -> Array:
        """Return sum_p w_p z_p z_p', shape (d, d)."""
        return psd.symmetrize(self.X.T @ self.pairs.laplacian_times(w, self.X))

    def misfit(self, M: Array) -> tuple[float, Array]:
        # pair by pair, because the sums Q and T would lose the digits of a small f
        off = self.pairs.squared_distances(self.X @ psd.components(M).T) - self.t
        return float(self.w @ off**2), self.outer(self.w * off)


def sstress(
    targets: Targets,
    L0: Array,
    *,
    max_iter: int = 2000,
    tol: float = 1e-8,
    report: Report | None = None,
) -> Solution:
    """Return L (k, d) of the smallest sstress, from the start L0.

    For k = d, it is within `tol` times f of the optimum, or within `tol` times `STRESS_FLOOR` sum_p w_p t_p^2 if f is
    below that. If all t are 0, f at L0 replaces their sum. For k < d see `low_rank`.
    """
    d = len(targets.S)
    if len(L0) < d:
        return low_rank(targets, L0, max_iter=max_iter, tol=tol, report=report)
    size = STRESS_FLOOR * (targets.constant or targets.misfit(L0.T @ L0)[0]) or 1.0  # all targets may be 0

    def of_metric(M: Array) -> tuple[float, Array]:
        f, off = targets.misfit(M)
        return f / size, 2 / size * off

    def evaluate(L: Array) -> tuple[float, Array]:
        return of_metric(L.T @ L)

    unit = max(float(np.trace(targets.S)) / d, 1e-300)
    S = targets.S + 1e-9 * unit * np.eye(d)
    reach = targets.weight * max(float(eigh(targets.T, S, eigvals_only=True)[-1]), 0.0)

    def gap(L: Array, f: float, G: Array) -> float:
        # f(M) - f(M*) <= <G, M - M*> <= <G, M> - w_min(G, S) <S, M*>, and <S, M*> is at most `reach` at an optimum
        certificate = float(np.vdot(L, L @ G)) + max(0.0, -float(eigh(G, S, eigvals_only=True)[0])) * reach
        return min(max(certificate, 0.0), f)

    # rows whitened by the scatter of the pairs
    A = psd.power(S / unit, -0.5)
    limits: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "report": in_unit(report, size)}
    if isinstance(targets, ListedTargets):
        # evaluations are expensive, and L-BFGS takes one per iteration
        found = certified_psd.minimize(evaluate, gap, A, start=L0, **limits)
    else:
        found = projected(of_metric, gap, A, L0, **limits)
        found = certified_psd.finished(evaluate, gap, found.x, found.n_iter, tol, np.asarray(found.history))
    return found.with_x(found.x, attributes={"kkt": size * found.attributes["kkt"]}).times(size)


def low_rank(targets: Targets, L0: Array, *, max_iter: int, tol: float, report: Report | None) -> Solution:
    """Return L (k, d), k < d, with a small sstress; the search over L is not convex, and `tol` bounds its gradient."""
    size = max(targets.misfit(L0.T @ L0)[0], 1e-300)

    def on_factor(L: Array) -> tuple[float, Array]:
        # df/dL = 2 L G, G = 2 (Q(M) - T); (k, d)
        f, off = targets.misfit(L.T @ L)
        return f / size, 2 * L @ (2 / size * off)

    found = lbfgs(on_factor, L0, max_iter=max_iter, tol=max(tol, 1e-7), report=in_unit(report, size))
    return found.times(size)


def projected(
    of_metric: Callable[[Array], tuple[float, Array]], gap: certified_psd.Gap, A: Array, L0: Array, **limits: Any
) -> Solution:
    """Find L (d, d) by projected gradient over M = A N A, in which the curvature is almost the same in all directions.

    For normal rows that are whitened by A, the curvature is 4 |N|^2 + 2 tr(N)^2. It becomes 4 |x|^2 for x = N with its
    part along I stretched by s.
    """
    d = len(A)
    s = np.sqrt(1 + TRACE_SHARE * d)
    back = inv(A)

    def fun(x: Array) -> tuple[float, Array]:
        # M = A N A with N = x stretched by 1 / s along I, a symmetric map: df/dx = A G A stretched by 1 / s
        f, G = of_metric(A @ stretched(x, 1 / s) @ A)
        return f, stretched(A @ G @ A, 1 / s)

    def components(x: Array) -> Array:
        return psd.components(stretched(x, 1 / s)) @ A

    def bound(x: Array, f: float, gradient: Array) -> float:
        # G = df/dM = A^-1 (df/dN) A^-1, df/dN = df/dx stretched by s
        return gap(components(x), f, back @ stretched(gradient, s) @ back)

    def project(x: Array, step: float) -> Array:
        w, V = psd.spectrum(stretched(x, 1 / s))
        k = np.arange(1, d + 1)
        # in the stretched norm, the eigenvalues that are kept are shifted to make up for the trace of those cut off
        shift = TRACE_SHARE * (np.cumsum(w) - w.sum()) / (1 + TRACE_SHARE * k)
        last = max(int(np.count_nonzero(w > shift)), 1) - 1
        return stretched((V * np.maximum(w - shift[last], 0.0)) @ V.T, s)

    K = L0 @ back
    x = stretched(K.T @ K, s)
    step = max(float(np.linalg.norm(x)), 1e-2) / max(float(np.linalg.norm(fun(x)[1])), 1e-300)
    found = fista(fun, project, x, gap=bound, step=step, **limits)
    return found.with_x(components(found.x))


def stretched(N: Array, s: float) -> Array:
    """Return N with its part along the identity s times as large."""
    return N + (s - 1) * np.trace(N) / len(N) * np.eye(len(N))


def stress(
    targets: ListedTargets, L0: Array, *, max_iter: int = 2000, tol: float = 1e-8, report: Report | None = None
) -> Solution:
    """Return L (k, d) with a small stress, by majorization: no step increases it.

    Notes
    -----
    L' <- S^-1 X' B Y with Y = X L', where B is the Laplacian of w sqrt(t) / |y_i - y_j|. S is factorized only once.
    """
    X = targets.X
    pairs = targets.pairs
    w = targets.w
    root = np.sqrt(targets.t)
    d = len(targets.S)
    # the matrix of the majorizer is the same in all steps
    S = cho_factor(targets.S + 1e-10 * max(float(np.trace(targets.S)) / d, 1e-300) * np.eye(d))
    size = STRESS_FLOOR * max(float(w @ targets.t), 1e-300)
    L = L0
    history = []
    enough = hardly_changes(tol, size)
    for k in range(max_iter + 1):
        Y = X @ L.T
        # |y_i - y_j| of each pair, whose targets are sqrt t
        q = np.sqrt(pairs.squared_distances(Y))
        history.append(float(w @ (root - q) ** 2))
        if report is not None:
            gain = history[-2] - history[-1] if k > 0 else np.inf
            report(k, history[-1], gain)
        if k > 0 and enough(history[-2], history[-1]):
            return Solution(L, history[-1], k, history=np.array(history))
        # L' <- S^-1 X' B Y, B the Laplacian of w sqrt(t) / |y_i - y_j|
        pull = np.divide(w * root, q, out=np.zeros_like(q), where=q > 0)
        last = L
        L = cho_solve(S, X.T @ pairs.laplacian_times(pull, Y)).T
    fall = history[-2] - history[-1] if max_iter else np.inf
    message = stopped("majorization", max_iter, "fall", fall, tol * max(size, history[-1]))
    return Solution(
        x=last,
        objective=history[-1],
        n_iter=max(1, max_iter),
        converged=False,
        message=message,
        history=np.array(history),
    )
