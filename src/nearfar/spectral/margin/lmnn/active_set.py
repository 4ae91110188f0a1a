"""Large margins solved in rounds: find the impostors, search over those, look again.

A round minimizes over M = K' K with a fixed list of impostors (and of rows a little farther away): by L-BFGS on K, by
Newton's method near the optimum if K has few rows (`descend`), or by projected gradient on M. Then all rows are scanned
again, and the step is kept only if f over all impostors decreased. With few directions, ever more rows become impostors
during a round, which then goes too far; a round is therefore as long as the last rounds that made progress. The slopes
at K (`LargeMargin.certify`), and means of the slopes on the way there, bound how far f can still decrease. The kink is
rounded over a width that costs a third of the tolerance. If the problem is convex, K holds only the directions that
matter: rows that M has lost are dropped before each round, and directions along which f decreases are added again.

Rows are whitened by the scatter of the pulls, C: K = L C^(1/2).

Newton's method moves M in the coordinates of a factor: M = K' (I + D) K for a symmetric D of few rows,

    f(D) ~ f + <g, D> + <D, H D> / 2,   g = K G K',   H = mu sum_t h''(u_t) a_t a_t',   a_t = K A_t K'

Only triplets at the rounded kink of the hinge contribute to the curvature of f. If K has few rows, H is small, and a
few steps determine the slopes in all directions at once, for which first-order methods take hundreds of steps. Steps
are damped (Levenberg, 1944; Marquardt, 1963) until f decreases.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, cycle
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh

from ....numerics import psd, scatter
from ....numerics.optimize import Report, Solution, fista, lbfgs, stopped
from ....numerics.types import Array, Ints
from .objective import Certificate, Dual, Graph, Hinge, LargeMargin, Pushed

SLACK = 0.2  # rows up to this share beyond the radius of impostors are listed with them
FIRST_ORDER_STEPS = 40  # steps of first order in a later round; every other round is Newton's
PLAN = (15, 15, 20, 0, 10, 0, 10, 0, 10, 0, 10, 0, 20, 0)  # steps of the first rounds; 0: Newton's, if it can be used
ACTIVE_SET_MEMORY = 20  # correction pairs of L-BFGS
ROUND_PATIENCE = 3  # rounds without progress
MIN_ROUND_STEPS = 10  # steps that a round needs to show whether f still decreases
MAX_LOG2_SCALE = 30.0  # a start is scaled by at most this power of 2
LOST = 1e-4  # squared length of a row of K that is dropped, relative to the longest
SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)  # weights of new slopes that are tried in their mean with the old ones
SHARP = (1 / 10, 1 / 100)  # how much less the hinge is rounded in the last rounds, which are Newton's
MAX_CHEAP_RANK = 12  # rows of K up to which those rounds take almost no time
PULL_FLOOR = 1e-6  # least weight of the pulls along a direction, relative to the spread of the rows
SCATTER_ROUNDING = 1e-20  # smallest scatter that is not rounding, relative to the largest

# Newton's method
MAX_NEWTON_ROWS = 44  # rows of K: the matrix has a row for each of r (r + 1) / 2 entries
FEATURE_BLOCK_VALUES = 1 << 19  # values in one block of features
NEWTON_STEPS = 4
DAMPING_TRIES = 10
LITTLE = 1e-7  # stop when the predicted decrease is below this share of f
SAFE = 0.9  # most that a direction of M may shrink in a step
MAX_STEP_GROWTH = 100.0  # most that it may grow: D is unbounded where H is singular
DAMPING = 1e-3  # first damping, as a share of the mean curvature
MIN_DAMPING = 1e-9  # smallest such share: with less, a singular H would stay singular


class Place(NamedTuple):
    """Point of the search, the impostors around it, and what is known about it."""

    K: Array
    edges: Graph
    seen: Certificate


def minimize(
    problem: LargeMargin,
    L0: Array,
    method: str = "lbfgs",
    *,
    max_iter: int = 1000,
    tol: float = 1e-2,
    report: Report | None = None,
) -> Solution:
    """Find L (k, d) with a small f, starting from L0 (k, d).

    Parameters
    ----------
    problem : LargeMargin
        Problem to solve.
    L0 : ndarray of shape (k, d)
        Starting point.
    method : {"lbfgs", "pgd"}
        Search over the factor, or by projected gradient over M (k = d).
    max_iter : int
        Maximum number of steps of all rounds together.
    tol : float
        For k = d, stop when the duality gap falls below ``tol * max(1, f)``; otherwise when f changes by less than
        ``tol / 10`` relative to its value in a round.
    report : callable or None
        Function that is called with the progress.

    Returns
    -------
    Solution
        `objective` is f over all impostors, and `history` its value after each round.
    """
    A, B = whitening(problem)
    search = ActiveSetSearch(problem.on(problem.X @ A), method, report)
    here = search.place(psd.compress(L0 @ B), Hinge(problem.squared))
    race = SearchState(tol, len(L0) >= B.shape[1], here)
    plan = chain(PLAN, cycle((FIRST_ORDER_STEPS, 0)))
    planned = next(plan)
    while race.spent < max_iter and not race.over:
        here = search.round(here, race, race.share, planned, max_iter - race.spent)
        planned = search.brief or next(plan)
    for share in SHARP:
        if race.close and search.quick(race.best.K, race.full, MAX_CHEAP_RANK):
            search.round(race.best, race, share * race.share, 0, NEWTON_STEPS)
    return race.solution(A, len(L0))


class ActiveSetSearch:
    """Rounds of the search on whitened rows.

    After a round that went too far, `brief` is the length that the next round should have.

    Parameters
    ----------
    problem : LargeMargin
        Problem to solve, on whitened rows.
    method : {"lbfgs", "pgd"}
        How a round searches.
    report : callable or None
        Function that is called with the progress.
    """

    def __init__(self, problem: LargeMargin, method: str, report: Report | None) -> None:
        self.problem = problem
        self.method = method
        self.report = report
        self.slack = SLACK
        self.damping = Damping()
        self.brief = 0

    def place(self, K: Array, hinge: Hinge) -> Place:
        """Return K with all impostors around it."""
        edges = self.problem.scan(K, self.slack)
        return Place(K, edges, self.problem.certify(K, edges, hinge))

    def quick(self, K: Array, full: bool, most: int = MAX_NEWTON_ROWS) -> bool:
        """Return whether to use Newton's method, whose matrix must be affordable."""
        return full and self.method == "lbfgs" and not self.problem.squared and len(K) <= most

    def round(self, here: Place, race: SearchState, share: float, planned: int, most: int) -> Place:
        """Run a round and return where the next one begins: the new place, or the old one with more impostors."""
        problem = self.problem
        hinge, before = rounded(problem, here, share)
        if race.full and race.spent:
            K = refilled(problem, here, hinge, before)
        else:
            K = here.K
        if planned == 0 and self.quick(K, race.full):
            steps = min(NEWTON_STEPS, most)
            K, slopes = descend(problem, K, here.edges, hinge, damping=self.damping, steps=steps, report=self.report)
            steps = len(slopes)
        else:
            keep = race.learns_from(here.edges)
            K, slopes, steps = self.steps(K, here.edges, hinge, min(planned or FIRST_ORDER_STEPS, most), keep)
        race.learn(problem, slopes, here.edges)
        del slopes  # one value per edge and step: with millions of impostors, too much to keep while more are found
        there = self.place(K, hinge)
        now = there.seen.rounded
        early = not race.full and steps == planned < MIN_ROUND_STEPS
        race.enter(there, steps, (before - now) / max(abs(now), 1e-300), early)
        failed = now >= before
        self.brief = 0
        if failed and steps > 5:
            self.brief = steps // 3
            return here
        if not race.full:
            # without Newton's rounds, the length follows the last round: shorter after a failure, else up to twice it
            self.brief = 5 if failed else min(2 * steps, FIRST_ORDER_STEPS)
        if failed:
            return self.widened(here, there)
        return there

    def steps(self, K: Array, edges: Graph, hinge: Hinge, steps: int, keep: bool) -> tuple[Array, list[Pushed], int]:
        """Return K after some steps over the given impostors, the slopes of the later half, and the number of steps.

        Without `keep`, there are no slopes: each of them has one value per edge.
        """
        if self.method == "pgd":
            found = on_metric(self.problem, K, edges, hinge, steps, self.report)
            return psd.components(found.x), [], found.n_iter
        seen: deque[Pushed] = deque(maxlen=int(max(1, steps // 2)) if keep else 0)

        def fun(K: Array) -> tuple[float, Array]:
            value, gradient, pushed = self.problem(K, edges, hinge)
            seen.append(pushed)
            return value, gradient

        found = lbfgs(fun, K, max_iter=steps, tol=1e-10, memory=ACTIVE_SET_MEMORY, report=self.report)
        return found.x, list(seen), found.n_iter

    def widened(self, here: Place, there: Place) -> Place:
        """Return the old place, with the impostors added that made f increase at the new one."""
        problem = self.problem
        self.slack = 2 * self.slack
        if problem.fixed is not None:
            return here
        joined = here.edges.near.joined(there.edges.near)
        return here._replace(edges=Graph(problem.i, problem.j, joined, len(problem.X)))


class SearchState:
    """Best result of the rounds so far, and whether it is good enough.

    Parameters
    ----------
    tol : float
        Tolerance, as for `minimize`.
    full : bool
        Whether the problem is convex, so that its gap can close.
    start : Place
        First place.
    """

    def __init__(self, tol: float, full: bool, start: Place) -> None:
        self.tol = tol
        self.full = full
        self.best = start
        self.bound = start.seen.bound
        self.share = tol / 3
        self.spent = 0
        self.idle = 0
        self.history = [start.seen.value]
        self.dual: Dual | None = None

    def enter(self, there: Place, steps: int, fall: float, early: bool) -> None:
        """Record the outcome of a round: its steps, the relative decrease of the rounded f, and if it was too short."""
        seen = there.seen
        better = seen.bound > self.bound
        if seen.value < self.best.seen.value:
            self.best = there
        self.bound = max(self.bound, seen.bound)
        self.spent = self.spent + steps
        if self.certified:
            # the gap can close by a better bound as well as by a lower f
            progress = better or abs(fall) > 1e-9
        else:
            progress = abs(fall) > self.tol / 10
        if early or progress:
            self.idle = 0
        else:
            self.idle += 1
        self.history.append(self.best.seen.value)
        if seen.rounding > max(self.tol * max(1.0, seen.value), seen.value - seen.bound) / 2:
            self.share /= 2

    def learns_from(self, edges: Graph) -> bool:
        """Whether slopes over these impostors give a bound: in a convex problem, if no impostor is missing."""
        return self.full and edges.near.complete

    def learn(self, problem: LargeMargin, slopes: list[Pushed], edges: Graph) -> None:
        """Compute bounds from new slopes and from means of new and old ones; keep the best."""
        if not (slopes and self.learns_from(edges)):
            return
        new = problem.mean(slopes, edges)
        if self.dual is None:
            tries = [new]
        else:
            tries = [self.dual.mixed(new, share) for share in SHARES]
        bounds = [problem.bound(dual) for dual in tries]
        k = int(np.argmax(bounds))
        self.dual = tries[k]
        self.bound = max(self.bound, bounds[k])

    @property
    def certified(self) -> bool:
        """Whether there is a gap that can close; without all impostors, there is no bound and no gap."""
        return self.full and self.bound > -np.inf

    @property
    def gap(self) -> float:
        return max(self.best.seen.value - self.bound, 0.0)

    @property
    def close(self) -> bool:
        """Whether the gap, or without a bound the last decrease, is small enough."""
        return self.gap <= self.tol * max(1.0, self.best.seen.value) or (not self.certified and self.idle > 0)

    @property
    def over(self) -> bool:
        return self.close or self.idle >= ROUND_PATIENCE

    def solution(self, A: Array, rows: int) -> Solution:
        """Return the solution L = K A', with this many rows, together with its certificate."""
        value = self.best.seen.value
        gap = self.gap
        L = self.best.K @ A.T
        limit = self.tol * max(1.0, value)
        if self.close:
            message = ""
        else:
            message = stopped("the search", self.spent, "duality gap", gap, limit)
        L = np.pad(L, ((0, max(0, rows - len(L))), (0, 0)))
        return Solution(
            x=L,
            objective=value,
            n_iter=max(1, self.spent),
            converged=self.close,
            message=message,
            duality_gap=gap,
            history=np.array(self.history),
        )


def scaled(problem: LargeMargin, L: Array) -> Array:
    """Return L times the factor with the smallest f, estimated from some rows; its square t is the root of df/dt."""
    pull, differences = problem.differences(L)
    hinge = Hinge(problem.squared)
    low = -MAX_LOG2_SCALE
    high = MAX_LOG2_SCALE
    for _ in range(60):
        t = 2.0 ** ((low + high) / 2)
        # df/dt = (1 - mu) sum d_ij - mu sum_t h'(1 - t <A_t, M>) <A_t, M>, increasing in t: bisection
        pushed = float(np.vdot(hinge(1 - t * differences)[1], differences))
        if (1 - problem.mu) * pull >= problem.mu * pushed:
            high = (low + high) / 2
        else:
            low = (low + high) / 2
            differences = differences[t * differences < 1]  # the others have no hinge at any larger t
    return float(2.0 ** (high / 2)) * L


def rounded(problem: LargeMargin, at: Place, share: float) -> tuple[Hinge, float]:
    """Return the hinge, rounded so far that the gap grows by the given share of f, and f under that hinge.

    Over u below the width, the gap widens by the sum of u (1 - u / width); f loses u - u^2 / (2 width) there, and half
    the width elsewhere.
    """
    value = at.seen.value
    u = at.seen.kinks
    if problem.squared:
        return Hinge(squared=True), value
    if len(u) == 0:
        return Hinge(width=1.0), value - problem.mu * at.seen.positive / 2
    sums = np.cumsum(u)
    squares = np.cumsum(u * u)
    # for the width u_q, the gap grows by mu sum_{p <= q} (u_p - u_p^2 / u_q)
    fits = int(np.searchsorted(problem.mu * (sums - squares / u), share * max(1.0, value), side="right"))
    width = float(max(u[max(fits - 1, 0)], 1e-6))
    below = int(np.searchsorted(u, width))
    if below:
        lost = float(sums[below - 1] - squares[below - 1] / (2 * width))
    else:
        lost = 0.0
    return Hinge(width=width), value - problem.mu * (lost + width / 2 * (at.seen.positive - below))


def refilled(problem: LargeMargin, at: Place, hinge: Hinge, value: float) -> Array:
    """Return K without the rows that M has nearly lost, after a step on M along directions in which f decreases.

    L-BFGS makes almost no progress in directions in which K is small, even if M needs them.
    """
    K = without_small(at.K)
    V = at.seen.directions
    if V.shape[1] == 0:
        return K
    if len(K) < len(at.K):
        value = problem.value(K, at.edges, hinge)
    M = K.T @ K
    # M + t D with D = sum_q excess_q v_q v_q' for t = 1e-5 tr M / tr D, and eight times as much as long as f decreases
    D = (V * at.seen.excess) @ V.T
    best = (value, K)
    t = 1e-5 * np.trace(M) / np.trace(D)
    for _ in range(8):
        more = psd.components(M + t * D)[: len(K) + V.shape[1]]
        value = problem.value(more, at.edges, hinge)
        if value >= best[0]:
            break
        best = (value, more)
        t = 8 * t
    return best[1]


def without_small(K: Array) -> Array:
    """Return K without the directions in which its metric is small, with rows in order of decreasing length."""
    K = psd.compress(K)
    square = np.einsum("pd,pd->p", K, K)
    return K[: max(1, int(np.count_nonzero(square > LOST * square[0])))]


def on_metric(
    problem: LargeMargin, K: Array, edges: Graph, hinge: Hinge, steps: int, report: Report | None
) -> Solution:
    """Take some projected gradient steps on M, which is returned as `x`."""

    def fun(M: Array) -> tuple[float, Array]:
        L = psd.components(M)
        pushed, G = problem.in_metric(edges.squares(problem.X @ L.T), edges, hinge)
        return (1 - problem.mu) * float(np.vdot(M, problem.C)) + problem.mu * pushed.value, G

    def project(M: Array, step: float) -> Array:
        return psd.project(M)[0]

    M = K.T @ K
    step = float(np.linalg.norm(M)) / max(float(np.linalg.norm(fun(M)[1])), 1e-300)
    return fista(fun, project, M, gap=lambda M, f, G: np.inf, max_iter=steps, step=step, report=report)


def whitening(problem: LargeMargin) -> tuple[Array, Array]:
    """Return A and B (d, r) with A' C A = I up to scale and A' B = I.

    A direction with few pulls or none gets a small share of its spread as weight, and a direction without spread is
    left out.
    """
    S = scatter.total(problem.X)
    # C + eps tr(C) / tr(S) S, with C the scatter of the pulls and S that of all rows; (d, d)
    w, V = psd.spectrum(problem.C + PULL_FLOOR * np.trace(problem.C) / max(float(np.trace(S)), 1e-300) * S)
    if w[0] <= 0:
        # all rows are equal: there is no direction to prefer
        w = np.ones_like(w)
    kept = w > SCATTER_ROUNDING * w[0]
    w = w[kept] / w[kept].mean()
    V = V[:, kept]
    # A = V W^(-1/2), B = V W^(1/2)
    return V / np.sqrt(w), V * np.sqrt(w)


class Damping:
    """Share of its mean curvature that is added to H, adapted from step to step.

    Parameters
    ----------
    share : float
        Initial share.
    """

    def __init__(self, share: float = DAMPING) -> None:
        self.share = share

    def seen(self, promised: float, fall: float) -> bool:
        """Reduce the damping after a step that nearly achieved the predicted decrease.

        After a step that did not, increase the damping and return False.
        """
        if fall <= 1e-4 * promised:
            self.share *= 10
            return False
        if fall > 0.4 * promised:
            self.share = max(self.share / 5, MIN_DAMPING)
        return True

    def failed(self) -> None:
        """Reset the share if no value helped: the next place may differ, and the share would only grow."""
        self.share = DAMPING


def descend(
    problem: LargeMargin,
    K: Array,
    edges: Graph,
    hinge: Hinge,
    damping: Damping,
    steps: int = NEWTON_STEPS,
    report: Report | None = None,
) -> tuple[Array, list[Pushed]]:
    """Return K after several steps over the given impostors, and the slopes on the way."""
    seen = []
    for k in range(1, steps + 1):
        f, slope, pushed = problem(K, edges, hinge)
        g = (slope @ K.T + K @ slope.T) / 4  # g = K G K', from df/dK = 2 K G
        seen.append(pushed)
        if report is not None:
            report(k, f, float(np.abs(slope).max()))
        H, entries = curvature(problem, K, edges, hinge)
        for _ in range(DAMPING_TRIES):
            D = step(H, g, entries, damping.share)
            after = cholesky(np.eye(len(K)) + D) @ K  # after' after = K' (I + D) K
            promised = -float(np.vdot(g, D))
            if damping.seen(promised, f - problem.value(after, edges, hinge)):
                break
        else:
            damping.failed()
            break
        K = after
        if promised <= LITTLE * max(1.0, f) and damping.share <= 1e-3:
            break
    return K, seen


def step(H: Array, g: Array, entries: tuple[Ints, Ints, Array], share: float) -> Array:
    """Return D, with its eigenvalues clipped so that I + D is positive definite even after rounding."""
    a, b, weight = entries
    ridge = share * max(float(np.trace(H)) / len(H), 1e-12)
    # (H + ridge I) (weight x) = -weight g, with x the upper triangle of D
    x = cho_solve(cho_factor(H + ridge * np.eye(len(H))), -g[a, b] * weight) / weight
    D = np.zeros(g.shape)
    D[a, b] = D[b, a] = x
    w, V = eigh(D)
    if w[0] > -SAFE and w[-1] < MAX_STEP_GROWTH:
        return D
    return (V * np.clip(w, -SAFE, MAX_STEP_GROWTH)) @ V.T


def curvature(problem: LargeMargin, K: Array, edges: Graph, hinge: Hinge) -> tuple[Array, tuple[Ints, Ints, Array]]:
    """Return H over the upper triangle of D, rows (a, b), weighted so that its vectors have the length of D."""
    a, b = np.triu_indices(len(K))
    weight = np.where(a == b, 1.0, np.sqrt(2.0))
    Z = problem.X @ K.T
    push, pull = kinks(problem, edges.squares(Z), edges, hinge)
    H = np.zeros((len(a), len(a)))
    block = max(1, FEATURE_BLOCK_VALUES // len(a))
    for start in range(0, len(push), block):
        pushed = push[start : start + block]
        pulled = pull[start : start + block]
        far = Z[edges.a[pushed]] - Z[edges.b[pushed]]
        near = Z[edges.a[pulled]] - Z[edges.b[pulled]]
        # upper triangles of a_t = K A_t K' = far far' - near near', (block, r (r + 1) / 2)
        A = (far[:, a] * far[:, b] - near[:, a] * near[:, b]) * weight
        H += A.T @ A
    bend = 2.0 if hinge.squared else 1 / hinge.width  # h'' at the kink
    return problem.mu * bend * H, (a, b, weight)


def kinks(problem: LargeMargin, square: Array, edges: Graph, hinge: Hinge) -> tuple[Ints, Ints]:
    """Return the edges of the push and of the pull of every triplet with h''(u) > 0."""
    near = edges.near
    high = np.inf if hinge.squared else hinge.width  # h'' > 0 for 0 < u < high
    found = []
    for part, u in problem.margins(square, edges):
        target, p = np.nonzero((u > 0) & (u < high))
        p += part.start
        if near.target is None:
            # row i has the pulls k i, ..., k i + k - 1
            pull = problem.k * near.i[p] + target
        else:
            pull = near.target[p]
        found.append((p, pull))
    none = np.zeros(0, np.intp)
    pushes = np.concatenate([none, *(p for p, _ in found)])
    pulls = np.concatenate([none, *(pull for _, pull in found)])
    return edges.push[pushes], edges.pull[pulls]
