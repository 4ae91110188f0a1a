"""A metric that stretches dissimilar pairs by a margin, which is an unknown as well, solved through its dual.

    min  1/2 |M|^2 + l1 <M, S> + l2 (-nu margin + sum_p w_p xi_p)
    s.t. z_p' M z_p - |z_p|^2 >= margin - xi_p,   M PSD,   margin, xi >= 0

S is the mean scatter of the similar pairs; z_p are the differences of the dissimilar pairs, with weights w_p of sum 1.
The dual over 0 <= a_p <= l2 w_p with sum_p a_p >= l2 nu is smooth:

    max  sum_p a_p |z_p|^2 - 1/2 |M(a)|^2,   M(a) = [sum_p a_p z_p z_p' - l1 S]_+

L-BFGS comes near the optimum, and Newton's method reaches it up to rounding. At the optimum, a_p is 0 if a pair is
stretched beyond the margin, l2 w_p if it is stretched less, and between the two only on the margin. A Newton step
assumes that it knows which pairs are on the margin, and solves for these

    stretch_p + sum_q J_pq da_q = margin,   sum_p a_p = l2 nu if the margin is above 0
    J_pq = <z_p z_p', derivative of M(a) in the direction of z_q z_q'>
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..fit_warnings import warn
from ..numerics import psd
from ..numerics.optimize import Report, Solution, lbfgs, stopped
from ..numerics.types import Array

NU_DUAL_MEMORY = 30  # correction pairs of L-BFGS
STIFFER = 10.0  # factor of the penalty if the sum of the multipliers approaches its bound too slowly
STEPS_BEFORE_NEWTON = 50  # steps of L-BFGS before the first trial of Newton's method, doubled before each further one
NEWTON = 30  # steps of one trial
MAX_NEWTON_PAIRS = 1000  # pairs on the margin up to which Newton's method is tried, because its system is that large
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
        """Squared distances before learning: `prior`, or the squared lengths of the differences."""
        if self.prior is None:
            return np.einsum("pd,pd->p", self.Z, self.Z)
        return self.prior

    def moved(self, a: Array) -> Array:
        """Return sum_p a_p z_p z_p'."""
        return (self.Z * a[:, None]).T @ self.Z

    def metric(self, a: Array) -> Array:
        """Return M(a)."""
        G = self.moved(a) - self.l1 * self.S
        if not self.definite:
            return G
        # [G]_+: without the negative eigenvalues
        return psd.project(G)[0]

    def rates(self, a: Array) -> tuple[Array, Array]:
        """Return V and C, with which the derivative of M(a) in the direction of B is V (C * V'BV) V'."""
        w, V = psd.spectrum(self.moved(a) - self.l1 * self.S)
        if not self.definite:
            return V, np.ones_like(V)
        # C_kl = ([w_k]_+ + [w_l]_+) / (|w_k| + |w_l|), the divided differences of [w]_+
        up = np.maximum(w, 0.0)
        size = np.maximum(np.add.outer(abs(w), abs(w)), np.finfo(np.float64).tiny)
        return V, np.add.outer(up, up) / size

    def stretched(self, M: Array) -> Array:
        """Return the increase of the squared distance of each pair."""
        return np.einsum("pd,pd->p", self.Z @ M, self.Z) - self.before

    def margin(self, M: Array) -> float:
        """Return the best margin for M: a quantile of the stretches at nu."""
        t = self.stretched(M)
        order = np.argsort(t)
        # the first stretch up to which the weights sum to nu
        k = int(np.searchsorted(np.cumsum(self.weight[order]), self.nu * (1 - 1e-12)))
        return max(float(t[order[min(k, len(t) - 1)]]), 0.0)

    def primal(self, M: Array) -> float:
        """Return 1/2 |M|^2 + l1 <M, S> + l2 (sum_p w_p xi_p - nu margin), with the best margin and slacks."""
        margin = self.margin(M)
        errors = self.weight @ np.maximum(margin - self.stretched(M), 0.0)
        return float(np.sum(M**2) / 2 + self.l1 * np.sum(M * self.S) + self.l2 * (errors - self.nu * margin))

    def dual(self, a: Array) -> float:
        """Return sum_p a_p |z_p|^2 - 1/2 |M(a)|^2."""
        return float(a @ self.before - np.sum(self.metric(a) ** 2) / 2)

    def feasible(self, a: Array) -> Array:
        """Return the multipliers, moved toward their upper bounds until their sum is at least l2 nu."""
        missing = self.l2 * self.nu - a.sum()
        if missing <= 0:
            return a
        room = self.l2 * self.weight - a
        return a + missing / max(room.sum(), missing) * room


