"""Fast neighborhood component analysis (Yang, Wang & Zuo, 2012).

    max_L  sum_i sum_{j in H_i} p_ij - reg |L|^2
    p_ij = exp(-|L (x_i - x_j)|^2) / sum_{t in H_i or M_i} exp(-|L (x_i - x_t)|^2)

H_i and M_i are the k nearest rows of the class of i (hits) and of other classes (misses).
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromLabels, Mahalanobis, Workspace
from ...numerics import checks, initialization, scatter
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .fast_search import maximize_listed
from .search import Ridge


def fast_nca(X: Array, labels: Ints, L0: Array, k: int = 10, reg: float = 0.0, **search: Any) -> Solution:
    """Return L (r, d), searched from L0; `search` holds kind, refresh, max_iter, tol and report. See `FastNCA`."""
    # K = unit L on rows X / unit: the steps of the search then do not depend on the unit of the rows
    unit = scatter.deviation(X)
    found = maximize_listed(X / unit, labels, unit * L0, k, ridge=Ridge(reg / unit / unit), **search)
    return found.with_x(found.x / unit)


class FastNCA(FromLabels, Mahalanobis):
    """Learn a neighborhood components analysis over a few neighbors of each row, for many rows.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (rows of L). By default, the number of features; directions in
        which no rows differ then stay as they are at the start.
    k : int
        Number of hits (nearest rows of the same class) and of misses (nearest rows of other classes) of each row, at
        least 1. Smaller classes contribute all their rows. With all rows, this is `NCA`.
    objective : {"accuracy", "log"}
        What to maximize: "accuracy", the expected number of rows that pick one of their hits (the paper's objective),
        or "log", the log-probability that all rows do.
    reg : float
        Weight of the penalty on the squared Frobenius norm of L, at least 0. The penalty is relative to the sum over
        rows, not to their mean.
    refresh : int
        Number of times that the neighbors are searched again under the learned metric before the search goes on. Values
        of the objective before and after such a change are not comparable.
    init : {"auto", "lda", "pca", "identity", "random"} or array-like of shape (r, d)
        Start of the search, as for `NCA`.
    init_scale : {None, "median"}
        With "median", scale the start so that the median squared distance between rows is 1. A search that cannot leave
        its start begins again as with "median".
    max_iter : int
        Maximum number of iterations of each search: one, and one more for each refresh.
    tol : float
        Stop when an iteration adds at most ``tol * max(1, |f|)`` to f, the objective divided by the number of anchors.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the start if ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (r, d)
        The learned linear map L.
    neighbors_ : ndarray of shape (n, 2 k)
        Neighbors of each row in the last search: its k hits, then its k misses; -1 if there are fewer.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Yang, Wang & Zuo, Neurocomputing 83, 2012.

    The first neighbors are Euclidean. We do not know the paper's k; the default of 10, `objective` and `refresh` are
    not from the paper. A survey's account maximizes the probability of the misses, and its gradient swaps hits and
    misses and lacks the factor 2.

    An evaluation takes O(n k r) time, after one O(n^2 d) search for neighbors.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        k: int = 10,
        objective: str = "accuracy",
        reg: float = 0.0,
        refresh: int = 0,
        init: str | AnyArray = "auto",
        init_scale: str | None = None,
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.k = k
        self.objective = objective
        self.reg = reg
        self.refresh = refresh
        self.init = init
        self.init_scale = init_scale
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _span(self) -> bool | str:
        return initialization.span_setting(self.init, self.n_components, self.reg)

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.counts(1, k=self.k)
        checks.counts(0, refresh=self.refresh)
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.one_of((None, "median"), init_scale=self.init_scale)
        L0 = initialization.start(X, labels, init=self.init, n_components=self.n_components, seed=self.random_state)
        if self.init_scale == "median":
            L0 = initialization.median_scaled(X, L0)
        last = work.start(L0.shape)
        if last is not None:
            L0 = last
        search = {"kind": self.objective, "refresh": self.refresh, "warm": last is not None, **self._search()}
        found = fast_nca(X, labels, L0, k=self.k, reg=self.reg, **search)
        neighbors = work.rows_as_given(found.attributes["neighbors"])
        return found.with_x(found.x, attributes={"neighbors": neighbors})
