"""Facilities among the points of a batch: loss-augmented greedy selection and its refinement (indices only).

    A(S) = F(S) + gamma Delta(g(S), y),   F(S) = - sum_i min_{j in S} rho_ij,   g(S)[i] = nearest facility of i

Points at equal distance from two facilities go to the one earlier in S; a facility always belongs to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....numerics.types import Array, Bools, Ints
from ....settings import check_options
from .partition_scores import AGREEMENTS, MEANS, Agreement, Base, margins

TIE_TOL = 1e-10  # differences in A below this are rounding: a tie


class Problem(NamedTuple):
    """The function A(S) that is maximized.

    Attributes
    ----------
    d : (m, m) array
        Distances, exactly 0 on the diagonal.
    agreement : Agreement
        Classes, and how a partition is compared with them.
    gamma : float
        Weight of the structured margin.
    """

    d: Array
    agreement: Agreement
    gamma: float

    def value(self, facilities: Ints) -> float:
        """Return A(S)."""
        nearest = assign(self.d, facilities)
        # -F(S): the distances of all points to their facilities
        reach = self.d[np.arange(len(self.d)), facilities[nearest]].sum()
        return float(self.gamma * self.agreement.of(nearest) - reach)


def distances(z: Array) -> Array:
    """Return the (m, m) Euclidean distances of unit vectors; below 1e-7, the rounding of the product, they are 0."""
    # |z_i - z_j|^2 of unit vectors
    squared = 2 - 2 * z @ z.T
    squared[squared < 1e-14] = 0
    np.fill_diagonal(squared, 0)
    return np.sqrt(squared)


def assign(d: Array, facilities: Ints) -> Ints:
    """Return g(S): the (m,) position in S of each point's nearest facility."""
    nearest = d[:, facilities].argmin(1)
    # a facility belongs to itself, also if an earlier one coincides with it
    nearest[facilities] = np.arange(len(facilities))
    return nearest


def medoids(d: Array, y: Ints) -> Ints:
    """Return the point of each class, in order of the classes, with the least sum of distances to its class."""
    # (m,) sums of distances to the own class, of which the medoid has the least
    within = np.where(y[:, None] == y, d, 0).sum(1)
    order = np.lexsort((within, y))
    return order[np.searchsorted(y[order], np.arange(y.max() + 1))]


def greedy(problem: Problem, k: int, *, size: int | None = None, rng: np.random.Generator | None = None) -> Ints:
    """Add the point that makes A largest, k times (Algorithm 1).

    Parameters
    ----------
    problem : Problem
        Function to maximize.
    k : int
        Number of facilities.
    size : int, optional
        Number of random points that stochastic greedy considers in each step. By default, all points are considered.
    rng : Generator, optional
        Generator that draws these points.

    Returns
    -------
    (k,) int
        Indices in the order of selection; ties go to the lowest index.
    """
    d = problem.d
    m = len(problem.d)
    nearest = np.zeros(m, dtype=np.int64)
    reach = np.full(m, np.inf)
    # F of S with one more point: at first, of that point alone; (m,)
    fit = -problem.d.sum(1)
    facilities: list[int] = []
    for step in range(k):
        candidates = np.delete(np.arange(m), facilities)
        if size is not None and size < len(candidates):
            assert rng is not None
            candidates = np.sort(rng.choice(candidates, size, replace=False))

        def takes(some: Ints) -> Bools:
            # points nearer to the candidate than to all facilities; facilities stay, and the candidate takes itself
            moved = d[some] < reach
            moved[:, facilities] = False
            moved[np.arange(len(some)), some] = True
            return moved

        base = Base.of(problem.agreement, nearest, max(step, 1))
        chosen = _best(problem, base, fit[candidates], candidates, takes)
        nearest = np.where(takes(np.array([chosen]))[0], step, nearest)
        near = np.flatnonzero(d[chosen] < reach)  # fits change by these points alone
        before = reach[near, None]
        after = d[chosen, near, None]
        # F(S + j) = -sum_i min(reach_i, d_ij), (m,): only the points whose reach fell change it
        fit += (np.minimum(d[near], before) - np.minimum(d[near], after)).sum(0)
        reach[near] = d[chosen, near]
        facilities.append(chosen)
    return np.array(facilities)


