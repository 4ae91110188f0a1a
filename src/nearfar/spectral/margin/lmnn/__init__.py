"""Large margin nearest neighbors (Weinberger, Blitzer & Saul, 2006).

    min_L  r sum_{i, j in N_i} d_ij + (1 - r) sum_{i, j in N_i} sum_{l: y_l != y_i} [1 + d_ij - d_il]_+

d_ij = |L (x_i - x_j)|^2; N_i: the k nearest rows of i's class under the first metric, kept fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....estimators.base import FromTriplets, Mahalanobis, Workspace
from ....fit_warnings import warn
from ....numerics import checks, constraints, initialization, psd, scatter
from ....numerics.optimize import Solution
from ....numerics.threads import one_thread
from ....numerics.types import AnyArray, Array, Ints
from ..coordinates import coordinates, rows_by_class
from . import active_set, sdp
from . import problem as data
from . import stratified as strata
from .objective import LargeMargin


def lmnn(problem: LargeMargin, L: Array, solver: str = "lbfgs", **limits: Any) -> Solution:
    """Return components as `x`, from a start L (k, d); see `LMNN` for the settings."""
    if solver != "lbfgs" and len(L) < L.shape[1]:
        L = np.eye(L.shape[1])
    if solver == "sdp":
        return sdp.solve(problem, L, **limits)
    return active_set.minimize(problem, L, solver, **limits)


def of_all_rows(found: Solution, share: float) -> Solution:
    """Return a solution with objective and gap scaled up from a share of the anchors to all of them."""
    if share == 1 or found.objective is None:
        return found
    gap = None if found.duality_gap is None else found.duality_gap / share
    history = None if found.history is None else found.history / share
    return replace(found, objective=found.objective / share, duality_gap=gap, history=history)


class LMNN(FromTriplets, Mahalanobis):
    """Pull the target neighbors of each row near, and push rows of other classes away by a margin.

    Scale features first: target neighbors are looked up among the rows as they are.

    Parameters
    ----------
    n_neighbors : int
        Target neighbors k of each row. Rows of a class of no more than k rows have one less than there are, which is
        warned of; a row alone in its class pulls nothing and still pushes others away.
    regularization : float
        Weight r of the pull, in [0, 1); mu of the paper is 1 - r.
    n_components : int, optional
        Rows of L: the problem is then not convex ("lbfgs"), or the whole metric is cut ("pgd", "sdp").
    init : str or array-like of shape (k, d)
        "auto", "identity", "pca", "lda", "random" (`numerics.initialization`), or components, which then
        say who is a target.
    loss : "hinge" or "squared_hinge"
    solver : "lbfgs", "pgd" or "sdp"
        Search over L; projected gradient over M; interior points over M of a small problem (``nearfar[solvers]``).
    mining : str, optional
        Learn from listed triplets only: "batch_hard", "batch_semi_hard", "extreme_hpen", "extreme_epen", "extreme_ephn"
        or "negative_sampling" (`mining`). None or "batch_all": every impostor, as LMNN itself.
    pull : "targets" or "triplets"
        With listed triplets: each pulled pair weighs 1, or as much as it has triplets.
    stratified : bool or dict
        Learn round by round on samples of spheres, and multiply the maps; settings: `stratified.Strata`.
    outer_passes : int
        How often target neighbors are looked up and the problem is solved; the later times under the last metric.
    max_iter : int
    tol : float
        On the duality gap relative to the objective; without convexity on a round's progress.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None
        Of `mining`, `stratified`, a random `init`, and the anchors of more than 25,000 rows.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    objective_ : float
        Over all impostors, before a metric is cut to `n_components`. None for `stratified`.
    duality_gap_ : float
        No metric of any rank has a smaller objective by more than this.

    Notes
    -----
    Of more than 25,000 rows so many are drawn as anchors, whose targets and impostors are found exactly among all rows:
    the objective is then the mean over the anchors times the number of rows, and time grows no faster than rows.

    Weinberger, Blitzer & Saul, NIPS 2006; Weinberger & Saul, JMLR 10, 2009; mining and strata: Poorheravi et al., 2020.
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
        unit = 1.0 if self.stratified else scatter.unit(X)  # maps of strata hold the identity, in the units of X
        init = self.init if isinstance(self.init, str) else unit * checks.table(self.init, "init must be numbers")
        X = X / unit
        if labels is None:
            rows = X
            codes = None
        else:
            constraints.warn_of_small_classes(labels, self.n_neighbors, work.classes)
            rows, codes = rows_by_class(X, labels)
        V = coordinates(rows)  # in which the problem is posed and solved
        squared = self.loss == "squared_hinge"
        seed = self.random_state
        first = initialization.inside(V, X, labels, init, self.n_components, seed)
        last = work.start((len(first), X.shape[1]))
        begin = first if last is None else unit * last @ V.T
        rule = data.PullsAndPushes(self.n_neighbors, 1 - self.regularization, squared, self.mining, self.pull, seed)

        def solve(X: Array, y: Ints | None, L: Array, begin: Array, fresh: bool = True, report: Any = None) -> Solution:
            with one_thread():
                problem = rule.pose(X, y, triplets, L)
                begin = active_set.scaled(problem, begin) if fresh else begin
                return lmnn(problem, begin, self.solver, max_iter=self.max_iter, tol=self.tol, report=report)

        rows = rows @ V.T
        share = self._share_of_anchors(len(rows), codes)
        if self.stratified:
            found = strata.stratified(rows, codes, solve, rule.n_neighbors, self.stratified, seed)
            return found.with_x(psd.truncate_rank(found.x @ V, self.n_components))
        looked_up = np.eye(len(V)) if isinstance(init, str) else first
        fresh = last is None
        for _ in range(self.outer_passes):
            found = solve(rows, codes, looked_up, begin, fresh, self._report())
            looked_up = found.x
            begin = found.x
            fresh = False
        found = found.with_x(psd.truncate_rank(found.x @ V, self.n_components) / unit)
        return of_all_rows(found, share)

    def _share_of_anchors(self, n: int, codes: Ints | None) -> float:
        """Return which share of the rows are anchors, and say so where it is not all of them."""
        everything = codes is not None and self.mining in (None, "batch_all") and not self.stratified
        if not everything or n <= data.MAX_ANCHORS:
            return 1.0
        share = data.MAX_ANCHORS / n
        warn(
            f"{n} rows: {data.MAX_ANCHORS} of them, drawn by random_state, are anchors, each with all its impostors "
            f"among all rows: a recall of {share:.0%} of the impostors; objective_ and duality_gap_ are estimates"
        )
        return share

    def _check(self) -> None:
        checks.counts(1, n_neighbors=self.n_neighbors, outer_passes=self.outer_passes)
        checks.between(0, 1, regularization=self.regularization)
        if self.regularization == 1:
            raise ValueError("regularization must be below 1; the pull alone drives the metric to 0")
        checks.above(0, tol=self.tol)
        checks.one_of(("hinge", "squared_hinge"), loss=self.loss)
        checks.one_of(("lbfgs", "pgd", "sdp"), solver=self.solver)
        checks.one_of(data.MINING, mining=self.mining)
        checks.one_of(("targets", "triplets"), pull=self.pull)
