"""Fast neighborhood component analysis in a kernel's feature space (Yang, Wang & Zuo, 2012).

    max_T  sum_i sum_{j in H_i} p_ij - reg tr(T' K T)
    p_ij = exp(-|T' (k_i - k_j)|^2) / sum_{t in H_i or M_i} exp(-|T' (k_i - k_t)|^2)

k_i: row i of the kernel matrix K; H_i, M_i: the k nearest rows of i's class (hits) and of other classes (misses).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...estimators.base import FromLabels, KernelMetric, Workspace
from ...numerics import checks, initialization
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .fast_search import maximize_listed
from .search import NO_RIDGE, Ridge


def kernel_fast_nca(R: Array, labels: Ints, L0: Array, k: int = 10, ridge: Ridge = NO_RIDGE, **search: Any) -> Solution:
    """L (c, r) on rows R of the kernel map; `search` is kind, near, refresh, max_iter, tol, report."""
    return maximize_listed(R, labels, L0, k, ridge=ridge, **search)


class KernelFastNCA(FromLabels, KernelMetric):
    """Learn a neighborhood components analysis over a few neighbors of each row, in a kernel's feature space.

    Parameters
    ----------
    n_components : int, optional
        Columns of T; default: the rank of the kernel.
    k : int
        Hits and misses of each row; classes with fewer rows give what they have.
    neighbors : "rkhs" or "input"
        Whether these are nearest in feature space or among the input rows.
    objective : "accuracy" or "log"
        The expected number of picks among hits (paper), or the log-probability that all picks are hits.
    reg : float, optional
        Weight of the penalty beside a sum over rows. Default: a thousandth of their number; 0 over-fits.
    reg_norm : "rkhs" or "coef"
        What is penalized: tr(T' K T), the norm in feature space, or the squared Frobenius norm of T.
    refresh : int
        So many times the neighbors are found anew under the learned metric, and the search goes on.
    init : str or array-like of shape (c, r)
        "auto", "pca", "lda", "identity", "random" as for `NCA`, or components, in coordinates of the kernel map.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed" or a function of two sets of rows.
    gamma : float, optional
        Default: 1 / median squared distance, for "laplacian" 1 / median city-block distance; for others 1 / d.
    degree, coef0 : float
        Of the polynomial kernel.
    landmarks : int or None
        Rows drawn to span the feature space; the cost grows with their square. None: all rows.
    max_iter : int
    tol : float
        Stop where an iteration adds less to the objective per row, or to that relatively where it is above 1.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, c)
        T.
    neighbors_ : ndarray of shape (n, 2 k)
        Each row's k nearest of its class, then k nearest others, of the last search; -1 where there are fewer.
    objective_ : float

    Notes
    -----
    Yang, Wang & Zuo, Neurocomputing 83, 2012. A survey penalizes the Frobenius norm of T, which is not the norm in
    feature space. The defaults of `k`, `reg`, `gamma` and `landmarks` are ours.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        k: int = 10,
        neighbors: str = "rkhs",
        objective: str = "accuracy",
        reg: float | None = None,
        reg_norm: str = "rkhs",
        refresh: int = 0,
        init: str | AnyArray = "pca",
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 300,
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.k = k
        self.neighbors = neighbors
        self.objective = objective
        self.reg = reg
        self.reg_norm = reg_norm
        self.refresh = refresh
        self.init = init
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        checks.one_of(("rkhs",) if self.kernel == "precomputed" else ("rkhs", "input"), neighbors=self.neighbors)
        work = super()._workspace(X, order)
        if self.neighbors == "rkhs":
            return work
        return replace(work, extra=np.array(X, dtype=np.float64))  # rows among which neighbors are searched

    def _solve(self, R: Array, labels: Ints, work: Workspace) -> Solution:
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.one_of(("rkhs", "coef"), reg_norm=self.reg_norm)
        reg = 1e-3 * len(R) if self.reg is None else self.reg
        checks.at_least(0, reg=reg)
        checks.counts(1, k=self.k)
        checks.counts(0, refresh=self.refresh)
        first = initialization.start(R, labels, self.init, self.n_components, self.random_state)
        last = work.start(first.shape)
        L0 = first if last is None else last
        if self.reg_norm == "coef":
            basis = np.asarray(work.basis)
            ridge = Ridge(reg, basis.T @ basis)
        else:
            ridge = Ridge(reg, None)
        search = {"kind": self.objective, "refresh": self.refresh, "warm": last is not None, **self._search()}
        found = kernel_fast_nca(R, labels, L0, self.k, ridge, near=work.extra, **search)
        return found.with_x(found.x, attributes={"neighbors": work.rows_as_given(found.attributes["neighbors"])})
