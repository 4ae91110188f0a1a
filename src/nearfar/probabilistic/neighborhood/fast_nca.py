"""Fast neighborhood component analysis (Yang, Wang & Zuo, 2012).

    max_L  sum_i sum_{j in H_i} p_ij - reg |L|^2
    p_ij = exp(-|L (x_i - x_j)|^2) / sum_{t in H_i or M_i} exp(-|L (x_i - x_t)|^2)

H_i, M_i: the k nearest rows of i's class (hits) and of other classes (misses).
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromLabels, Mahalanobis, Workspace
from ...numerics import checks, initialization
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .fast_search import maximize_listed
from .search import Ridge


def fast_nca(X: Array, labels: Ints, L0: Array, k: int = 10, reg: float = 0.0, **search: Any) -> Solution:
    """L (r, d) from the start L0; `search` is objective's kind, refresh, max_iter, tol and report. See `FastNCA`."""
    return maximize_listed(X, labels, L0, k, ridge=Ridge(reg), **search)


class FastNCA(FromLabels, Mahalanobis):
    """Learn a neighborhood components analysis over a few neighbors of each row, for many rows.

    Parameters
    ----------
    n_components : int, optional
        Rows of L; default: as many as features, or as directions in which rows differ where these are fewer.
    k : int
        Hits and misses of each row; classes with fewer rows give all of them. With all rows it is `NCA`.
    objective : "accuracy" or "log"
        The expected number of picks among hits (paper), or the log-probability that all picks are hits.
    reg : float
        Weight of the squared Frobenius norm of L beside a sum over rows (not their mean).
    refresh : int
        So many times the neighbors are found anew under the learned metric, and the search goes on. Objectives
        before and after are not comparable.
    init : str or array-like of shape (r, d)
        "auto", "lda", "pca", "identity", "random", or the components themselves, as for `NCA`.
    init_scale : None or "median"
        "median": scale the start so that the median squared distance is 1.
    max_iter : int
        Per search.
    tol : float
        Stop where an iteration adds less to the objective per row, or to that relatively where it is above 1.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (r, d)
    neighbors_ : ndarray of shape (n, 2 k)
        Each row's k nearest of its class, then k nearest others, of the last search; -1 where there are fewer.
    objective_ : float

    Notes
    -----
    Yang, Wang & Zuo, Neurocomputing 83, 2012. Neighbors are Euclidean at first. The paper's k is unknown to us; 10,
    `objective` and `refresh` are ours. A survey's account maximizes the mass on the misses, and its gradient has
    hits and misses exchanged and lacks the factor 2. O(n k r) per evaluation, after one O(n^2 d) search.
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
    def _span(self) -> bool:
        return initialization.in_span(self.init, self.n_components)

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.counts(1, k=self.k)
        checks.counts(0, refresh=self.refresh)
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.one_of((None, "median"), init_scale=self.init_scale)
        L0 = initialization.start(X, labels, self.init, self.n_components, self.random_state)
        if self.init_scale == "median":
            L0 = initialization.median_scaled(X, L0)
        last = work.start(L0.shape)
        search = {"kind": self.objective, "refresh": self.refresh, "warm": last is not None, **self._search()}
        found = fast_nca(X, labels, L0 if last is None else last, self.k, self.reg, **search)
        return found.with_x(found.x, attributes={"neighbors": work.rows_as_given(found.attributes["neighbors"])})
