"""Metrics with random weights on fixed directions: M = V diag(g) V', g ~ N(mean, cov).

    |x - y|^2 = g' w,  w_k = ((x - y)' v_k)^2

Directions are principal ones, scaled so that the mean squared distance of two rows is 1 at g = (1, ..., 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import truncnorm

from ...fit_warnings import nameless
from ...numerics import checks, constraints, scatter
from ...numerics.constraints import generator
from ...numerics.types import AnyArray, Array, Ints, Seed


def unit_principal(X: Array, k: int) -> Array:
    """Return V (d, k), the k directions of largest variance, divided by the root mean square distance along them."""
    w, V = scatter.axes(X, k)
    # the mean squared distance of two rows along the directions is twice the sum of their variances
    unit = 2 * float(np.maximum(w, 0).sum()) / max(len(X) - 1, 1) or 1.0
    return V / np.sqrt(unit)


def squares(Z: Array, i: Ints, j: Ints) -> Array:
    """Return w (m, k) of the pairs (i, j) of projected rows Z = X V."""
    return (Z[i] - Z[j]) ** 2


def entries(value: AnyArray | float, n: int, name: str) -> Array:
    """Return n finite entries, given one by one or as one number for all; raise a ValueError otherwise."""
    needs = f"{name} must be a finite number or {n} of them"
    found = checks.table(value, needs)
    if found.shape not in ((), (n,)) or not np.isfinite(found).all():
        raise ValueError(f"{needs}; got {value!r}")
    return np.broadcast_to(found, (n,)).copy()


def components(V: Array, mean: Array) -> Array:
    """Return L with L' L = V diag(max(mean, 0)) V'."""
    return np.sqrt(np.maximum(mean, 0))[:, None] * V.T


class RandomWeights:
    """Methods for uncertainty, for learners with a Gaussian posterior over the weights of directions.

    Attributes
    ----------
    basis_ : ndarray of shape (d, k)
        Directions, as columns of V.
    posterior_mean_ : ndarray of shape (k,)
        Posterior mean of the weights. Entries beyond the first k belong to other parameters.
    posterior_cov_ : ndarray of shape (k, k)
        Posterior covariance of the weights. Rows and columns beyond the first k belong to other parameters.
    """

    basis_: Array
    posterior_mean_: Array
    posterior_cov_: Array
    _rows: Any
    transform: Any

    def _directions(self) -> Array:
        """Return V; raise the NotFittedError of `transform` before a fit."""
        if not hasattr(self, "basis_"):
            self.transform(np.zeros((1, 1)))
        return self.basis_

    def pair_features(self, pairs: AnyArray, X: AnyArray | None = None) -> Array:
        """Return w (m, k) of pairs of points (m, 2, d), or of pairs of row numbers (m, 2) of X."""
        V = self._directions()
        if X is None:
            points = np.asarray(pairs)
            if points.ndim != 3 or points.shape[1] != 2:
                raise ValueError(f"pairs must have shape (m, 2, d), or (m, 2) with X=; got shape {points.shape}")
            with nameless():
                a = np.asarray(self._rows(points[:, 0], reset=False), np.float64)
                b = np.asarray(self._rows(points[:, 1], reset=False), np.float64)
            return ((a - b) @ V) ** 2
        Z = np.asarray(self._rows(X, reset=False), np.float64) @ V
        i, j = constraints.check_indices(pairs, 2, len(Z), "pairs").T
        return squares(Z, i, j)

    def sample_metric(self, n: int = 1, random_state: Seed = None) -> Array:
        """Draw metrics from the posterior, with negative weights set to 0.

        Parameters
        ----------
        n : int
            Number of metrics to draw.
        random_state : int, RandomState, Generator or None
            Seed of the generator that draws them.

        Returns
        -------
        ndarray of shape (n, d, d)
            Positive semi-definite matrices.
        """
        V = self._directions()
        k = V.shape[1]
        draw = generator(random_state).multivariate_normal
        g = draw(self.posterior_mean_[:k], self.posterior_cov_[:k, :k], size=n, method="cholesky")
        return np.matmul(V * np.maximum(g, 0)[:, None], V.T)  # V diag(max(g, 0)) V', (n, d, d)

    def distance_distribution(self, pairs: AnyArray, X: AnyArray | None = None) -> Any:
        """Return the posterior distribution of the squared distance of each pair, N(mean' w, w' cov w) truncated at 0.

        Parameters
        ----------
        pairs : array-like of shape (m, 2), or (m, 2, d)
            Pairs of row numbers of X, or pairs of points.
        X : array-like of shape (n, d), optional
            Rows to which the pairs refer.

        Returns
        -------
        scipy.stats distribution
            A frozen `scipy.stats.truncnorm`, whose ``mean()``, ``std()``, ``interval(0.9)``, ``cdf(x)`` and other
            methods return arrays of shape (m,).
        """
        W = self.pair_features(pairs, X)
        k = W.shape[1]
        # g' w ~ N(mean' w, w' cov w)
        mean = W @ self.posterior_mean_[:k]
        deviation = np.sqrt(np.einsum("pk,pk->p", W @ self.posterior_cov_[:k, :k], W))
        deviation = np.maximum(deviation, 1e-12 * np.abs(mean) + 1e-300)
        return truncnorm(np.maximum(-mean / deviation, -1e6), np.inf, loc=mean, scale=deviation)
