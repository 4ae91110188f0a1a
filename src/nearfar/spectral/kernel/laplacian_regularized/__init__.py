"""Learning a kernel from pairs, smooth on a neighborhood graph (Baghshah & Shouraki, 2010).

    min_{K PSD}  1/|S| sum_S d_ij + lam tr(Lap K)   s.t.  d_ij >= c for dissimilar pairs,   d_ij = K_ii + K_jj - 2 K_ij

Lap: Laplacian of the symmetrized neighborhood graph over all rows. With K = F Q F', F the q smoothest functions on the
graph, it is a semidefinite program in Q; q = n - 1 leaves the full problem. New rows follow by kernel ridge regression.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ....estimators.base import FromPairs, KernelMetric, Workspace
from ....fit_warnings import warn
from ....numerics import checks, psd
from ....numerics.constraints import LabelPairs, Pairs, written_out
from ....numerics.kernels import Kernel
from ....numerics.optimize import Solution
from ....numerics.scatter import pair_scatters
from ....numerics.types import AnyArray, Array, Ints
from . import separation, smooth_functions

DIAGONAL = 1e-8  # added to the cost in units of its mean eigenvalue: a graph in pieces leaves directions free
VISIBLE = 1e-6  # of the largest eigenvalue of K, or squared length of a difference


def laplacian_regularized(
    pairs: Pairs, laplacian: csr_array, q: int = 30, lam: float = 0.1, c: float = 1.0, **search: Any
) -> Solution:
    """Return Y (n, rank) with K = Y Y' as `x`; see `LaplacianRegularizedKernel`."""
    F = smooth_functions.smoothest(laplacian, min(q, laplacian.shape[0] - 1))
    scatters = pair_scatters(F, pairs)
    C = scatters.similar / scatters.n_similar + lam * F.T @ (laplacian @ F)
    C += DIAGONAL * np.trace(C) / len(C) * np.eye(len(C))
    Z = (F[pairs.i] - F[pairs.j])[~pairs.similar]
    length = np.sum(Z**2, axis=1)
    if not (seen := length > VISIBLE**2 * length.max()).all():
        warn(f"{(~seen).sum()} dissimilar pairs are one point of the graph; left out")
    found = separation.cheapest(C, Z[seen], c, **search)
    w = psd.spectrum(found.x)[0]
    G = psd.components(found.x, int((w > VISIBLE * w[0]).sum())).T
    G *= np.sqrt(c / np.sum((Z[seen] @ G) ** 2, axis=1).min())
    return found.with_x(F @ G)


class LaplacianRegularizedKernel(FromPairs, KernelMetric):
    """Learn a kernel matrix that keeps dissimilar pairs apart, and similar pairs and neighbors near.

    Parameters
    ----------
    n_components : int, optional
        Leading directions of the embedding. Default: its rank (at most q).
    q : int
        Smoothest functions on the graph that K is made of; fewer than n - 1 restrict it.
    lam, c : float
        Weight of the graph; least squared distance of dissimilar pairs (only a scale). Above 0.
    n_neighbors : int
        Of the graph, which has every row, labeled or not.
    graph_space : "input" or "feature"
        Neighbors among the rows, or among their images (the only way with "precomputed").
    ridge : float
        Of the regression, in units of the mean k(x, x), above 0.
    kernel, gamma, degree, coef0, landmarks
        Of the regression, as for `KernelDCA`.
    n_pairs : int, "all" or None
        Of each kind, made of labels; None: 20 c^2 for c classes.
    max_iter, verbose : int, bool
    tol : float
        On the relative duality gap.
    random_state : int, RandomState, Generator or None
        Draws landmarks and pairs.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, rank)
        Y with K = Y Y', one row for every row of X; `transform` approximates it.
    transductive_ : bool
        True: the kernel was learned for the rows of X alone.
    dual_coef_ : ndarray of shape (m, k)
    objective_, duality_gap_ : float

    Notes
    -----
    Soleymani Baghshah & Bagheri Shouraki, Neurocomputing 73, 2010. Weights of dissimilar pairs are not used. The
    extension and all defaults are ours; the semidefinite program is solved exactly.

    The method is for clustering the rows that it was given, with few pairs. It has no margin within a neighborhood:
    q smooth functions of a graph tell parts of the data apart, not the classes that overlap in one part, and new rows
    are placed by regression alone. On eleven tables 3 nearest neighbors lost 5 points on the plain distance in the
    mean. In folds inside training rows of four tables no `n_neighbors`, `lam` or `ridge` helped on all; ``q=90`` gained
    0.4 to 3.7 points on each and took two to eight times as long.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        q: int = 30,
        lam: float = 0.1,
        c: float = 1.0,
        n_neighbors: int = 10,
        graph_space: str = "input",
        ridge: float = 0.1,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = None,
        n_pairs: int | str | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.q = q
        self.lam = lam
        self.c = c
        self.n_neighbors = n_neighbors
        self.graph_space = graph_space
        self.ridge = ridge
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    def _workspace(self, X: AnyArray, order: Ints | None) -> Workspace:
        checks.one_of(("input", "feature"), graph_space=self.graph_space)
        if self.kernel == "precomputed" and self.graph_space == "input":
            raise ValueError("graph_space must be 'feature' with a precomputed kernel; got 'input'")
        work = super()._workspace(X, order)
        if self.graph_space == "input":
            rows = np.asarray(X, dtype=np.float64)
        else:
            rows = work.rows
        return replace(work, extra=smooth_functions.graph_laplacian(rows, self.n_neighbors))

    def _solve(self, R: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.above(0, lam=self.lam, c=self.c, ridge=self.ridge, tol=self.tol)
        checks.counts(1, q=self.q)
        pairs = written_out(pairs)
        found = laplacian_regularized(pairs, work.extra, self.q, self.lam, self.c, **self._search())
        if (self.n_components or 0) > found.x.shape[1]:
            rank = f"{found.x.shape[1]}, the rank of the learned kernel"
            raise ValueError(f"n_components must be at most {rank}; got {self.n_components}")
        L = smooth_functions.ridge_map(R, found.x[:, : self.n_components], self.ridge)
        return found.with_x(L, attributes={"embedding": work.as_given(found.x), "transductive": True})
