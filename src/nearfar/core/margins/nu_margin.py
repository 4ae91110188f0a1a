"""A metric that stretches dissimilar pairs by a margin which it chooses itself, solved through its dual.

    min  1/2 |M|^2 + l1 <M, S> + l2 (-nu margin + sum_p w_p xi_p)
    s.t. z_p' M z_p - |z_p|^2 >= margin - xi_p,   M PSD,   margin, xi >= 0

S: mean scatter of the similar pairs; z_p: differences of the dissimilar pairs, with weights w_p of sum 1. The dual,
over 0 <= a_p <= l2 w_p with sum_p a_p >= l2 nu, is smooth:

    max  sum_p a_p |z_p|^2 - 1/2 |M(a)|^2,   M(a) = [sum_p a_p z_p z_p' - l1 S]_+
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import psd
from ..optimize import Report, Solution, lbfgs, stopped
from ..types import Array

MEMORY = 30
STIFFER = 10.0  # what the penalty grows by where the sum of the multipliers does not reach its bound fast enough


class NuMargin(NamedTuple):
    """The problem; with `definite` False, M is any symmetric matrix."""

    S: Array
    Z: Array
    weight: Array
    l1: float
    l2: float
    nu: float
    definite: bool = True

    @property
    def before(self) -> Array:
        """Squared lengths of the differences."""
        return np.einsum("pd,pd->p", self.Z, self.Z)

    def metric(self, a: Array) -> Array:
        """M(a)."""
        G = (self.Z * a[:, None]).T @ self.Z - self.l1 * self.S
        return psd.project(G)[0] if self.definite else G

    def stretched(self, M: Array) -> Array:
        """How much longer each pair's squared distance has become."""
        return np.einsum("pd,pd->p", self.Z @ M, self.Z) - self.before

    def margin(self, M: Array) -> float:
        """The best margin for M: a quantile of the stretches at nu."""
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
        """The nearest point towards the upper bounds where the multipliers reach their least sum."""
        missing = self.l2 * self.nu - a.sum()
        if missing <= 0:
            return a
        room = self.l2 * self.weight - a
        return a + min(1.0, missing / room.sum()) * room


def nu_margin(problem: NuMargin, *, tol: float = 1e-6, max_iter: int = 1000, report: Report | None = None) -> Solution:
    """The metric of least objective.

    Parameters
    ----------
    problem : NuMargin
    tol : float
        On the duality gap, relative to max(1, |objective|).
    max_iter : int
        Steps of L-BFGS in all.

    Returns
    -------
    Solution
        `x` is M; ``attributes``: "margin", "dual" (m,).

    Notes
    -----
    The bound on the sum goes into an augmented Lagrangian, whose multiplier tends to the margin, the box to L-BFGS-B.
    One evaluation costs O(m d^2 + d^3).
    """
    top, floor, before = problem.l2 * problem.weight, problem.l2 * problem.nu, problem.before
    a, margin, stiff, spent, missed = problem.nu * top, 0.0, 1.0, 0, np.inf
    gap, primal, M = np.inf, 0.0, problem.metric(a)

    def lagrangian(a: Array) -> tuple[float, Array]:
        M = problem.metric(a)
        force = max(margin + stiff * (floor - a.sum()), 0.0)
        value = np.sum(M**2) / 2 - a @ before + (force**2 - margin**2) / (2 * stiff)
        return float(value), problem.stretched(M) - force

    while spent < max_iter and gap > tol * max(1.0, abs(primal)):
        limits: dict[str, Any] = {"max_iter": max_iter - spent, "tol": 1e-12, "memory": MEMORY}
        found = lbfgs(lagrangian, a, bounds=(0.0, top), report=report, **limits)
        a, spent = found.x, spent + found.n_iter
        margin = max(margin + stiff * (floor - a.sum()), 0.0)
        last, missed = missed, max(floor - float(a.sum()), 0.0)
        stiff *= STIFFER if missed > last / 4 else 1.0
        inside = problem.feasible(a)
        M = problem.metric(inside)
        primal = problem.primal(M)
        gap = primal - problem.dual(inside)
        if found.n_iter <= 1 and missed == 0:
            break
    converged = bool(gap <= tol * max(1.0, abs(primal)))
    message = "" if converged else stopped("the dual", spent, "duality gap", gap, tol * max(1.0, abs(primal)))
    told = {"margin": problem.margin(M), "dual": problem.feasible(a)}
    return Solution(M, primal, spent, converged, message, max(gap, 0.0), attributes=told)
