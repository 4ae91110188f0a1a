"""A metric that stretches dissimilar pairs by a margin which it chooses itself, solved through its dual.

    min  1/2 |M|^2 + l1 <M, S> + l2 (-nu margin + sum_p w_p xi_p)
    s.t. z_p' M z_p - |z_p|^2 >= margin - xi_p,   M PSD,   margin, xi >= 0

S: mean scatter of the similar pairs; z_p: differences of the dissimilar pairs, with weights w_p of sum 1. The dual,
over 0 <= a_p <= l2 w_p with sum_p a_p >= l2 nu, is smooth:

    max  sum_p a_p |z_p|^2 - 1/2 |M(a)|^2,   M(a) = [sum_p a_p z_p z_p' - l1 S]_+

L-BFGS comes near the optimum, and Newton's method reaches it to rounding. At the optimum a_p is 0 if a pair is
stretched beyond the margin, l2 w_p if it is stretched less, and between the two only on the margin. A Newton step
assumes that the pairs that seem to be on the margin are, and solves

    stretch_p + sum_q J_pq da_q = margin for them,   sum_p a_p = l2 nu where the margin is above 0
    J_pq = <z_p z_p', derivative of M(a) towards z_q z_q'>
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..fit_warnings import warn
from ..numerics import psd
from ..numerics.optimize import Report, Solution, lbfgs, stopped
from ..numerics.types import Array

NU_DUAL_MEMORY = 30
STIFFER = 10.0  # factor of the penalty where the multipliers' sum reaches its bound too slowly
STEPS_BEFORE_NEWTON = (
    50  # steps of L-BFGS before the first trial of Newton's method; twice as many before each further one
)
NEWTON = 30  # steps of one trial
MAX_NEWTON_PAIRS = 1000  # Newton system: more pairs than this on the margin are left to L-BFGS
SHORTEST = 1 / 256  # smallest share of a Newton step that is tried
STRETCH_ROUNDING = 1e-13  # share of the largest stretch: smaller errors are rounding


class NuMargin(NamedTuple):
    """Problem to solve.

    With `definite` False, M is any symmetric matrix. `prior` replaces |z_p|^2 if given.
    """

    S: Array
    Z: Array
    weight: Array
    l1: float
    l2: float
    nu: float
    definite: bool = True
    prior: Array | None = None

    @property
    def before(self) -> Array:
        """Squared distances before learning: squared lengths of the differences, unless a prior metric gave others."""
        if self.prior is None:
            return np.einsum("pd,pd->p", self.Z, self.Z)
        return self.prior

    def moved(self, a: Array) -> Array:
        """Return sum_p a_p z_p z_p'."""
        return (self.Z * a[:, None]).T @ self.Z

    def metric(self, a: Array) -> Array:
        """Return M(a)."""
        G = self.moved(a) - self.l1 * self.S
        return psd.project(G)[0] if self.definite else G

    def rates(self, a: Array) -> tuple[Array, Array]:
        """Return V and C: in the direction of any B, the derivative of M(a) is V (C * V'BV) V'."""
        w, V = psd.spectrum(self.moved(a) - self.l1 * self.S)
        up = np.maximum(w, 0.0)
        size = np.maximum(np.add.outer(abs(w), abs(w)), np.finfo(np.float64).tiny)
        return V, np.add.outer(up, up) / size if self.definite else np.ones_like(V)

    def stretched(self, M: Array) -> Array:
        """Return the increase of the squared distance of each pair."""
        return np.einsum("pd,pd->p", self.Z @ M, self.Z) - self.before

    def margin(self, M: Array) -> float:
        """Return the best margin for M: a quantile of the stretches at nu."""
        t = self.stretched(M)
        order = np.argsort(t)
        k = int(np.searchsorted(np.cumsum(self.weight[order]), self.nu * (1 - 1e-12)))
        return max(float(t[order[min(k, len(t) - 1)]]), 0.0)

    def primal(self, M: Array) -> float:
        margin = self.margin(M)
        errors = self.weight @ np.maximum(margin - self.stretched(M), 0.0)
        return float(np.sum(M**2) / 2 + self.l1 * np.sum(M * self.S) + self.l2 * (errors - self.nu * margin))

    def dual(self, a: Array) -> float:
        return float(a @ self.before - np.sum(self.metric(a) ** 2) / 2)

    def feasible(self, a: Array) -> Array:
        """Return the nearest point toward the upper bounds at which the multipliers reach their smallest sum."""
        missing = self.l2 * self.nu - a.sum()
        if missing <= 0:
            return a
        room = self.l2 * self.weight - a
        return a + missing / max(room.sum(), missing) * room


