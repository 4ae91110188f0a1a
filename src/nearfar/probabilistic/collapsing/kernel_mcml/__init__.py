"""Maximally collapsing metric learning in the feature space of a kernel (Globerson & Roweis, 2005).

    min_{T}  sum_i KL(p0_i || p_i) + reg tr(T' K T)
    p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik),  d_ij = |T' (k_i - k_j)|^2

k_i is row i of the kernel matrix K. p0_i is uniform over the other rows of the class of i, or over the rows that are
similar to i in the given pairs. The problem is convex in T T'.
"""

from __future__ import annotations

from typing import Any

from ....estimators.base import FromPairs, KernelMetric, Workspace
from ....numerics import checks, constraints, psd
from ....numerics.constraints import LabelPairs, Pairs
from ....numerics.kernels import Kernel
from ....numerics.optimize import Report, Solution
from ....numerics.types import Array, Ints
from ..objective import WEIGHTINGS, Collapse
from . import low_rank_search


def kernel_mcml(
    R: Array,
    supervision: Ints | Pairs,
    reg: float = 1e-3,
    weighting: str = "sample",
    *,
    start: Array | None = None,
    max_iter: int = 1000,
    tol: float = 1e-3,
    report: Report | None = None,
) -> Solution:
    """Return L (k, r) on rows R of the kernel map, R R' = K; see `KernelMCML`."""
    problem = Collapse(R, supervision, weighting, trace=reg)
    return low_rank_search.minimize(problem, max_iter=max_iter, tol=tol, start=start, report=report)


class KernelMCML(FromPairs, KernelMetric):
    """Bring each class as close to a single point as possible, far from the others, in a kernel's feature space.

    Parameters
    ----------
    n_components : int, optional
        Number of directions to keep, those with the largest eigenvalues, scaled by their square roots. By default, all
        are kept that the metric uses, which are often far fewer than the landmarks.
    reg : float
        Weight of the trace penalty relative to the sum over rows, above 0. Without a penalty, a rich kernel collapses
        every class exactly, and the optimal scale is infinite.
    weighting : {"sample", "pair"}
        Whether every row has the same weight, as in the paper, or every pair of rows of one class.
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
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below ``tol * max(1, |objective|)``. The gap is a loose bound: at 1e-3 the
        objective was within 2e-5 of its minimum on six data sets, and 1e-6 often takes more than `max_iter` iterations.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the landmarks.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        The coefficients T of the learned map, one row per landmark.
    objective_ : float
        Value of the objective at the solution.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum.
    kkt_ : ndarray of shape (2,)
        Violation of the optimality conditions as for `MCML`, in the coordinates of the kernel map.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Globerson & Roweis, NIPS 2005, section on kernels.

    This is the linear method on the rows of the empirical kernel map; it also takes pairs. The penalty, its default and
    the 300 landmarks are not from the paper.
    """

    _weights = False
    _both_kinds = False

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 1e-3,
        weighting: str = "sample",
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 300,
        max_iter: int = 1000,
        tol: float = 1e-3,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.weighting = weighting
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

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.above(0, reg=self.reg)
        checks.one_of(WEIGHTINGS, weighting=self.weighting)
        supervision: Ints | Pairs
        if isinstance(pairs, LabelPairs):
            supervision = pairs.labels
        else:
            supervision = constraints.with_similar(pairs)
        found = kernel_mcml(
            R, supervision, reg=self.reg, weighting=self.weighting, start=work.start(), **self._search()
        )
        return found.with_x(psd.truncate_rank(found.x, self.n_components))
