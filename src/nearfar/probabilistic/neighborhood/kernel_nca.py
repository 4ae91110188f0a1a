"""Kernel neighborhood components analysis (after Goldberger, Roweis, Hinton & Salakhutdinov, 2004).

    max_T  sum_i p_i - reg tr(T' K T)   or   sum_i log p_i - reg tr(T' K T)
    p_i = sum_{j of i's class} p_ij,  p_ij = exp(-|T' (k_i - k_j)|^2) / sum_{t != i} exp(-|T' (k_i - k_t)|^2)

k_i: row i of the kernel matrix K.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromLabels, KernelMetric, Workspace
from ...numerics import checks, initialization
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .. import neighbor_softmax
from . import search as neighborhood
from .search import Ridge, kernel_ridge


def kernel_nca(
    R: Array, labels: Ints, L0: Array, objective: str = "accuracy", ridge: Ridge = neighborhood.NO_RIDGE, **search: Any
) -> Solution:
    """Return L (k, r) on rows R of the kernel map; `search` holds max_iter, tol, dtype and report. See `KernelNCA`."""
    rows = neighbor_softmax.sorted_rows(R, labels)
    return neighborhood.maximize_dense(rows, objective, L0, ridge=ridge, **search)


class KernelNCA(FromLabels, KernelMetric):
    """Learn a neighborhood components analysis in the feature space of a kernel.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (columns of T). By default, the rank of the kernel matrix.
    objective : {"accuracy", "log"}
        What to maximize: "accuracy", the expected number of rows that pick a neighbor of their own class, or "log", the
        log-probability that all rows do.
    reg : float, optional
        Weight of the penalty, at least 0, relative to a sum over rows. By default, a thousandth of the number of rows;
        without a penalty, the map overfits.
    reg_norm : {"rkhs", "coef"}
        Norm to penalize: the squared norm of the map in feature space, tr(T' K T), or the squared Frobenius norm of T.
    init : {"auto", "pca", "lda", "identity", "random"} or array-like of shape (k, r)
        Start of the search, as for `NCA`, in the coordinates of the kernel map.
    init_scale : {None, "median"}
        With "median", scale the start so that the median squared distance between rows is 1.
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
    dtype : {"float64", "float32"}
        Precision of the search. "float32" is faster, and ends with at most five iterations in float64.
    max_iter : int
        Maximum number of iterations.
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
    dual_coef_ : ndarray of shape (m, k)
        The coefficients T of the learned map, one row per landmark.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Goldberger, Roweis, Hinton & Salakhutdinov, NIPS 2004, applied to the rows of the empirical kernel map.

    A survey penalizes the Frobenius norm of T, which is not the norm in feature space. The defaults of `reg`, `gamma`
    and `landmarks` are not from the paper.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "accuracy",
        reg: float | None = None,
        reg_norm: str = "rkhs",
        init: str | AnyArray = "pca",
        init_scale: str | None = None,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 300,
        dtype: str = "float64",
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.reg = reg
        self.reg_norm = reg_norm
        self.init = init
        self.init_scale = init_scale
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.dtype = dtype
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, R: Array, labels: Ints, work: Workspace) -> Solution:
        checks.one_of(("accuracy", "log"), objective=self.objective)
        checks.one_of((None, "median"), init_scale=self.init_scale)
        checks.one_of(("float64", "float32"), dtype=self.dtype)
        ridge = kernel_ridge(self.reg, self.reg_norm, n=len(R), basis=work.basis)
        L0 = initialization.start(R, labels, init=self.init, n_components=self.n_components, seed=self.random_state)
        last = work.start(L0.shape)
        if last is not None:
            L0 = last
        elif self.init_scale == "median":
            L0 = initialization.median_scaled(R, L0)
        search = {"dtype": self.dtype, "warm": last is not None, **self._search()}
        return kernel_nca(R, labels, L0, self.objective, ridge, **search)