class Conditions(NamedTuple):
    """How far multipliers are from the optimality conditions."""

    a: Array
    beyond: Array  # (m,) stretch less the margin
    margin: float
    spare: float  # of the sum of the multipliers
    wrong: float  # 0 at the optimum
    scale: float

    @classmethod
    def of(cls, problem: NuMargin, a: Array) -> Conditions:
        top = problem.l2 * problem.weight
        M = problem.metric(a)
        t = problem.stretched(M)
        margin = problem.margin(M)
        spare = a.sum() - problem.l2 * problem.nu
        missed = np.divide(a - np.clip(a - top * (t - margin), 0.0, top), top, out=np.zeros_like(a), where=top > 0)
        wrong = np.hypot(np.linalg.norm(missed), min(margin, spare / problem.l2))
        return cls(a, t - margin, margin, float(spare), float(wrong), max(1.0, float(np.abs(t).max())))


def newton(problem: NuMargin, a: Array, max_iter: int = NEWTON, report: Report | None = None) -> tuple[Array, int]:
    """Run Newton's method until it makes no more progress; return the multipliers and the number of steps."""
    here = Conditions.of(problem, a)
    for k in range(max_iter):
        if here.wrong > STRETCH_ROUNDING * here.scale:
            step = newton_step(problem, here)
        else:
            step = None
        there = None if step is None else shortened(problem, here, step)
        if there is None:
            return here.a, k
        here = there
        if report is not None:
            report(k + 1, -problem.dual(here.a), here.wrong)
    return here.a, max_iter


def newton_step(problem: NuMargin, here: Conditions) -> Array | None:
    """Return the step to optimal multipliers if the right pairs are on the margin, or None if too many are on it."""
    # the sum is, else the margin is 0
    top = problem.l2 * problem.weight
    fixed = here.margin > here.spare / problem.l2
    aim = here.a - top * here.beyond
    free = ((aim > 0) & (aim < top)) | (fixed & (here.beyond == 0) & (top > 0))
    step = np.where(free, 0.0, np.where(aim > 0, top, 0.0) - here.a)
    if free.sum() > MAX_NEWTON_PAIRS:
        return None
    V, rates = problem.rates(here.a)
    Y = problem.Z[free] @ V
    J = products(Y, rates)
    miss = -here.beyond[free] - np.einsum("pd,pd->p", Y @ (rates * (V.T @ problem.moved(step) @ V)), Y)
    low = -here.a[free]
    high = (top - here.a)[free]
    # where differences coincide the system is singular; a weight that falls with the error keeps the steps quadratic
    J[np.diag_indices_from(J)] += max(np.trace(J), 1.0) * (10 * psd.EPS + 1e-3 * min(1.0, here.wrong) / max(1, len(J)))
    total = -here.spare - float(step.sum()) if fixed else None
    step[free] = bounded(J, miss if fixed else miss - here.margin, total, low, high)
    return step


def bounded(J: Array, miss: Array, total: float | None, low: Array, high: Array) -> Array:
    """x with J x = miss, or miss + const for that total; entries beyond bounds go there, the rest is solved again."""
    x = np.zeros_like(miss)
    inside = np.ones(len(miss), dtype=bool)
    while inside.any():
        A = J[np.ix_(inside, inside)]
        b = miss[inside] - J[np.ix_(inside, ~inside)] @ x[~inside]
        y, rise = cho_solve(cho_factor(A), np.stack([b, np.ones_like(b)], axis=1)).T
        if total is None:
            x[inside] = y
        else:
            x[inside] = y + (total - x[~inside].sum() - y.sum()) / rise.sum() * rise
        beyond = inside & ((x < low) | (x > high))
        if not beyond.any():
            break
        x = np.clip(x, low, high)
        inside = inside & ~beyond
    return x


def products(Y: Array, rates: Array) -> Array:
    """sum_kl rates_kl (y_pk y_qk)(y_pl y_ql) of all p and q; among positive eigenvalues rates are 1, among others 0."""
    up = rates.diagonal() > 0
    mostly = bool(2 * up.sum() > len(up))
    # rates less 1 are 0 among positive eigenvalues, rates are among others: what is left has k or l among the fewer
    if mostly:
        few, J, left = (~up, (Y @ Y.T) ** 2, rates - 1)
    else:
        few, J, left = (up, np.zeros((len(Y), len(Y))), rates)
    for k in np.flatnonzero(few):
        J += np.outer(Y[:, k], Y[:, k]) * ((Y * (left[k] * np.where(few, 1.0, 2.0))) @ Y.T)
    return J