class Conditions(NamedTuple):
    """Violation of the optimality conditions by multipliers.

    Attributes
    ----------
    a : ndarray of shape (m,)
        Multipliers.
    beyond : ndarray of shape (m,)
        Stretch minus margin.
    margin : float
        Margin.
    spare : float
        Excess of the sum of the multipliers over its bound l2 nu.
    wrong : float
        Size of the violation, which is 0 at the optimum.
    scale : float
        Largest absolute stretch, at least 1.
    """

    a: Array
    beyond: Array
    margin: float
    spare: float
    wrong: float
    scale: float

    @classmethod
    def of(cls, problem: NuMargin, a: Array) -> Conditions:
        """Return the violation at the multipliers a."""
        top = problem.l2 * problem.weight
        M = problem.metric(a)
        t = problem.stretched(M)
        margin = problem.margin(M)
        spare = a.sum() - problem.l2 * problem.nu
        # a = clip(a - top (t - margin), 0, top) at the optimum, and the margin or the spare sum is 0
        step = a - np.clip(a - top * (t - margin), 0.0, top)
        missed = np.divide(step, top, out=np.zeros_like(a), where=top > 0)
        wrong = np.hypot(np.linalg.norm(missed), min(margin, spare / problem.l2))
        return cls(a, t - margin, margin, float(spare), float(wrong), max(1.0, float(np.abs(t).max())))


def newton(problem: NuMargin, a: Array, max_iter: int = NEWTON, report: Report | None = None) -> tuple[Array, int]:
    """Run Newton's method until it makes no more progress; return the multipliers and the number of steps."""
    here = Conditions.of(problem, a)
    for k in range(max_iter):
        if here.wrong <= STRETCH_ROUNDING * here.scale:
            return here.a, k
        step = newton_step(problem, here)
        if step is None:
            return here.a, k
        there = shortened(problem, here, step)
        if there is None:
            return here.a, k
        here = there
        if report is not None:
            report(k + 1, -problem.dual(here.a), here.wrong)
    return here.a, max_iter


def newton_step(problem: NuMargin, here: Conditions) -> Array | None:
    """Return the step to the optimum if it has these pairs on the margin, or None if there are too many of them."""
    top = problem.l2 * problem.weight
    # either the sum of the multipliers is at its bound, or the margin is 0
    fixed = here.margin > here.spare / problem.l2
    # a pair far beyond the margin aims below 0, one far within it above its upper bound
    aim = here.a - top * here.beyond
    free = ((aim > 0) & (aim < top)) | (fixed & (here.beyond == 0) & (top > 0))  # the pairs on the margin
    # the others go to the bound at which they should be
    at_bound = np.where(aim > 0, top, 0.0)
    step = np.where(free, 0.0, at_bound - here.a)
    if free.sum() > MAX_NEWTON_PAIRS:
        return None
    V, rates = problem.rates(here.a)
    Y = problem.Z[free] @ V
    J = products(Y, rates)
    # margin - stretch_p, less the change of the stretch by the steps of the other pairs
    change = rates * (V.T @ problem.moved(step) @ V)
    miss = -here.beyond[free] - np.einsum("pd,pd->p", Y @ change, Y)
    low = -here.a[free]
    high = (top - here.a)[free]
    # the system is singular if differences coincide; a ridge that decreases with the error keeps convergence quadratic
    ridge = 10 * psd.EPS + 1e-3 * min(1.0, here.wrong) / max(1, len(J))
    J[np.diag_indices_from(J)] += max(np.trace(J), 1.0) * ridge
    if fixed:
        step[free] = bounded(J, miss, -here.spare - float(step.sum()), low, high)
    else:
        step[free] = bounded(J, miss - here.margin, None, low, high)
    return step


def bounded(J: Array, miss: Array, total: float | None, low: Array, high: Array) -> Array:
    """Return x with J x = miss, or with J x = miss + constant and the given total, within bounds.

    Entries beyond a bound are set to it, and the others are solved for again.
    """
    x = np.zeros_like(miss)
    inside = np.ones(len(miss), dtype=bool)
    while inside.any():
        A = J[np.ix_(inside, inside)]
        b = miss[inside] - J[np.ix_(inside, ~inside)] @ x[~inside]
        # one factorization for J^-1 miss and J^-1 1, whose combination has the given total
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
    """Return J_pq = sum_kl rates_kl (y_pk y_qk)(y_pl y_ql).

    The rates are 1 between two positive eigenvalues, and 0 between two others. So either the rates, or the rates minus
    1, vanish unless k or l is one of the less frequent eigenvalues, and the sum has few terms.
    """
    up = rates.diagonal() > 0
    # J = J(all rates 1) + J(rates - 1), and the second sum has few terms
    if 2 * up.sum() > len(up):
        few = ~up
        J = (Y @ Y.T) ** 2  # all rates 1
        left = rates - 1
    else:
        few = up
        J = np.zeros((len(Y), len(Y)))
        left = rates
    for k in np.flatnonzero(few):
        J += np.outer(Y[:, k], Y[:, k]) * ((Y * (left[k] * np.where(few, 1.0, 2.0))) @ Y.T)
    return J