def _best(problem: Problem, base: Base, fit: Array, candidates: Ints, takes: Callable[[Ints], Bools]) -> int:
    """Return the candidate with the largest fit + gamma Delta, counting only those that may still win."""
    first = int(fit.argmax())
    # a lower bound on the best value; the others, whose Delta is costly, count only if they could exceed it
    bound = fit[first] + problem.gamma * margins(problem.agreement, base, takes(candidates[first : first + 1]))[0]
    open_ = np.flatnonzero(fit + problem.gamma >= bound - 2 * TIE_TOL)  # Delta is at most 1
    if len(open_) == 1:
        return int(candidates[first])
    delta = margins(problem.agreement, base, takes(candidates[open_]))
    return int(candidates[open_[_first_best(fit[open_] + problem.gamma * delta)]])


def _first_best(scores: Array) -> int:
    """Return the first of the largest scores, so that rounding, which differs between machines, decides nothing."""
    return int((scores >= scores.max() - TIE_TOL).argmax())


class _Swaps:
    """A set of facilities that are exchanged one at a time."""

    def __init__(self, problem: Problem, facilities: Ints) -> None:
        self.problem = problem
        self.facilities = facilities.copy()
        self.to = problem.d[:, facilities].copy()  # (m, K)
        self.m, self.k = self.to.shape

    def without(self, k: int) -> tuple[Ints, Array]:
        """Return each point's nearest facility and its distance without the facility at position k."""
        rest = self.to.copy()
        rest[:, k] = np.inf
        nearest = rest.argmin(1)
        others = np.arange(self.k) != k
        nearest[self.facilities[others]] = np.flatnonzero(others)
        return nearest, rest[np.arange(self.m), nearest]

    def takers(self, k: int, candidates: Ints, nearest: Ints, reach: Array) -> Bools:
        """Return the (c, m) points that each candidate takes as the facility at position k."""
        to = self.problem.d[candidates]
        # ties go to the facility earlier in S, as in `assign`
        takes = (to < reach) | ((to == reach) & (k < nearest))
        takes[:, np.delete(self.facilities, k)] = False
        takes[np.arange(len(candidates)), candidates] = True
        return takes

    def swap(self, k: int, candidate: int) -> None:
        self.facilities[k] = candidate
        self.to[:, k] = self.problem.d[:, candidate]

    def scores(self, k: int, candidates: Ints, fit: Array | None) -> Array:
        """Return the score of each candidate at position k: A itself, or the given fit + gamma Delta."""
        nearest, reach = self.without(k)
        moved = self.takers(k, candidates, nearest, reach)
        base = Base.of(self.problem.agreement, nearest, self.k)
        if fit is None:
            # F with the candidate at position k: what it takes is at its distance, the rest at the next facility
            fit = -np.where(moved, self.problem.d[candidates], reach).sum(1)
        return fit + self.problem.gamma * margins(self.problem.agreement, base, moved)

    def improve(self, k: int, candidates: Ints, fit: Array | None) -> bool:
        """Move position k to the best candidate, and return whether it moved; the first is its present place."""
        best = _first_best(self.scores(k, candidates, fit))
        if best == 0:
            return False
        self.swap(k, int(candidates[best]))
        return True


