"""Large margin nearest neighbors (Weinberger, Blitzer & Saul, 2005).

    min_L  r sum_{i, j in N_i} d_ij + (1 - r) sum_{i, j in N_i} sum_{l: y_l != y_i} [1 + d_ij - d_il]_+

d_ij = |L (x_i - x_j)|^2; N_i: the k nearest rows of i's class under the first metric, kept fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....estimators.base import FromTriplets, Mahalanobis, Workspace
from ....fit_warnings import warn
from ....numerics import checks, initialization, psd, scatter
from ....numerics.optimize import Solution, one_thread
from ....numerics.scatter import coordinates
from ....numerics.types import AnyArray, Array, Ints
from ..impostors import rows_by_class
from . import active_set, objective, sdp
from . import stratified as strata
from .objective import MINING, LargeMargin, PullsAndPushes


def lmnn(problem: LargeMargin, L: Array, solver: str = "lbfgs", **limits: Any) -> Solution:
    """Return components as `x`, from the starting point L (k, d); see `LMNN` for the settings."""
    if solver != "lbfgs" and len(L) < L.shape[1]:
        L = np.eye(L.shape[1])
    if solver == "sdp":
        return sdp.solve(problem, L, **limits)
    return active_set.minimize(problem, L, solver, **limits)


def of_all_rows(found: Solution, share: float) -> Solution:
    """Return a solution whose objective and gap are scaled up from a share of the anchors to all of them."""
    if share == 1 or found.objective is None:
        return found
    gap = found.duality_gap
    if gap is not None:
        gap = gap / share
    history = found.history
    if history is not None:
        history = history / share
    return replace(found, objective=found.objective / share, duality_gap=gap, history=history)


class LMNN(FromTriplets, Mahalanobis):
    """Pull the target neighbors of each row near, and push rows of other classes away by a margin.

    Scale the features first: target neighbors are searched for in the space of the given rows.

    Parameters
    ----------
    n_neighbors : int
        Number k of target neighbors of each row: its nearest rows of the same class. In a class of k rows or fewer,
        each row has all other rows of the class as targets, with a warning. A row that is alone in its class
        has no targets but still pushes rows of other classes away.
    regularization : float
        Weight r of the pull term, in [0, 1). The weight of the push term is 1 - r, which the paper calls mu.
    n_components : int, optional
        Number of dimensions of the learned space. With ``solver="lbfgs"``, L itself has this many rows, and the
        problem is no longer convex. With "pgd" and "sdp", the full metric is learned and then truncated to its largest
        eigenvalues. By default, the space has as many dimensions as there are features.
    init : str or array-like of shape (k, d)
        Initial components: "auto", "identity", "pca", "lda" or "random", or an array.
        An array also defines the metric under which the target neighbors are searched for.
    loss : {"hinge", "squared_hinge"}
        Loss of each impostor that violates the margin.
    solver : {"lbfgs", "pgd", "sdp"}
        "lbfgs" optimizes L by L-BFGS. "pgd" optimizes M = L' L by projected gradient descent. "sdp" solves the
        semidefinite program by an interior-point method, which suits small problems only (up to 60 features and 20,000
        triplets) and needs ``nearfar[solvers]``.
    mining : str, optional
        Learn only from mined triplets: "batch_hard", "batch_semi_hard", "extreme_hpen", "extreme_epen", "extreme_ephn"
        or "negative_sampling" (see `mining`). By default (None, or equivalently "batch_all"), every impostor is used,
        as in the paper.
    pull : {"targets", "triplets"}
        Weight of each pulled pair when learning from mined or given triplets: 1, or the number of triplets that
        contain the pair.
    stratified : bool or dict
        Learn in rounds on class-stratified samples of random spheres, and multiply the maps. A dict sets some of
        ``rounds``, ``spheres`` (their number in the first round), ``radius`` and ``growth`` (in units of the mean
        standard deviation of a feature), ``share`` (of each class that is drawn in the first round) and ``identity``
        (whether to map by (M + I)^(1/2) instead of M^(1/2)).
    outer_passes : int
        Number of times that target neighbors are searched for and the problem is solved. From the second pass on, they
        are searched for under the metric of the previous pass.
    max_iter : int
        Maximum number of iterations of the solver in each pass. For "sdp", the maximum number of programs that are
        solved, each with more triplets than the last.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, objective)``. If the problem is not convex, stop after a
        round of iterations that changes the objective by less than ``tol / 10`` relative to its value.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the triplets of `mining`, the samples of `stratified`, the
        components of ``init="random"``, and the anchors and the pushing rows if there are more than 25,000 or 100,000
        rows.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    objective_ : float
        Objective over all impostors, before the metric is truncated to `n_components`. None with `stratified`.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the smallest objective of any metric, of any rank.
    n_iter_ : int
        Number of iterations run in the last pass. With `stratified`, the number of samples learned from.

    Notes
    -----
    Weinberger, Blitzer & Saul, "Distance metric learning for large margin nearest neighbor classification", NIPS 2005;
    Weinberger & Saul, JMLR 10, 2009. Mining and stratified sampling follow Poorheravi et al., 2020.

    With more than 25,000 rows, 25,000 of them are drawn as anchors. The targets and impostors of each anchor are still
    found exactly, among all rows. The objective is then the mean over the anchors times the number of rows.

    With more than 100,000 rows, 100,000 of them are drawn to push, and impostors are searched for among these only.
    Each push then counts n / 100,000 times, so that the objective at any metric remains an unbiased estimate of that
    over all n rows. Targets are still found among all rows.
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        regularization: float = 0.5,
        n_components: int | None = None,
        init: str | AnyArray = "auto",
        loss: str = "hinge",
        solver: str = "lbfgs",
        mining: str | None = None,
        pull: str = "targets",
        stratified: bool | dict[str, Any] = False,
        outer_passes: int = 1,
        max_iter: int = 1000,
        tol: float = 1e-2,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.regularization = regularization
        self.n_components = n_components
        self.init = init
        self.loss = loss
        self.solver = solver
        self.mining = mining
        self.pull = pull
        self.stratified = stratified
        self.outer_passes = outer_passes
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, labels: Ints | None, triplets: Ints | None, work: Workspace) -> Solution:
        self._check()
        if self.stratified:
            unit = 1.0  # the map of a stratum is (M + I)^(1/2), and I is in the units of X
        else:
            unit = scatter.unit(X)
        init = self.init if isinstance(self.init, str) else unit * checks.table(self.init, "init must be numbers")
        # in a unit near the size of the rows, in which the margin of 1 is neither tiny nor huge; powers of two do not
        # round
        X = X / unit
        if labels is None:
            rows = X
            codes = None
        else:
            checks.warn_of_small_classes(labels, self.n_neighbors, work.classes)
            rows, codes = rows_by_class(X, labels)
        V = coordinates(rows)  # (r, d), orthonormal: the problem is posed and solved on X V'
        squared = self.loss == "squared_hinge"
        seed = self.random_state
        # the start of the user or of `init`, in the coordinates of the span
        first = initialization.inside(V, X, labels, init, self.n_components, seed)
        last = work.start((len(first), X.shape[1]))
        if last is None:
            begin = first
        else:
            begin = unit * last @ V.T
        rule = PullsAndPushes(
            n_neighbors=self.n_neighbors,
            mu=1 - self.regularization,
            squared=squared,
            mining=self.mining,
            pull=self.pull,
            seed=seed,
        )

        def solve(X: Array, y: Ints | None, L: Array, begin: Array, fresh: bool = True, report: Any = None) -> Solution:
            with one_thread():
                problem = rule.pose(X, y, triplets, L)
                if fresh:
                    begin = active_set.scaled(problem, begin)
                found = lmnn(problem, begin, self.solver, max_iter=self.max_iter, tol=self.tol, report=report)
            if problem.unit == 1:
                return found
            return found.times(problem.unit)

        rows = rows @ V.T
        share = self._share_of_anchors(len(rows), codes)
        if self.stratified:
            found = strata.stratified(rows, codes, solve, rule.n_neighbors, self.stratified, seed)
            return found.with_x(psd.truncate_rank(found.x @ V, self.n_components))
        # the metric under which the target neighbors of the first pass are searched for: the paper's Euclidean one
        neighbor_metric = np.eye(len(V))
        if not isinstance(init, str):
            neighbor_metric = first
        fresh = last is None
        for _ in range(self.outer_passes):
            # target neighbors are fixed during a pass, which makes it convex; the next pass searches for them under its
            # metric
            found = solve(rows, codes, neighbor_metric, begin, fresh, self._report())
            neighbor_metric = found.x
            begin = found.x
            fresh = False
        # back to the features and the units of the user
        found = found.with_x(psd.truncate_rank(found.x @ V, self.n_components) / unit)
        return of_all_rows(found, share)

    def _share_of_anchors(self, n: int, codes: Ints | None) -> float:
        """Return the share of the rows that are anchors, and warn if it is below 1."""
        all_impostors = codes is not None and self.mining in (None, "batch_all") and not self.stratified
        if not all_impostors or n <= objective.MAX_ANCHORS:
            return 1.0
        anchors = objective.MAX_ANCHORS
        share = anchors / n
        if n <= objective.MAX_PUSHERS:
            among = "all rows"
            recall = 100 * share
        else:
            among = f"{objective.MAX_PUSHERS} drawn rows"
            recall = 100 * share * objective.MAX_PUSHERS / n
        warn(
            f"{n} rows: {anchors} of them, drawn by random_state, are anchors, each with all its impostors "
            f"among {among}: a recall of {recall:.2g}% of the impostors; objective_ and duality_gap_ are estimates"
        )
        return share

    def _check(self) -> None:
        checks.counts(1, n_neighbors=self.n_neighbors, outer_passes=self.outer_passes)
        checks.between(0, 1, regularization=self.regularization)
        if self.regularization == 1:
            raise ValueError("regularization must be below 1; got 1, and the pull alone drives the metric to 0")
        checks.above(0, tol=self.tol)
        checks.one_of(("hinge", "squared_hinge"), loss=self.loss)
        checks.one_of(("lbfgs", "pgd", "sdp"), solver=self.solver)
        checks.one_of(MINING, mining=self.mining)
        checks.one_of(("targets", "triplets"), pull=self.pull)
