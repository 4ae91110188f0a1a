"""Bayesian metric learning from pairs (Yang, Jin & Sukthankar, 2007).

    P(s_ij | theta) = sigma(-s_ij theta' w_ij),  theta = (g, mu) ~ N(theta0, I / delta)
    w_ij = [((x_i - x_j)' v_1)^2, ..., ((x_i - x_j)' v_K)^2, -1],  M = V diag(g) V'

v_1, ..., v_K are the principal directions, and mu is the squared distance at which a pair is similar or dissimilar with
equal probability. The posterior q(theta) = N(m, C) maximizes a lower bound of the evidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimators.base import FromPairs, Mahalanobis, Workspace, error_context
from ...numerics import checks, constraints
from ...numerics.constraints import LabelPairs, Pairs
from ...numerics.optimize import Report, Solution
from ...numerics.types import AnyArray, Array
from . import variational, weighted_directions
from .variational import Answers, Gaussian
from .weighted_directions import RandomWeights


def bayesian_pair_metric(
    X: Array,
    pairs: Pairs,
    V: Array,
    theta0: Array,
    delta: float = 1.0,
    *,
    start: Gaussian | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Solution:
    """Return the posterior mean (K + 1,) as `x`, with ``attributes["cov"]``, for V (d, K); see `BayesianPairMetric`."""
    W = augmented(weighted_directions.squares(X @ V, pairs.i, pairs.j))
    data = Answers(W, pairs.sign, pairs.weights)
    xi = None
    if start is not None:
        xi = variational.spread(W, start)
    return variational.logistic_posterior(data, theta0, delta, xi=xi, max_iter=max_iter, tol=tol, report=report)


def augmented(W: Array) -> Array:
    """Return W with a last column of -1, the coefficient of the threshold."""
    return np.hstack([W, -np.ones((len(W), 1))])


class BayesianPairMetric(RandomWeights, FromPairs, Mahalanobis):
    """Learn a distribution over metrics, and over the distance at which pairs stop being similar.

    Parameters
    ----------
    n_components : int, optional
        Number of principal directions. By default, the number of features, but at most 50.
    prior_mean : float or array-like of shape (n_components + 1,)
        Prior mean theta0 of the weights of the directions, followed by that of the threshold; a number is used for all
        of them. The directions are scaled so that weights of 1 give two rows a mean squared distance of 1.
    prior_precision : float
        Precision delta of the prior, above 0.
    n_pairs : int or None
        Number of similar pairs, and of dissimilar pairs, to draw from labels. If None, 20 c^2 of each kind are drawn
        for c classes, at most 500,000.
    max_iter : int
        Maximum number of rounds of variational updates.
    tol : float
        Stop when a round raises the evidence bound by at most ``tol * max(1, |bound|)``.
    warm_start : bool
        Start from the posterior of the previous fit, if it has the same number of directions.
    verbose : bool
        Print progress.
    random_state : int, RandomState, Generator or None
        Seed of the generator that draws pairs from labels.

    Attributes
    ----------
    basis_ : ndarray of shape (d, K)
        Principal directions, as columns of V.
    posterior_mean_ : ndarray of shape (K + 1,)
        Posterior mean m of the weights and of the threshold.
    posterior_cov_ : ndarray of shape (K + 1, K + 1)
        Posterior covariance C.
    components_ : ndarray of shape (K, d)
        Linear map of the mean metric, diag(max(g, 0))^(1/2) V' for the posterior mean g of the weights. Weights below
        0, which the posterior allows, are set to 0.
    objective_ : float
        The evidence lower bound.
    history_ : ndarray
        The bound after each round.
    threshold_ : float
        Distance below which `predict` calls a pair similar: the root of the posterior mean of mu. It is set if pairs
        were given.
    n_iter_ : int
        Number of iterations run.

    Notes
    -----
    Yang, Jin & Sukthankar, UAI 2007.

    A survey prints tanh(xi) where tanh(xi / 2) is needed for a bound, and omits the last entry of w. We do not know the
    paper's K, theta0 and delta. The scale of the directions is our choice. It depends on the rows only, so that every
    refit of an active learner has the same prior.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        prior_mean: AnyArray | float = 1.0,
        prior_precision: float = 1.0,
        n_pairs: int | None = 1000,
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.prior_mean = prior_mean
        self.prior_precision = prior_precision
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(self, X: Array, pairs: Pairs | LabelPairs, work: Workspace) -> Solution:
        checks.above(0, prior_precision=self.prior_precision)
        k = self.n_components or min(X.shape[1], 50)
        theta0 = weighted_directions.entries(self.prior_mean, k + 1, "prior_mean")
        V = weighted_directions.unit_principal(X, k)
        pairs = constraints.written_out(pairs)
        found = bayesian_pair_metric(X, pairs, V, theta0, self.prior_precision, start=self._last(k), **self._search())
        attributes = {"basis": V, "posterior_mean": found.x, "posterior_cov": found.attributes["cov"]}
        return found.with_x(weighted_directions.components(V, found.x[:-1]), attributes=attributes)

    def _last(self, k: int) -> Gaussian | None:
        """Return the posterior of the last fit if `warm_start` is set and it has k directions, else None."""
        if self.warm_start and len(getattr(self, "posterior_mean_", ())) == k + 1:
            return Gaussian(self.posterior_mean_, self.posterior_cov_)
        return None

    def _calibrate(self, X: AnyArray, pairs: Pairs) -> None:
        self.threshold_ = float(np.sqrt(max(self.posterior_mean_[-1], 0.0)))

    def log_odds(self, pairs: AnyArray, X: AnyArray | None = None) -> tuple[Array, Array]:
        """Return the posterior mean and variance of the log-odds theta' w of each pair, positive if it is dissimilar.

        Parameters
        ----------
        pairs : array-like of shape (m, 2), or (m, 2, d)
            Pairs of row numbers of X, or pairs of points.
        X : array-like of shape (n, d), optional
            Rows to which the pairs refer.

        Returns
        -------
        mean : ndarray of shape (m,)
            Posterior means.
        variance : ndarray of shape (m,)
            Posterior variances.
        """
        with error_context(self):
            W = augmented(self.pair_features(pairs, X))
        return variational.law(W, Gaussian(self.posterior_mean_, self.posterior_cov_))

    def pair_probability(self, pairs: AnyArray, X: AnyArray | None = None) -> Array:
        """Return the posterior probability that each pair is similar.

        Parameters
        ----------
        pairs : array-like of shape (m, 2), or (m, 2, d)
            Pairs of row numbers of X, or pairs of points.
        X : array-like of shape (n, d), optional
            Rows to which the pairs refer.

        Returns
        -------
        ndarray of shape (m,)
            Probabilities.
        """
        return variational.expected("probability", *self.log_odds(pairs, X))
