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

from .. import psd
from ..optimize import Report, Solution, fista, lbfgs, stopped
from ..types import Array
from .large_margin import Certificate, Graph, Hinge, LargeMargin

FLOOR = 1e-6  # smallest eigenvalue of C that whitening knows, relative to the largest
SLACK = 0.2
STEPS = (15, 15, 20, 10, 10, 20, 40)  # of the first rounds
MEMORY = 20
PATIENCE = 3  # rounds without progress
OCTAVES = 30.0  # a start is scaled by at most this power of 2


class Place(NamedTuple):
    """A point of the search, the impostors around it, and what is known of it."""

    K: Array
    edges: Graph
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
    K, slack = L0 @ B, SLACK
    here = place(white, K, slack, Hinge(problem.squared))
    race = Race(tol, len(K) >= K.shape[1], here)
    while race.spent < max_iter and not race.over:
        hinge, before = rounded(white, here, race.share)
        steps = min(STEPS[min(len(race.history), len(STEPS)) - 1], max_iter - race.spent)
        K = refilled(white, here, hinge, before)
        found = search(white, K, here.edges, hinge, method, steps, report)
        there = place(white, found.x, slack, hinge)
        now = there.seen.rounded
        race.enter(there, found.n_iter, (before - now) / max(abs(now), 1e-300))
        if now < before:
            here = there
        elif problem.fixed is None:
            joined = here.edges.near.joined(there.edges.near)
            here, slack = here._replace(edges=Graph(white.i, white.j, joined, len(white.X))), 2 * slack
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
    edges = problem.scan(K, slack)
    return Place(K, edges, problem.certify(K, edges, hinge))


def whitening(C: Array) -> tuple[Array, Array]:
    """A = C^(-1/2) up to scale, with small eigenvalues of C raised, and its inverse."""
    w, V = psd.spectrum(C)
    w = np.maximum(w, FLOOR * w[0]) / w.mean() if w[0] > 0 else np.ones_like(w)
    return (V / np.sqrt(w)) @ V.T, (V * np.sqrt(w)) @ V.T


def scaled(problem: LargeMargin, L: Array) -> Array:
    """L times the factor with the smallest f, as far as some of the rows tell: the root of df/dt, t the square."""
    pull, differences = problem.differences(L)
    hinge, low, high = Hinge(problem.squared), -OCTAVES, OCTAVES
    for _ in range(60):
        t = 2.0 ** ((low + high) / 2)
        pushed = float(np.vdot(hinge(1 - t * differences)[1], differences))
        if (1 - problem.mu) * pull >= problem.mu * pushed:
            high = (low + high) / 2
        else:
            low = (low + high) / 2
            differences = differences[t * differences < 1]  # the others push nowhere above t
    return float(2.0 ** (high / 2)) * L


def rounded(problem: LargeMargin, at: Place, share: float) -> tuple[Hinge, float]:
    """The hinge with its kink rounded so that this widens the gap by the given share of f, and f with it.

    Over u below the width, the gap widens by the sum of u (1 - u / width); f loses u - u^2 / (2 width) there, and half
    the width elsewhere.
    """
    value, u = at.seen.value, at.seen.kinks
    if problem.squared:
        return Hinge(True), value
    if len(u) == 0:
        return Hinge(False, 1.0), value - problem.mu * at.seen.positive / 2
    sums, squares = np.cumsum(u), np.cumsum(u * u)
    fits = np.searchsorted(problem.mu * (sums - squares / u), share * max(1.0, value), side="right")
    width = float(max(u[max(fits - 1, 0)], 1e-6))
    below = int(np.searchsorted(u, width))
    lost = float(sums[below - 1] - squares[below - 1] / (2 * width)) if below else 0.0
    return Hinge(False, width), value - problem.mu * (lost + width / 2 * (at.seen.positive - below))


def refilled(problem: LargeMargin, at: Place, hinge: Hinge, value: float) -> Array:
    """K after a step on M along the directions that fall: L-BFGS hardly moves those that (square) K has nearly lost."""
    K, V = at.K, at.seen.directions
    if len(K) < K.shape[1] or V.shape[1] == 0:
        return K
    M, D = K.T @ K, (V * at.seen.excess) @ V.T
    best, t = (value, K), 1e-5 * np.trace(M) / np.trace(D)
    for _ in range(8):
        more = psd.components(M + t * D)
        value = problem.value(more, at.edges, hinge)
        if value >= best[0]:
            break
        best, t = (value, more), 8 * t
    return best[1]


def search(
    problem: LargeMargin, K: Array, edges: Graph, hinge: Hinge, method: str, steps: int, report: Report | None
) -> Solution:
    """Some steps over the given impostors; `x` is K."""
    if method == "lbfgs":
        return lbfgs(lambda K: problem(K, edges, hinge), K, max_iter=steps, tol=1e-10, memory=MEMORY, report=report)

    def on_metric(M: Array) -> tuple[float, Array]:
        L = psd.components(M)
        pushed, G = problem.in_metric(edges.squares(problem.X @ L.T), edges, hinge)
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