def shortened(problem: NuMargin, here: Conditions, step: Array) -> Conditions | None:
    """The whole step, or the first of its half, its quarter, ... after which the conditions are better met."""
    top = problem.l2 * problem.weight
    share = 1.0
    while share >= SHORTEST:
        there = Conditions.of(problem, np.clip(here.a + share * step, 0.0, top))
        if there.wrong <= (1 - 1e-4 * share) * here.wrong:
            return there
        share /= 2
    return None


def nu_margin(
    problem: NuMargin,
    *,
    start: Array | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    report: Report | None = None,
) -> Solution:
    """Return the metric with the smallest objective.

    Parameters
    ----------
    problem : NuMargin
        Problem to solve.
    start : ndarray of shape (m,), optional
        Initial multipliers. They are ignored if the number of dissimilar pairs differs.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, |objective|)``.
    max_iter : int
        Maximum number of L-BFGS and Newton steps in total.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `x` is M; ``attributes`` are "margin" and "dual" (m,).

    Notes
    -----
    The bound on the sum of the multipliers is handled by an augmented Lagrangian, whose multiplier tends to the
    margin, and the box constraints by L-BFGS-B. One evaluation costs O(m d^2 + d^3).

    After each round, Newton's method is tried, whatever `tol` is: if it converges, M is the optimum up to rounding.
    One of its steps costs O(m d^2 + d^3 + k^2 d min(r, d - r)) with k pairs on the margin and r positive eigenvalues.
    """
    top = problem.l2 * problem.weight
    floor = problem.l2 * problem.nu
    before = problem.before
    a = problem.nu * top
    margin = 0.0
    # the penalty on the sum of a, and what the sum lacks
    stiff = 1.0
    missed = np.inf
    spent = 0
    length = STEPS_BEFORE_NEWTON
    gap = np.inf
    primal = 0.0
    M = problem.metric(a)
    if start is not None and len(start) == len(a):
        a = np.clip(start, 0.0, top)
        gap, primal, M = certified(problem, a)
        margin = problem.margin(M)

    def lagrangian(a: Array) -> tuple[float, Array]:
        M = problem.metric(a)
        force = max(margin + stiff * (floor - a.sum()), 0.0)
        value = np.sum(M**2) / 2 - a @ before + (force**2 - margin**2) / (2 * stiff)
        return float(value), problem.stretched(M) - force

    while spent < max_iter and gap > tol * max(1.0, abs(primal)):
        limits: dict[str, Any] = {"max_iter": min(length, max_iter - spent), "tol": 1e-12, "memory": NU_DUAL_MEMORY}
        found = lbfgs(lagrangian, a, bounds=(0.0, top), report=report, **limits)
        a = found.x
        spent = spent + found.n_iter
        length = 2 * length
        old = margin
        if found.n_iter < limits["max_iter"]:
            margin = max(margin + stiff * (floor - a.sum()), 0.0)
            last = missed
            missed = max(floor - float(a.sum()), 0.0)
            stiff *= STIFFER if missed > last / 4 else 1.0
        gap, primal, M = certified(problem, a)
        sharper, steps = newton(problem, a, min(NEWTON, max_iter - spent), report)
        spent += steps
        proof = certified(problem, sharper) if steps else (gap, primal, M)
        if proof[0] < gap:
            a = sharper
            (gap, primal, M) = proof
            margin = problem.margin(M)
        elif found.n_iter <= 1 and margin == old:
            break
    converged = bool(gap <= tol * max(1.0, abs(primal)))
    if converged:
        message = ""
    else:
        message = stopped("the dual", spent, "duality gap", gap, tol * max(1.0, abs(primal)))
    extra = {"margin": problem.margin(M), "dual": problem.feasible(a)}
    return Solution(M, primal, spent, converged, message, max(gap, 0.0), attributes=extra)


def warn_without_margin(found: Solution) -> None:
    """Warn if the margin is 0, because then no dissimilar pair is treated differently from another."""
    if found.attributes["margin"] <= 0:
        message = "the margin is 0: every dissimilar pair counts alike, as in no support vector machine"
        warn(f"{message}; raise l2 or lower l1")


def certified(problem: NuMargin, a: Array) -> tuple[float, float, Array]:
    """Return the duality gap, the primal value and M of the nearest feasible multipliers."""
    inside = problem.feasible(a)
    M = problem.metric(inside)
    primal = problem.primal(M)
    return primal - problem.dual(inside), primal, M
