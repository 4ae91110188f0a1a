"""Large margins solved in rounds: find the impostors, search over those, look again.

A round searches M = K' K over the impostors found (and those a little farther off), by L-BFGS on K or by projected
gradient on M. Then all rows are scanned again: the step counts only where f itself, over all impostors, fell, and the
bound of `LargeMargin.certify` says how far it can still fall. The kink is rounded over a width that costs a third of
what the tolerance allows. Where a square K has lost directions along which f falls, they are put back first.

Rows are whitened by the scatter of the pulls, C: K = L C^(1/2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import psd
from .impostors import Impostors
from .large_margin import Certificate, Hinge, LargeMargin
from .optimize import Report, Solution, fista, lbfgs, stopped
from .types import Array

FLOOR = 1e-6  # smallest eigenvalue of C that whitening knows, relative to the largest
SLACK = 0.2
STEPS = (15, 15, 20, 30, 40)  # of the first rounds
MEMORY = 20
PATIENCE = 3  # rounds without progress


class Place(NamedTuple):
    """A point of the search, the impostors around it, and what is known of it."""

    K: Array
    near: Impostors
    seen: Certificate


def minimise(
    problem: LargeMargin,
    L0: Array,
    method: str = "lbfgs",
    *,
    max_iter: int = 1000,
    tol: float = 1e-2,
    report: Report | None = None,
) -> Solution:
    """L (k, d) of a small f, found from L0 (k, d).

    Parameters
    ----------
    method : "lbfgs" or "pgd"
        On the factor, or projected gradient on M (k = d).
    max_iter : int
        Steps of all rounds together.
    tol : float
        On the duality gap relative to f for k = d; else on the relative fall of f in a round, times 10.

    Returns
    -------
    Solution
        `objective` is f over all impostors; `history` its value after each round.
    """
    A, B = whitening(problem.C)
    white = problem.on(problem.X @ A)
    K, slack = scaled(white, L0 @ B), SLACK
    here = place(white, K, slack, Hinge(problem.squared))
    race = Race(tol, len(K) >= K.shape[1], here)
    while race.spent < max_iter and not race.over:
        hinge = rounded(white, here, race.share)
        steps = min(STEPS[min(len(race.history), len(STEPS)) - 1], max_iter - race.spent)
        found = search(white, refilled(white, here, hinge), here.near, hinge, method, steps, report)
        there = place(white, found.x, slack, hinge)
        before, now = (white.value(at.K, at.near, hinge) for at in (here, there))
        race.enter(there, found.n_iter, (before - now) / max(abs(now), 1e-300))
        if now < before:
            here = there
        elif problem.fixed is None:
            here, slack = here._replace(near=here.near.joined(there.near)), 2 * slack
    return race.solution(A)


class Race:
    """What the rounds have reached, and whether that is enough.

    Parameters
    ----------
    tol : float
    full : bool
        The problem is convex, and its gap can close.
    start : Place
    """

    def __init__(self, tol: float, full: bool, start: Place) -> None:
        self.tol, self.full, self.best, self.bound = tol, full, start, start.seen.bound
        self.share, self.spent, self.idle, self.history = tol / 3, 0, 0, [start.seen.value]

    def enter(self, there: Place, steps: int, fall: float) -> None:
        """Note the outcome of a round: its steps, and the relative fall of the rounded f."""
        seen = there.seen
        better = seen.bound > self.bound
        self.best = there if seen.value < self.best.seen.value else self.best
        self.bound, self.spent = max(self.bound, seen.bound), self.spent + steps
        self.idle = 0 if abs(fall) > (1e-9 if self.full else self.tol / 10) or (self.full and better) else self.idle + 1
        self.history.append(self.best.seen.value)
        if seen.rounding > max(self.tol * max(1.0, seen.value), seen.value - seen.bound) / 2:
            self.share /= 2

    @property
    def gap(self) -> float:
        return max(self.best.seen.value - self.bound, 0.0)

    @property
    def close(self) -> bool:
        """Whether the gap, or without convexity the last fall, is small enough."""
        return self.gap <= self.tol * max(1.0, self.best.seen.value) or (not self.full and self.idle > 0)

    @property
    def over(self) -> bool:
        return self.close or self.idle >= PATIENCE

    def solution(self, A: Array) -> Solution:
        """L = K A, and how good it is."""
        value, gap = self.best.seen.value, self.gap
        limit = self.tol * max(1.0, value)
        message = "" if self.close else stopped("the search", self.spent, "duality gap", gap, limit)
        return Solution(self.best.K @ A, value, max(1, self.spent), self.close, message, gap, np.array(self.history))


def place(problem: LargeMargin, K: Array, slack: float, hinge: Hinge) -> Place:
    """K with all impostors around it."""
    near = problem.scan(K, slack)
    return Place(K, near, problem.certify(K, near, hinge))


def whitening(C: Array) -> tuple[Array, Array]:
    """A = C^(-1/2) up to scale, with small eigenvalues of C raised, and its inverse."""
    w, V = psd.spectrum(C)
    w = np.maximum(w, FLOOR * w[0]) / w.mean() if w[0] > 0 else np.ones_like(w)
    return (V / np.sqrt(w)) @ V.T, (V * np.sqrt(w)) @ V.T


def scaled(problem: LargeMargin, K: Array) -> Array:
    """K times the power of 2 with the smallest f, as far as some of the rows tell."""
    pull, differences = problem.differences(K)
    hinge = Hinge(problem.squared)

    def value(t: float) -> float:
        u = 1 - t * differences
        return (1 - problem.mu) * t * pull + problem.mu * hinge(u[u > 0])[0]

    t = 1.0
    for factor in (0.25, 4.0):
        while 1e-9 < t < 1e9 and value(factor * t) < value(t):
            t *= factor
    return np.sqrt(t) * K


def rounded(problem: LargeMargin, at: Place, share: float) -> Hinge:
    """The hinge, its kink rounded so that this widens the gap by the given share of f: sum u (1 - u / width)."""
    if problem.squared:
        return Hinge(True)
    u = problem.kinks(at.K, at.near)
    if len(u) == 0:
        return Hinge(False, 1.0)
    cost = problem.mu * (np.cumsum(u) - np.cumsum(u * u) / u)
    fits = np.searchsorted(cost, share * max(1.0, at.seen.value), side="right")
    return Hinge(False, float(max(u[max(fits - 1, 0)], 1e-6)))


def refilled(problem: LargeMargin, at: Place, hinge: Hinge) -> Array:
    """K after a step on M along the directions that fall: L-BFGS hardly moves those that (square) K has nearly lost."""
    K, V = at.K, at.seen.directions
    if len(K) < K.shape[1] or V.shape[1] == 0:
        return K
    M, D = K.T @ K, (V * at.seen.excess) @ V.T
    best, t = (problem.value(K, at.near, hinge), K), 1e-5 * np.trace(M) / np.trace(D)
    for _ in range(8):
        more = psd.components(M + t * D)
        value = problem.value(more, at.near, hinge)
        if value >= best[0]:
            break
        best, t = (value, more), 8 * t
    return best[1]


def search(
    problem: LargeMargin, K: Array, near: Impostors, hinge: Hinge, method: str, steps: int, report: Report | None
) -> Solution:
    """Some steps over the given impostors; `x` is K."""
    if method == "lbfgs":
        return lbfgs(lambda K: problem(K, near, hinge), K, max_iter=steps, tol=1e-10, memory=MEMORY, report=report)

    def on_metric(M: Array) -> tuple[float, Array]:
        L = psd.components(M)
        pushed, G = problem.in_metric(L, near, hinge)
        return (1 - problem.mu) * float(np.vdot(M, problem.C)) + problem.mu * pushed.value, G

    M = K.T @ K
    step = float(np.linalg.norm(M) / max(np.linalg.norm(on_metric(M)[1]), 1e-300))
    found = fista(
        on_metric,
        lambda M, step: psd.project(M)[0],
        M,
        gap=lambda M, f, G: np.inf,
        max_iter=steps,
        step=step,
        report=report,
    )
    return found.with_x(psd.components(found.x))
