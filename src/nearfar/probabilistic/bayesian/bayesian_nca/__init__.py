"""Bayesian neighborhood components analysis (Wang & Tan, 2018).

    max_q  E_q[sum_i sum_{j in J_i} log p_ij] - KL(q | N(m0, V0)),  log p_ij by its quadratic bound
    p_ij = exp(-m'u_ij) / sum_{t in N_i} exp(-m'u_it),  u_ij = [((x_i - x_j)' v_l)^2]_l,  M = V diag(m) V'
    q = N(m, V_T),  V_T^-1 = V0^-1 + 1/2 sum_i |J_i| sum_t (u_it - mean_i)(u_it - mean_i)'

N_i holds the k nearest rows of any class, J_i those of them in the class of i; v_l are the principal directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....estimators.base import FromLabels, Mahalanobis, Workspace
from ....fit_warnings import warn
from ....neighbors import nearest
from ....numerics import checks, psd, scatter
from ....numerics.optimize import Report, Solution
from ....numerics.types import AnyArray, Array, Ints
from .. import weighted_directions
from ..variational import Gaussian
from ..weighted_directions import RandomWeights
from . import neighbor_posterior
from .neighbor_posterior import ProjectedNeighbors


def bayesian_nca(
    X: Array,
    labels: Ints,
    V: Array,
    prior: Gaussian,
    n_neighbors: int = 10,
    *,
    start: Array | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the posterior mean (K,) as `x`, with ``attributes["cov"]``, for V (d, K); see `BayesianNCA`."""
    X, labels = scatter.known(X, labels)
    N = nearest.nearest(X, X, n_neighbors, exclude_self=True)[1]
    near = ProjectedNeighbors(X @ V, N, labels[N] == labels[:, None])
    search: dict[str, Any] = {"start": start, "max_iter": max_iter, "tol": tol, "report": report}
    return neighbor_posterior.neighbor_posterior(near, prior, **search)


class BayesianNCA(RandomWeights, FromLabels, Mahalanobis):
    """Learn a distribution over metrics under which near rows have the same class.

    Parameters
    ----------
    n_components : int, optional
        Number of principal directions. By default, the number of features, but at most 50.
    n_neighbors : int
        Number k of nearest rows of any class that are considered for each row, at least 2. They are found once, by
        Euclidean distance in X.
    prior_mean : float or array-like of shape (n_components,)
        Prior mean m0 of the weights of the directions; a number is used for all of them. The directions are scaled so
        that weights of 1 give two rows a mean squared distance of 1.
    prior_cov : float or array-like of shape (n_components, n_components)
        Prior covariance V0; a number is the coefficient of the identity.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when no entry of the gradient is above `tol`, in units of 1 / posterior standard deviation.
    warm_start : bool
        Start from the solution of the previous fit.
    verbose : bool
        Print progress.

    Attributes
    ----------
    basis_ : ndarray of shape (d, K)
        Principal directions, as columns of V.
    posterior_mean_ : ndarray of shape (K,)
        Posterior mean m of the weights.
    posterior_cov_ : ndarray of shape (K, K)
        Posterior covariance V_T of the weights.
    components_ : ndarray of shape (K, d)
        Linear map of the mean metric, diag(max(m, 0))^(1/2) V'. Weights below 0, which the posterior allows, are set to
        0.
    objective_ : float
        The evidence lower bound.
    history_ : ndarray
        The bound after each iteration.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Wang & Tan, IEEE TNNLS 29(7), 2018 (arXiv:1604.02354).

    The paper updates the mean by steps with the fixed matrix V_T, which itself never changes; here L-BFGS, scaled by
    V_T, finds the same maximum. A survey considers only neighbors of the row's own class, which leaves nothing to
    learn, and counts j twice in the normalizer. We do not know the paper's k, K, m0 and V0. Rows without a neighbor of
    their class are used as neighbors only.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        prior_mean: AnyArray | float = 1.0,
        prior_cov: AnyArray | float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.prior_mean = prior_mean
        self.prior_cov = prior_cov
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.counts(2, n_neighbors=self.n_neighbors)
        k = self.n_components or min(X.shape[1], 50)
        V = weighted_directions.unit_principal(X, k)
        prior = self._prior(k)
        start = self._found_before("posterior_mean_", work)
        if start is not None and len(start) != k:
            start = None
        n_neighbors = self._available(int((labels >= 0).sum()))
        found = bayesian_nca(X, labels, V, prior, n_neighbors, start=start, **self._search())
        attributes = {"basis": V, "posterior_mean": found.x, "posterior_cov": found.attributes["cov"]}
        return found.with_x(weighted_directions.components(V, found.x), attributes=attributes)

    def _prior(self, k: int) -> Gaussian:
        """Return the prior of the weights, after validation."""
        mean = weighted_directions.entries(self.prior_mean, k, "prior_mean")
        cov = checks.table(self.prior_cov, f"prior_cov must be a number above 0 or a {(k, k)} matrix")
        if cov.ndim == 0:
            cov = cov * np.eye(k)
        cov = psd.require_pd(cov, "prior_cov")
        if cov.shape != (k, k):
            raise ValueError(f"prior_cov must have shape {(k, k)}; got {cov.shape}")
        return Gaussian(mean, cov)

    def _available(self, n: int) -> int:
        """Return `n_neighbors`, or with a warning the number of other rows if that is smaller."""
        if self.n_neighbors >= n:
            warn(f"n_neighbors={self.n_neighbors} is more than the {n - 1} other rows, all of which are used")
        return min(self.n_neighbors, n - 1)
