"""Kernel dimensionality reduction and metric learning in one, on Stiefel x SPD (Harandi, Salzmann & Hartley, 2017).

    min_{T, Lam}  mean_S softplus(d_ij) + mean_D softplus(-d_ij) + lam (tr(Lam P^-1) - log det(Lam P^-1) - p)
    d_ij = (k_i - k_j)' T Lam T' (k_i - k_j),  T' K T = I,  Lam positive definite

k_i is column i of the kernel matrix K, and P is the prior, by default the identity.
"""

from __future__ import annotations

from typing import Any

from ...estimators.base import FromPairs, KernelMetric, Workspace
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.kernels import Kernel
from ...numerics.optimize import Solution
from ...numerics.types import AnyArray, Array
from .. import stiefel


def kernel_stiefel_spd(
    R: Array, pairs: Pairs | LabelPairs, p: int | None = None, lam: float = 0.01, **settings: Any
) -> Solution:
    """Return L (p, r) on rows R of the kernel map, R R' = K, as `x`; see `KernelStiefelSPDMetric` for the settings."""
    return stiefel.stiefel_spd(R, pairs, p, lam, **settings)


class KernelStiefelSPDMetric(FromPairs, KernelMetric):
    """Learn a projection of the feature space of a kernel and a metric on it jointly, from pairs.

    Parameters
    ----------
    n_components : int, optional
        Number p of dimensions of the learned space. By default, the rank of the kernel map, at most 16 (not from the
        paper).
    lam : float
        Weight of the Burg divergence of Lam from the prior, above 0. The default is not from the paper.
    prior : array-like of shape (p, p), optional
        Prior P, in units in which the mean squared distance of the pairs is 1 (see `scale_`). By default, the
        identity.
    bias : float
        Threshold u on the squared distance d, in the same units: similar pairs should have d < u, and dissimilar pairs
        d > u. The paper uses 0.
    init : {"discriminant", "pca", "random"}
        Initial directions.
    n_pairs : "all", int or None
        Pairs to make from labels: "all" uses every pair, an integer draws that many pairs of each kind (similar and
        dissimilar), and None draws 20 c^2 pairs of each kind for c classes, at most 500,000. If fewer exist, all of
        them are used.
    kernel : str or callable
        "rbf", "linear", "polynomial", "laplacian", "cosine", "precomputed", or a function that takes two sets of rows
        and returns the matrix of their kernel values.
    gamma : float, optional
        Coefficient of the kernel. By default, 1 / (median squared distance), for "laplacian" 1 / (median city-block
        distance), and for the other kernels 1 / d.
    degree, coef0 : float
        Degree and constant term of the polynomial kernel.
    landmarks : int or None
        Number of rows drawn to span the feature space (Nystroem approximation). The cost grows with the square of this
        number. None uses all rows.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when the largest entry of the gradient falls below ``tol * max(1, |objective|)``.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that draws the pairs, the landmarks and the components of
        ``init="random"``.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, p)
        Coefficients of the map in the rows that span the feature space: a point maps to k(x)' dual_coef_.
    stiefel_ : ndarray of shape (r, p)
        Projection V in the coordinates of the kernel map: T = B V, where B is the basis of the map.
    spd_ : ndarray of shape (p, p)
        Metric Lam.
    scale_ : float
        Root mean square distance of the pairs in the feature space.
    objective_ : float
        Value of the objective.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Harandi, Salzmann & Hartley, "Joint dimensionality reduction and metric learning: A geometric take", ICML 2017,
    section 4. The linear method is applied to the empirical kernel map. The default of 2000 landmarks is not from the
    paper.

    The objective is not convex, and the search ends in a local optimum. With a `prior`, a random start may reach a
    lower value.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        lam: float = 0.01,
        prior: AnyArray | None = None,
        bias: float = 0.0,
        init: str = "discriminant",
        n_pairs: int | str | None = None,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        landmarks: int | None = 2000,
        max_iter: int = 500,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.prior = prior
        self.bias = bias
        self.init = init
        self.n_pairs = n_pairs
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
        settings = self._settings("lam", "prior", "bias", "init") | self._search()
        return kernel_stiefel_spd(R, pairs, self.n_components, last=work.start(), seed=self.random_state, **settings)
