"""Maximally collapsing metric learning in the feature space of a kernel (Globerson & Roweis, 2005).

    min_{T}  sum_i KL(p0_i || p_i) + reg tr(T' K T)
    p_ij = exp(-d_ij) / sum_{k != i} exp(-d_ik),  d_ij = |T' (k_i - k_j)|^2

k_i: row i of the kernel matrix K; p0_i: uniform over the other rows of i's class, or over the rows that pairs call
similar to i. Convex in T T'.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics import certified_psd, checks, constraints
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.kernels import Kernel
from ...numerics.optimize import Report, Solution
from ...numerics.types import Array, Ints
from .objective import WEIGHTINGS, Collapse


def kernel_mcml(
    R: Array,
    told: Ints | Pairs,
    reg: float = 1e-3,
    weighting: str = "sample",
    *,
    start: Array | None = None,
    max_iter: int = 500,
    tol: float = 1e-3,
    report: Report | None = None,
) -> Solution:
    """L (r, r) on rows R of the kernel map, R R' = K; see `KernelMCML`."""
    problem = Collapse(R, told, weighting, trace=reg)
    search: dict[str, Any] = {"start": start, "max_iter": max_iter, "tol": tol, "report": report}
    return certified_psd.minimize(problem, problem.gap, problem.scaling(), **search)


class KernelMCML(FromPairs, KernelMetric):
    """Bring each class as near to one point as possible, far from the others, in a kernel's feature space.

    Parameters
    ----------
    n_components : int, optional
        Keep this many leading eigenvectors, scaled by the roots of their eigenvalues.
    reg : float
        Weight of the trace beside a sum over rows, above 0: a rich kernel collapses every class exactly, and the
        best scale is then infinite.
    weighting : "sample" or "pair"
        Every row weighs the same (paper), or every pair of one class.
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
        Stop where the duality gap is below ``tol * max(1, |objective|)``. The gap, a sure bound, is a loose one: at
        1e-3 the objective was within 2e-5 of its minimum on six tables, and 1e-6 often takes more than `max_iter`.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None
        Draws the landmarks.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        T.
    objective_, duality_gap_ : float
    kkt_ : ndarray of shape (2,)
        As for `MCML`, in the coordinates of the kernel map.

    Notes
    -----
    Globerson & Roweis, NIPS 18, 2005, section on kernels. The linear method on the empirical kernel map, given pairs
    included. The penalty and its default, and 300 landmarks, are not the paper's.
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
        max_iter: int = 500,
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
        told = pairs.labels if isinstance(pairs, LabelPairs) else constraints.with_similar(pairs)
        found = kernel_mcml(R, told, self.reg, self.weighting, start=work.start(), **self._search())
        return found.with_x(found.x[: self.n_components])