def shortened(problem: NuMargin, here: Conditions, step: Array) -> Conditions | None:
    """Return the conditions after the step, or after the first of its half, its quarter, ... that improves them."""
    top = problem.l2 * problem.weight
    share = 1.0
    while share >= SHORTEST:
        there = Conditions.of(problem, np.clip(here.a + share * step, 0.0, top))
        # a share of the decrease that Newton's method promises (Armijo)
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

    After each round, Newton's method is tried, for any `tol`: if it converges, M is the optimum up to rounding. One of
    its steps costs O(m d^2 + d^3 + k^2 d min(r, d - r)) with k pairs on the margin and r positive eigenvalues.
    """
    top = problem.l2 * problem.weight
    floor = problem.l2 * problem.nu
    before = problem.before
    # multipliers of the sum l2 nu, all at the same share of their bounds
    a = problem.nu * top
    margin = 0.0
    stiff = 1.0  # penalty on the sum of a
    missed = np.inf  # difference between the sum and its bound
    spent = 0
    length = STEPS_BEFORE_NEWTON
    here = Certified(np.inf, 0.0, problem.metric(a))
    if start is not None and len(start) == len(a):
        a = np.clip(start, 0.0, top)
        here = certified(problem, a)
        margin = problem.margin(here.M)

    def lagrangian(a: Array) -> tuple[float, Array]:
        # -dual + ([margin + stiff (l2 nu - sum a)]_+^2 - margin^2) / (2 stiff), where `margin` is the multiplier
        M = problem.metric(a)
        force = max(margin + stiff * (floor - a.sum()), 0.0)
        value = np.sum(M**2) / 2 - a @ before + (force**2 - margin**2) / (2 * stiff)
        return float(value), problem.stretched(M) - force

    while spent < max_iter and here.gap > tol * max(1.0, abs(here.primal)):
        limits: dict[str, Any] = {"max_iter": min(length, max_iter - spent), "tol": 1e-12, "memory": NU_DUAL_MEMORY}
        found = lbfgs(lagrangian, a, bounds=(0.0, top), report=report, **limits)
        a = found.x
        spent = spent + found.n_iter
        length = 2 * length
        old = margin
        if found.n_iter < limits["max_iter"]:
            margin = max(margin + stiff * (floor - a.sum()), 0.0)
            last = missed
            # the violation should fall by a factor of 4 in each round; otherwise, the penalty is too weak
            missed = max(floor - float(a.sum()), 0.0)
            if missed > last / 4:
                stiff *= STIFFER
        here = certified(problem, a)
        sharper, steps = newton(problem, a, min(NEWTON, max_iter - spent), report)
        spent += steps
        there = certified(problem, sharper) if steps else here
        if there.gap < here.gap:
            a = sharper
            here = there
            margin = problem.margin(here.M)
        # neither method moves: this is the accuracy of float64
        elif found.n_iter <= 1 and margin == old:
            break
    limit = tol * max(1.0, abs(here.primal))
    converged = bool(here.gap <= limit)
    if converged:
        message = ""
    else:
        message = stopped("the dual", spent, "duality gap", here.gap, limit)
    extra = {"margin": problem.margin(here.M), "dual": problem.feasible(a)}
    return Solution(
        x=here.M,
        objective=here.primal,
        n_iter=spent,
        converged=converged,
        message=message,
        duality_gap=max(here.gap, 0.0),
        attributes=extra,
    )


def warn_without_margin(found: Solution) -> None:
    """Warn if the margin is 0, because all dissimilar pairs then have the same effect."""
    if found.attributes["margin"] <= 0:
        warn("the margin is 0, so that all dissimilar pairs have the same weight; increase l2 or reduce l1")


class Certified(NamedTuple):
    """Duality gap and primal value of a metric M."""

    gap: float
    primal: float
    M: Array


def certified(problem: NuMargin, a: Array) -> Certified:
    """Return M of the nearest feasible multipliers, with its certificate."""
    inside = problem.feasible(a)
    M = problem.metric(inside)
    primal = problem.primal(M)
    return Certified(primal - problem.dual(inside), primal, M)
