"""Kernel metric that preserves the manifold of the data (Soleymani Baghshah & Bagheri Shouraki, 2009).

    max_T  tr(T' K_D T) / tr(T' (K_S + lam K E K / n) T)   s.t.  T' K T = I,    E = (I - S)'(I - S)

K_S and K_D are the means of (k_i - k_j)(k_i - k_j)' over similar and over dissimilar pairs, with k_i column i of the
kernel matrix. S holds the weights that reconstruct every row, labeled or not, from its neighbors (LLE). The ratio is
maximized exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...neighbors import graphs
from ...numerics import checks, scatter
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array, Ints
from .. import locality


def lle_regularized(
    R: Array,
    pairs: Pairs | LabelPairs,
    weights: csr_array,
    n_components: int | None = None,
    *,
    lam: float = 1.0,
    reg: float = 1.0,
    solver: str = "ratio",
    tol: float = 1e-10,
) -> Solution:
    """Return L (p, r) on rows R of the kernel map, as `x`; see `KernelLLERegularizedMetric`."""
    S_w, S_b = scatter.pair_scatters(R, pairs).mean()
    S_w = S_w + lam * locality.rebuilding_scatter(R, weights)
    # S_w + reg tr(S_w) / r I
    S_w += reg * np.trace(S_w) / len(S_w) * np.eye(len(S_w))
    preferred = None
    if isinstance(pairs, LabelPairs):
        preferred = int(pairs.labels.max())  # one less than the number of classes
    return locality.ratio_directions(S_b, S_w, n_components, solver=solver, tol=tol, preferred=preferred)


class KernelLLERegularizedMetric(FromPairs, KernelMetric):
    """Keep dissimilar pairs apart, and similar pairs and neighborhoods together, in the feature space of a kernel.

    Rows without a label are used as well: they shape the neighborhoods.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space. By default, one less than the number of classes with labels, and
        with pairs the smallest number that keeps 95 % of the dissimilar scatter (often all but one), or all but one
        with ``solver="gevd"``.
    lam : float
        Weight of the neighborhoods, at least 0.
    n_neighbors : int
        Number of neighbors of each row, below the number of rows.
    lle_reg : float
        Ridge penalty of the weights that reconstruct each row from its neighbors, at least 0.
    lle_space : {"input", "feature"}
        Whether neighbors and weights come from the rows themselves, or from their images in the feature space
        (required with ``kernel="precomputed"``).
    reg : float
        Value added to the diagonal of the denominator, at least 0, in units of its mean eigenvalue. With a rich
        kernel, the denominator can be 0, or small in directions that only separate the training rows.
    solver : {"ratio", "gevd"}
        "ratio" solves the problem of the paper. "gevd" uses generalized eigenvectors, whose constraint is T' (K_S +
        lam K E K / n) T = I instead.
    tol : float
        Tolerance for the optimality of the trace ratio, relative to the trace of K_D.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function that takes two sets of rows
        and returns the matrix of their kernel values.
    gamma : float, optional
        Coefficient of the kernel. By default, 1 / (median squared distance), for "laplacian" 1 / (median city-block
        distance), and for the other kernels 1 / d.
    degree, coef0 : float
        Degree and constant term of the polynomial kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space (Nystroem approximation), which costs O(n landmarks^2). None
        uses all rows, which costs O(n^3).
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    weighting : {"pairs", "class"}
        With ``n_pairs="all"``, give every pair ("pairs") or every class ("class") the same weight.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks and the pairs.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    objective_ : float
        Trace ratio. It is infinite if the denominator has a null space of `n_components` or more dimensions.

    Notes
    -----
    Soleymani Baghshah & Bagheri Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.
    The neighborhood term is divided by n, so that `lam` does not depend on the number of rows. `reg` is not from the
    paper. Its default gave the best mean accuracy of 3-NN over eleven tables, in folds of their training parts: 8.2
    points above that of 1e-3.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam: float = 1.0,
        n_neighbors: int = 10,
        lle_reg: float = 1e-3,
        lle_space: str = "input",
        reg: float = 1.0,
        solver: str = "ratio",
        tol: float = 1e-10,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = None,
        n_pairs: int | str | None = "all",
        weighting: str = "pairs",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.n_neighbors = n_neighbors
        self.lle_reg = lle_reg
        self.lle_space = lle_space
        self.reg = reg
        self.solver = solver
        self.tol = tol
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.weighting = weighting
        self.random_state = random_state

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        checks.one_of(("input", "feature"), lle_space=self.lle_space)
        checks.one_of(locality.SOLVERS, solver=self.solver)
        checks.at_least(0, lam=self.lam, lle_reg=self.lle_reg, reg=self.reg)
        if self.kernel == "precomputed" and self.lle_space == "input":
            raise ValueError("lle_space must be 'feature' with a precomputed kernel; got 'input'")
        work = super()._workspace(X, order)
        if self.lle_space == "input":
            rows = np.asarray(X, dtype=np.float64)
        else:
            rows = work.rows
        return replace(work, extra=graphs.lle_weights(rows, self.n_neighbors, self.lle_reg))

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        settings = self._settings("n_components", "lam", "reg", "solver", "tol")
        return lle_regularized(R, pairs, work.extra, **settings)
