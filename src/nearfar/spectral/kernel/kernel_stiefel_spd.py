"""Kernel dimensionality reduction and metric learning in one, on Stiefel x SPD (Harandi, Salzmann & Hartley, 2017).

    min_{T, Lam}  mean_S softplus(d_ij) + mean_D softplus(-d_ij) + lam (tr(Lam P^-1) - log det(Lam P^-1) - p)
    d_ij = (k_i - k_j)' T Lam T' (k_i - k_j),  T' K T = I,  Lam positive definite

k_i: column i of the kernel matrix K; P: prior, the identity unless another is given.
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
    """Learn a projection of a kernel's feature space and a metric behind it together, from pairs.

    Parameters
    ----------
    n_components : int, optional
        p. Default (ours): the rank of the kernel map, at most 16.
    lam : float
        Weight of Burg's divergence of Lam from the prior, above 0. Default: ours.
    prior : array-like of shape (p, p), optional
        In units in which the mean squared distance of the pairs is 1 (`scale_`). Default: the identity.
    bias : float
        u, in those units: pairs are told apart at d = u instead of 0.
    init : "discriminant", "pca" or "random"
        Directions of the start.
    n_pairs : int, "all" or None
        Pairs made from labels: this many of each kind, all, or 20 c^2 of each kind for c classes.
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
        On the gradient.
    warm_start, verbose : bool
    random_state : int, RandomState, Generator or None
        Draws pairs, landmarks and a random start.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (m, p)
    stiefel_ : ndarray of shape (r, p)
        V, in coordinates of the kernel map: T = B V with B its basis.
    spd_ : ndarray of shape (p, p)
        Lam.
    scale_ : float
        Root mean square distance of the pairs in the feature space.

    Notes
    -----
    Harandi, Salzmann & Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML 2017,
    section 4. The linear method on the empirical kernel map; 2000 landmarks are not the paper's.
    The objective is not convex, and a search ends in a local optimum: with a `prior` a random start may end lower.
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
