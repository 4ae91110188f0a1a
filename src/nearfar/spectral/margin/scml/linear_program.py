"""Weights of given directions from triplets: a linear program, solved by rounded hinges up to a certificate.

    f(w) = 1/T sum_t [u_t]_+ + beta sum_k w_k,  u_t = 1 + sum_k w_k D_tk,  w >= 0
    D_tk = (b_k' (x_a - x_p))^2 - (b_k' (x_a - x_n))^2,  M = sum_k w_k b_k b_k'

No table of triplets and directions is needed: u follows from distances under M, and the derivative with respect to w_k
is b_k' G b_k + beta, with the scatter G = 1/T sum_t s_t ((x_a - x_p)(x_a - x_p)' - (x_a - x_n)(x_a - x_n)') for slopes
0 <= s_t <= 1 of the hinges. If b_k' G b_k >= -beta for all k, sum_t s_t / T is a lower bound on min f; a factor
theta <= 1 makes any slopes satisfy this.

The hinge is rounded over a width, which is reduced until the gap is small. L-BFGS comes near the optimum for the first
width. For each width, Newton steps reach it, over the few weights that are not 0 and the few triplets within the width.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.spatial.distance import cdist

from ....numerics.optimize import Report, Solution, lbfgs, stopped
from ....numerics.pair_differences import Edges
from ....numerics.types import Array, Ints

FIRST_WIDTH = 1.0  # first width of the rounding
WIDTH_FACTOR = 0.3  # factor by which the width is reduced
LAST_WIDTH = 1e-13  # stop below this width
LBFGS_PROGRESS_TOL = 1e-3  # L-BFGS ends if an iteration lowers the value by at most this
GAP_SHARE = 1 / 3  # the width is reduced if the rounded problem is solved to this share of the tolerance
ENTERING = 50  # most weights that may leave 0 in one step
RIDGES = 1e-12, 1e-3, 1e10  # ridge on the curvature, as a share of its mean: least, first and largest
MIN_CURVATURE_SHARE = 1e-6  # curvature if no triplet is within the width, as a share of the squared mean distances
SAME = 1e-9  # distance of two directions that count as equal, relative to the largest entry
DIFFERENCE_BLOCK_CELLS = 1 << 20  # values in one block of D


class WeightsPoint(NamedTuple):
    """Information on the problem at w.

    Attributes
    ----------
    value, bound : float
        Value of f, and a lower bound on min f.
    rounded, rest : float
        Value with the rounded hinge, and an upper bound on its difference to its own minimum.
    gradient : ndarray of shape (K,)
        Gradient of the rounded value.
    u : ndarray of shape (T,)
        Arguments u_t of the hinges.
    """

    value: float
    bound: float
    rounded: float
    rest: float
    gradient: Array
    u: Array


class TripletHinges:
    """Objective f of the formulas of this module.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    triplets : ndarray of shape (T, 3)
        Triplets of row numbers.
    B : ndarray of shape (K, d)
        Directions.
    beta : float
        Weight of the penalty.
    """

    def __init__(self, X: Array, triplets: Ints, B: Array, beta: float) -> None:
        self.X = X
        self.B = B
        self.beta = beta
        self.T = len(triplets)
        a, p, n = triplets.T
        self.edges = Edges(np.concatenate([a, a]), np.concatenate([p, n]), len(X))
        self.pull, self.push = np.split(self.edges.of.ravel(), 2)
        every = np.ones(self.T)
        self.flat = MIN_CURVATURE_SHARE * max(float(np.mean(self.slopes(every, -every) ** 2)), 1e-290)

    def hinges(self, w: Array) -> Array:
        """Return u (T,), u_t = 1 + d(x_a, x_p) - d(x_a, x_n)."""
        on = w > 0
        if not on.any():
            return np.ones(self.T)
        L = np.sqrt(w[on])[:, None] * self.B[on]
        if len(L) > L.shape[1]:
            # R'R = L'L: as many rows as features are enough for the distances
            L = np.asarray(np.linalg.qr(L, mode="r"))
        square = self.edges.squares(self.X @ L.T)
        return 1 + square[self.pull] - square[self.push]

    def slopes(self, pull: Array, push: Array) -> Array:
        """Return b_k' G b_k (K,), for the slopes of the positive pairs and of the negative pairs."""
        e = len(self.edges.a)
        # signed weight of each pair: + where it is pulled, - where it is pushed, over T
        weight = (np.bincount(self.pull, pull, e) - np.bincount(self.push, push, e)) / self.T
        # G = sum_e w_e (x_a - x_b)(x_a - x_b)' by the Laplacian of the pairs; (d, d), without a list of differences
        G = self.X.T @ self.edges.laplacian_times(weight, self.X)
        return np.einsum("kd,kd->k", self.B @ G, self.B)

    def at(self, w: Array, width: float) -> WeightsPoint:
        """Return the point at w >= 0."""
        u = self.hinges(w)
        # slope of the hinge whose kink is rounded over the width: u^2 / (2 width) up to it, u - width / 2 beyond
        s = np.clip(u / width, 0.0, 1.0)
        gradient = self.slopes(s, s) + self.beta
        cost = self.beta * float(w.sum())
        # theta b_k' G b_k >= -beta for all k
        theta = self.beta / (self.beta + max(0.0, -float(gradient.min())))
        bound = theta * float(s.mean())
        # the rounded hinge is u s - width s^2 / 2
        half = width / 2 * float(s @ s) / self.T
        rounded = float(u @ s) / self.T - half + cost
        return WeightsPoint(
            value=float(np.maximum(u, 0.0).mean()) + cost,
            bound=bound,
            rounded=rounded,
            rest=rounded - bound + theta**2 * half,
            gradient=gradient,
            u=u,
        )

    def curvature(self, at: Ints, within: Ints, width: float) -> Array:
        """Return the sum over these triplets of D_t D_t' / (T width), for some weights, computed in blocks."""
        H = np.zeros((len(at),) * 2)
        Z = self.X @ self.B[at].T
        step = max(1, DIFFERENCE_BLOCK_CELLS // max(len(at), 1))
        for a in range(0, len(within), step):
            pull = self.pull[within[a : a + step]]
            push = self.push[within[a : a + step]]
            # D_tk = (b_k' (x_a - x_p))^2 - (b_k' (x_a - x_n))^2
            D = (Z[self.edges.a[pull]] - Z[self.edges.b[pull]]) ** 2
            D -= (Z[self.edges.a[push]] - Z[self.edges.b[push]]) ** 2
            H += D.T @ D
        return H / (self.T * width)

    def stepped(self, w: Array, point: WeightsPoint, width: float, ridge: float) -> Array:
        """Return w after a Newton step over the positive weights and the zero weights with the steepest descent."""
        g = point.gradient
        # weights at 0 that would grow; all of them at once would make the system as large as K
        entering = np.flatnonzero((w == 0) & (point.gradient < 0))
        at = np.concatenate([np.flatnonzero(w > 0), entering[np.argsort(g[entering])[:ENTERING]]])
        H = self.curvature(at, np.flatnonzero((point.u > 0) & (point.u < width)), width)
        H[np.diag_indices_from(H)] += ridge * max(float(np.trace(H)) / max(len(H), 1), self.flat)
        p = -w[at]
        free = np.ones(len(at), dtype=bool)
        while free.any():
            # H_ff p_f = -(g_f + H_fb p_b): the step of the free weights, given that of the bound ones
            rest = g[at] + H[:, ~free] @ p[~free]
            p[free] = -cho_solve(cho_factor(H[np.ix_(free, free)]), rest[free])
            below = free & (w[at] + p < 0)
            if not below.any():
                break
            free &= ~below
            p[~free] = -w[at][~free]  # weights that would become negative go to 0, and the others are solved for again
        v = w.copy()
        v[at] = np.maximum(w[at] + p, 0.0)
        return v


def again(B: Array, basis: Array, weights: Array) -> Array | None:
    """Return w (K,) with these weights of the directions `basis` (k, d), or None if one of them is not in B (K, d)."""
    apart = cdist(basis, B)
    if not len(basis) or not np.isfinite(weights).all() or apart.min(axis=1).max() > SAME * np.abs(B).max():
        return None
    w = np.zeros(len(B))
    np.add.at(w, apart.argmin(axis=1), weights)
    return w


def minimize(
    problem: TripletHinges,
    *,
    start: Array | None = None,
    max_iter: int = 1000,
    tol: float = 1e-2,
    report: Report | None = None,
) -> Solution:
    """Return weights w (K,) as `x` for which f is at most ``tol * f`` above the minimum.

    `max_iter` limits the steps of both kinds together. With initial weights `start`, only Newton steps are taken.
    """

    def rounded(w: Array) -> tuple[float, Array]:
        point = problem.at(w, FIRST_WIDTH)
        return point.rounded, point.gradient

    w = start
    history = []
    if w is None:
        zero = np.zeros(len(problem.B))
        found = lbfgs(rounded, zero, bounds=(0.0, None), max_iter=max_iter, tol=0.0, ftol=LBFGS_PROGRESS_TOL, memory=20)
        w = np.maximum(found.x, 0.0)
        history = list(np.asarray(found.history))
    best = w
    value = np.inf
    bound = 0.0
    width = FIRST_WIDTH
    ridge = RIDGES[1]
    point = problem.at(w, width)
    while True:
        if point.value < value:
            best = w
            value = point.value
        bound = max(bound, point.bound)
        if report is not None:
            report(len(history), value, value - bound)
        if value - bound <= tol * value or len(history) >= max_iter or width < LAST_WIDTH:
            break
        moved = None
        # the rounded problem is solved well enough otherwise, and what remains is the cost of rounding
        if point.rest > GAP_SHARE * tol * value:
            moved = lowered(problem, w, point, width, ridge)
        if moved is None:
            # the last solution is near that of the next width, so that a few Newton steps are enough
            width *= WIDTH_FACTOR
            point = problem.at(w, width)
        else:
            w, point, ridge = moved
            history.append(point.rounded)
    gap = max(0.0, value - bound)
    if gap <= tol * value:
        message = ""
    else:
        message = stopped("Newton's method", len(history), "gap", gap, tol * value)
    return Solution(
        x=best,
        objective=value,
        n_iter=max(1, len(history)),
        converged=not message,
        message=message,
        duality_gap=gap,
        history=np.array(history or [value]),
    )


def lowered(
    problem: TripletHinges, w: Array, point: WeightsPoint, width: float, ridge: float
) -> tuple[Array, WeightsPoint, float] | None:
    """Return a point with a lower rounded value and the ridge for the next step, or None if no ridge leads to one."""
    least, _, most = RIDGES
    while ridge <= most:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                v = problem.stepped(w, point, width, ridge)
                new = problem.at(v, width)
        # the damped matrix is not definite: more ridge
        except LinAlgError:
            new = point
        if new.rounded < point.rounded:
            return v, new, max(ridge / 10, least)
        ridge *= 10
    return None
