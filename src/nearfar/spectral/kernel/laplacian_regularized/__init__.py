"""Learning a kernel from pairs, smooth on a neighborhood graph (Soleymani Baghshah & Bagheri Shouraki, 2010).

    min_{K PSD}  1/|S| sum_S d_ij + lam tr(Lap K)   s.t.  d_ij >= c for dissimilar pairs,   d_ij = K_ii + K_jj - 2 K_ij

Lap is the Laplacian of the symmetrized neighborhood graph over all rows. With K = F Q F', where F holds the q smoothest
functions on the graph, this is a semidefinite program in Q; q = n - 1 gives the full problem. New rows are embedded by
kernel ridge regression.
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

DIAGONAL = 1e-8  # ridge on the cost, in units of its mean eigenvalue: a disconnected graph makes it singular
VISIBLE = 1e-6  # share of the largest eigenvalue of K, or length of a difference, below which they count as 0


def laplacian_regularized(
    pairs: Pairs, laplacian: csr_array, q: int = 30, lam: float = 0.1, c: float = 1.0, **search: Any
) -> Solution:
    """Return Y (n, rank) with K = Y Y' as `x`; see `LaplacianRegularizedKernel`."""
    F = smooth_functions.smoothest(laplacian, min(q, laplacian.shape[0] - 1))  # (n, q)
    scatters = pair_scatters(F, pairs)
    # <C, Q> = 1/|S| sum_S d_ij + lam tr(Lap K)
    C = scatters.similar / scatters.n_similar + lam * F.T @ (laplacian @ F)
    C += DIAGONAL * np.trace(C) / len(C) * np.eye(len(C))
    Z = (F[pairs.i] - F[pairs.j])[~pairs.similar]
    length = np.sum(Z**2, axis=1)
    seen = length > VISIBLE**2 * length.max()
    if not seen.all():
        warn(f"{(~seen).sum()} dissimilar pairs coincide in the graph; they are ignored")
    found = separation.cheapest(C, Z[seen], c, **search)
    w = psd.spectrum(found.x)[0]
    G = psd.components(found.x, int((w > VISIBLE * w[0]).sum())).T  # Q = G G'
    # without the small eigenvalues, d_ij >= c may be violated: scale up
    G *= np.sqrt(c / np.sum((Z[seen] @ G) ** 2, axis=1).min())
    return found.with_x(F @ G)


class LaplacianRegularizedKernel(FromPairs, KernelMetric):
    """Learn a kernel matrix that keeps dissimilar pairs apart, and similar pairs and neighbors near.

    It is made for clustering with few pairs: nearest neighbors of new rows are mostly worse than with the Euclidean
    distance.

    Parameters
    ----------
    n_components : int, optional
        Number of leading dimensions of the embedding to keep. By default, its rank (at most q).
    q : int
        Number of the smoothest functions on the graph from which K is formed, at least 1. Fewer than n - 1 restrict K.
    lam : float
        Weight of the graph term, above 0.
    c : float
        Smallest squared distance of dissimilar pairs, above 0. It only sets the scale.
    n_neighbors : int
        Number of neighbors in the graph, which includes every row, labeled or not.
    graph_space : {"input", "feature"}
        Whether neighbors are searched for among the rows, or among their images in the feature space (required with
        ``kernel="precomputed"``).
    ridge : float
        Ridge penalty of the regression that extends the kernel to new rows, in units of the mean k(x, x), above 0.
    kernel : str or callable
        Kernel of the regression: "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function
        that takes two sets of rows and returns the matrix of their kernel values.
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
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the duality gap falls below `tol` times the objective.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the landmarks and the pairs.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, rank)
        Rows of Y, with K = Y Y', for the training rows. `transform` approximates it.
    transductive_ : bool
        Always True: the kernel is learned only for the rows of X.
    dual_coef_ : ndarray of shape (m, k)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    objective_ : float
        Value of the objective.
    duality_gap_ : float
        Upper bound on the difference between `objective_` and the optimum.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Soleymani Baghshah & Bagheri Shouraki, "Kernel-based metric learning for semi-supervised clustering",
    Neurocomputing 73, 2010. The weights of dissimilar pairs are not used. The extension to new rows and all defaults
    are not from the paper. The semidefinite program is solved exactly.

    The method is intended for clustering the training rows with few pairs. It has no margin within a neighborhood: q
    smooth functions of a graph separate parts of the data, but not classes that overlap within one part, and new rows
    are placed by regression alone. On eleven tables, the accuracy of 3-NN fell by 5 points on average compared with
    Euclidean distances. In folds of the training rows of four tables, no value of `n_neighbors`, `lam` or `ridge`
    helped on all of them; ``q=90`` gained 0.4 to 3.7 points on each and took two to eight times as long.
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
        found = laplacian_regularized(pairs, work.extra, q=self.q, lam=self.lam, c=self.c, **self._search())
        if (self.n_components or 0) > found.x.shape[1]:
            rank = f"{found.x.shape[1]}, the rank of the learned kernel"
            raise ValueError(f"n_components must be at most {rank}; got {self.n_components}")
        L = smooth_functions.ridge_map(R, found.x[:, : self.n_components], self.ridge)
        return found.with_x(L, attributes={"embedding": work.as_given(found.x), "transductive": True})
