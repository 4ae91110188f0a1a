"""Fast neighborhood component analysis in the feature space of a kernel (Yang, Wang & Zuo, 2012).

    max_T  sum_i sum_{j in H_i} p_ij - reg tr(T' K T)
    p_ij = exp(-|T' (k_i - k_j)|^2) / sum_{t in H_i or M_i} exp(-|T' (k_i - k_t)|^2)

k_i is row i of the kernel matrix K. H_i and M_i are the k nearest rows of the class of i (hits) and of other classes
(misses).
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
from .search import NO_RIDGE, Ridge, kernel_ridge


def kernel_fast_nca(R: Array, labels: Ints, L0: Array, k: int = 10, ridge: Ridge = NO_RIDGE, **search: Any) -> Solution:
    """Return L (c, r) on rows R of the kernel map; `search` holds kind, near, refresh, max_iter, tol and report."""
    return maximize_listed(R, labels, L0, k, ridge=ridge, **search)


class KernelFastNCA(FromLabels, KernelMetric):
    """Learn a neighborhood components analysis over a few neighbors of each row, in a kernel's feature space.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (columns of T). By default, the rank of the kernel matrix.
    k : int
        Number of hits (nearest rows of the same class) and of misses (nearest rows of other classes) of each row, at
        least 1. Smaller classes contribute all their rows.
    neighbors : {"rkhs", "input"}
        Where the neighbors are searched: in the feature space of the kernel, or among the input rows.
    objective : {"accuracy", "log"}
        What to maximize: "accuracy", the expected number of rows that pick one of their hits (the paper's objective),
        or "log", the log-probability that all rows do.
    reg : float, optional
        Weight of the penalty, at least 0, relative to a sum over rows. By default, a thousandth of the number of rows;
        without a penalty, the map overfits.
    reg_norm : {"rkhs", "coef"}
        Norm to penalize: the squared norm of the map in feature space, tr(T' K T), or the squared Frobenius norm of T.
    refresh : int
        Number of times that the neighbors are searched again under the learned metric before the search goes on.
    init : {"auto", "pca", "lda", "identity", "random"} or array-like of shape (c, r)
        Start of the search, as for `NCA`, in the coordinates of the kernel map.
    kernel : {"rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed"} or callable
        Kernel to use: its name, or a function that takes two sets of rows and returns their kernel matrix. With
        "precomputed", X is the kernel matrix itself.
    gamma : float, optional
        Coefficient of the "rbf", "laplacian" and "polynomial" kernels. By default, 1 / median squared distance between
        rows for "rbf", 1 / median city-block distance for "laplacian", and 1 / d otherwise.
    degree : float
        Degree of the "polynomial" kernel.
    coef0 : float
        Constant term of the "polynomial" kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space; the cost grows with its square. If None, all rows are used.
    max_iter : int
        Maximum number of iterations of each search: one, and one more for each refresh.
    tol : float
        Stop when an iteration adds at most ``tol * max(1, |f|)`` to f, the objective divided by the number of anchors.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the landmarks, and the start if ``init="random"``.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, c)
        The coefficients T of the learned map, one row per landmark.
    neighbors_ : ndarray of shape (n, 2 k)
        Neighbors of each row in the last search: its k hits, then its k misses; -1 if there are fewer.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Yang, Wang & Zuo, Neurocomputing 83, 2012.

    A survey penalizes the Frobenius norm of T, which is not the norm in feature space. The defaults of `k`, `reg`,
    `gamma` and `landmarks` are not from the paper.
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
        spaces: tuple[str, ...] = ("rkhs", "input")
        if self.kernel == "precomputed":
            spaces = ("rkhs",)
        checks.one_of(spaces, neighbors=self.neighbors)
        work = super()._workspace(X, order)
        if self.neighbors == "rkhs":
            return work
        return replace(work, extra=np.array(X, dtype=np.float64))  # rows among which neighbors are searched

    def _solve(self, R: Array, labels: Ints, work: Workspace) -> Solution:
        checks.one_of(("accuracy", "log"), objective=self.objective)
        ridge = kernel_ridge(self.reg, self.reg_norm, n=len(R), basis=work.basis)
        checks.counts(1, k=self.k)
        checks.counts(0, refresh=self.refresh)
        first = initialization.start(R, labels, init=self.init, n_components=self.n_components, seed=self.random_state)
        last = work.start(first.shape)
        L0 = first if last is None else last
        search = {"kind": self.objective, "refresh": self.refresh, "warm": last is not None, **self._search()}
        found = kernel_fast_nca(R, labels, L0, self.k, ridge, near=work.extra, **search)
        neighbors = work.rows_as_given(found.attributes["neighbors"])
        return found.with_x(found.x, attributes={"neighbors": neighbors})