def refine(problem: Problem, facilities: Ints, kind: str = "paper", passes: int = 5) -> Ints:
    """Exchange facilities one at a time as long as that improves the value (Algorithm 2).

    Parameters
    ----------
    facilities : (K,) int
        Facilities to start from.
    kind : {"paper", "exact", "full"}
        Exchanges that are tried:

        - "paper": a facility moves to the point of its cluster with the best sum of the cluster's own distances and
          gamma Delta, where clusters are fixed during a pass. A does not decrease from pass to pass;
        - "exact": the same with A itself, which does not decrease from swap to swap;
        - "full": a facility moves to any point, until no single swap improves A.
    passes : int
        Maximum number of passes; "full" takes as many as it needs.

    Returns
    -------
    (K,) int
        Indices of the facilities.
    """
    swaps = _Swaps(problem, facilities)
    if kind == "full":
        while _full_pass(swaps):
            pass
        return swaps.facilities
    for _ in range(passes):
        if not _cluster_pass(swaps, exact=kind == "exact"):
            break
    return swaps.facilities


def _full_pass(swaps: _Swaps) -> bool:
    moved = False
    for k in range(swaps.k):
        free = np.delete(np.arange(swaps.m), swaps.facilities)
        moved |= swaps.improve(k, np.append(swaps.facilities[k], free), None)
    return moved


def _cluster_pass(swaps: _Swaps, exact: bool) -> bool:
    d = swaps.problem.d
    cluster = assign(d, swaps.facilities)  # fixed during the pass
    # minus the distances of a point to its cluster: the part of F if it were the cluster's facility
    within = -np.where(cluster[:, None] == cluster, d, 0).sum(1)
    moved = False
    for k in range(swaps.k):
        members = np.flatnonzero(cluster == k)
        if len(members) == 1:
            continue
        here = swaps.facilities[k]
        candidates = np.append(here, members[members != here])
        moved |= swaps.improve(k, candidates, None if exact else within[candidates])
    return moved


class FacilitySearch(NamedTuple):
    """How the maximum of A is sought; the fields are settings of ``FacilityLocationLoss``."""

    refine: str | None
    greedy: str
    nmi: str
    agreement: str
    passes: int
    epsilon: float
    warm_start_oracle: bool

    def check(self, owner: object) -> None:
        """Raise ValueError for an unknown setting; the message starts with the owner's class."""
        check_options(owner, ("paper", "exact", "full", None), refine=self.refine)
        check_options(owner, ("full", "stochastic"), greedy=self.greedy)
        check_options(owner, MEANS, nmi=self.nmi)
        check_options(owner, AGREEMENTS, agreement=self.agreement)
        who = type(owner).__name__
        if self.passes < 1:
            raise ValueError(f"{who}: passes must be at least 1, got {self.passes}")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"{who}: epsilon must be between 0 and 1, got {self.epsilon}")

    def run(self, z: Array, y: Ints, gamma: float, seed: tuple[int, ...]) -> tuple[Ints, Ints, float]:
        """Return each point's facility, each point's class medoid (indices of points), and Delta.

        Parameters
        ----------
        z : (m, d) array
            Unit vectors.
        y : (m,) int
            Classes 0..L-1.
        gamma : float
            Weight of the structured margin.
        seed : tuple of int
            Seed of the stochastic greedy selection.
        """
        problem = Problem(distances(z), Agreement(y, self.agreement, self.nmi), gamma)
        oracle = medoids(problem.d, y)
        facilities = self._start(problem, len(oracle), seed)
        if self.warm_start_oracle and problem.value(oracle) > problem.value(facilities):
            facilities = oracle
        if self.refine is not None:
            facilities = refine(problem, facilities, kind=self.refine, passes=self.passes)
        nearest = assign(problem.d, facilities)
        return facilities[nearest], oracle[y], problem.agreement.of(nearest)

    def _start(self, problem: Problem, k: int, seed: tuple[int, ...]) -> Ints:
        if self.greedy == "full":
            return greedy(problem, k)
        # with so many random points in each step, greedy is expected to reach 1 - 1/e - epsilon of the optimum of a
        # monotone submodular function (Mirzasoleiman et al., 2015)
        size = int(np.ceil(len(problem.d) / k * np.log(1 / self.epsilon)))
        return greedy(problem, k, size=size, rng=np.random.default_rng(seed))
