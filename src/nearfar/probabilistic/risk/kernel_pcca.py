"""Pairwise constrained component analysis in the feature space of a kernel (Mignon & Jurie, 2012).

    min_T  sum_p w_p log(1 + exp(beta s_p (|T' (k_i - k_j)|^2 - 1))) / beta + reg tr(T' K T)

k_i is row i of the kernel matrix K, and s_p is +1 for similar and -1 for dissimilar pairs; the weights w_p sum to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics import checks
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from . import solvers


def kernel_pcca(
    R: Array,
    pairs: Pairs | LabelPairs,
    n_components: int | None = None,
    beta: float = 3.0,
    reg: float = 1e-3,
    *,
    pair_weight: str = "none",
    normalize_kernel: bool = True,
    start: Array | None = None,
    **search: Any,
) -> Solution:
    """Return L (k, r) on rows R of the kernel map, R R' = K; `search` holds max_iter, tol and report.

    See `KernelPCCA` for the settings.
    """
    scale = 1.0
    if normalize_kernel:
        scale = np.sqrt(len(R) / np.sum(R**2))  # tr K = n
    losses = solvers.risk(scale * R, pairs, pair_weight)
    k = n_components or R.shape[1]
    if start is None:
        L0 = solvers.whitened_directions(scale * R, k)
    else:
        L0 = start / scale
    found = solvers.minimize(losses, L0, 1.0, learn_b=False, beta=beta, reg=reg, **search)
    return found.with_x(scale * found.x, attributes={})


class KernelPCCA(FromPairs, KernelMetric):
    """Project the feature space of a kernel so that similar pairs are within distance 1 and dissimilar pairs beyond it.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space (columns of T). By default, the rank of the kernel matrix.
    beta : float
        Sharpness of the loss, above 0: as it grows, the loss becomes a hinge.
    reg : float
        Weight of the squared norm of the map in feature space relative to the mean loss over pairs, at least 0. With 0,
        a rich kernel satisfies every training pair.
    pair_weight : {"none", "balanced"}
        With "none", every pair has the same weight. With "balanced", similar and dissimilar pairs each have half of the
        total weight.
    normalize_kernel : bool
        Divide the kernel by its mean diagonal for the search, so that `reg` is comparable between kernels.
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
    n_pairs : "all", int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. "all" uses every pair without drawing;
        with None, 20 c^2 of each kind are drawn for c classes, at most 500,000.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when an iteration lowers the objective by at most ``0.01 * tol * max(1, |objective|)``.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws the landmarks, and pairs from labels.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        The coefficients T of the learned map, one row per landmark.
    threshold_ : float
        Distance below which `predict` calls a pair similar, 1. It is set if pairs were given.
    objective_ : float
        Value of the objective at the solution.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Mignon & Jurie, CVPR 2012.

    A gradient step in the coordinates of the empirical kernel map is the paper's step, preconditioned by the inverse
    kernel. `reg`, `pair_weight` and the 300 landmarks are not from the paper.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        beta: float = 3.0,
        reg: float = 1e-3,
        pair_weight: str = "none",
        normalize_kernel: bool = True,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 300,
        n_pairs: int | str | None = "all",
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.reg = reg
        self.pair_weight = pair_weight
        self.normalize_kernel = normalize_kernel
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        self.set_threshold(1.0)

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.at_least(0, reg=self.reg)
        checks.above(0, beta=self.beta)
        checks.one_of(solvers.WEIGHTINGS, pair_weight=self.pair_weight)
        settings = self._settings("n_components", "beta", "reg", "pair_weight", "normalize_kernel")
        start = work.start((self.n_components or R.shape[1], R.shape[1]))
        return kernel_pcca(R, pairs, start=start, **settings, **self._search())
