"""What metrics near a prior start from: a factor of the prior, and bounds from the distances under it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky

from ...numerics import checks, mahalanobis, psd
from ...numerics.constraints import generator, unrank_same
from ...numerics.pair_differences import pair_squares
from ...numerics.types import AnyArray, Array, Seed

CALIBRATION_PAIRS = 2000  # pairs whose distances calibrate the bounds


def span_setting(learner: Any) -> str | bool:
    """Return the `_span` of a learner with a `prior`: an identity prior is kept outside of the span of the rows."""
    if isinstance(learner.prior, str) and learner.prior == "identity":
        return "full"
    return False


def factor(prior: AnyArray | str, X: Array) -> Array:
    """Return an invertible L0 (d, d) for which L0' L0 is the prior.

    Parameters
    ----------
    prior : "identity", "covariance" or array-like of shape (d, d)
        "covariance" is the inverse covariance of X; a singular covariance is shrunk first, with a warning.
    """
    d = X.shape[1]
    if isinstance(prior, str):
        if prior == "identity":
            return np.eye(d)
        if prior == "covariance":
            return psd.power(psd.regularize_singular(mahalanobis.covariance(X), name="the covariance"), -0.5)
        raise ValueError(f"prior must be 'identity', 'covariance' or a ({d}, {d}) array; got {prior!r}")
    matrix = psd.require_pd(prior, "prior")
    if matrix.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)}; got {matrix.shape}")
    return cholesky(matrix)


def distance_bounds(X: Array, L0: Array, bounds: Any, percentiles: Any, seed: Seed = 0) -> Array:
    """Return bounds (u, l): the user's, or percentiles of squared distances under L0' L0 between different rows.

    The percentiles are over all pairs or 2000 random ones; [1, 1] if all rows are equal.
    """
    if bounds is not None:
        return ordered(bounds, "bounds must be two increasing finite numbers above 0")
    low, high = ordered(percentiles, "percentiles must be two increasing numbers above 0 and at most 100", 100.0)
    n = len(X)
    every = n * (n - 1) // 2
    if every <= CALIBRATION_PAIRS:
        tried = np.arange(every)
    else:
        tried = generator(seed).integers(every, size=CALIBRATION_PAIRS)
    i, j = unrank_same(tried, np.array([n]))
    d2 = pair_squares(X @ L0.T, i, j)
    d2 = d2[d2 > 1e-24 * d2.max(initial=0.0)]  # of different rows
    if len(d2) == 0:
        return np.ones(2)
    return np.percentile(d2, [low, high])


def slack_weight(n_pairs: int) -> float:
    """Return the default weight of each pair's bound relative to the prior: 1, but at most 200 in total."""
    return min(1.0, 200.0 / n_pairs)


def ordered(pair: Any, needs: str, top: float = np.inf) -> Array:
    """Return two finite numbers 0 < u < l <= top, or raise a ValueError with the text of `needs`."""
    found = checks.table(pair, needs)
    if found.shape != (2,) or not np.isfinite(found).all() or not 0 < found[0] < found[1] <= top:
        raise ValueError(f"{needs}; got {pair!r}")
    return found
