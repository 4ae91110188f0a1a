"""What a metric that stays near a prior starts from: the prior's factor, and distances under it as bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky

from .. import checks, eig, mahalanobis, psd
from ..constraints import generator, unrank_same
from ..pairs import pair_squares
from ..types import AnyArray, Array, Seed

TRIED = 2000  # pairs whose distances calibrate the bounds


def span_setting(learner: Any) -> str | bool:
    """What a learner with a `prior` says as `_span`: the identity stays what it is outside of the span of the rows."""
    return "identity" if isinstance(learner.prior, str) and learner.prior == "identity" else False


def factor(prior: AnyArray | str, X: Array) -> Array:
    """L0 (d, d), invertible, with L0' L0 the prior.

    Parameters
    ----------
    prior : "identity", "covariance" or array-like of shape (d, d)
        "covariance" stands for the inverse covariance of X; a little is added to a singular one, with a warning.
    """
    d = X.shape[1]
    if isinstance(prior, str):
        if prior == "identity":
            return np.eye(d)
        if prior == "covariance":
            return psd.power(eig.shrunk(mahalanobis.covariance(X), name="the covariance"), -0.5)
        raise ValueError(f"prior must be 'identity', 'covariance' or a ({d}, {d}) array; got {prior!r}")
    matrix = psd.require_pd(prior, "prior")
    if matrix.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)}; got {matrix.shape}")
    return cholesky(matrix)


def distance_bounds(X: Array, L0: Array, bounds: Any, percentiles: Any, seed: Seed = 0) -> Array:
    """(u, l): the user's, or two percentiles of the squared distances under L0' L0 of pairs of different rows.

    Of all pairs, or of 2000 drawn ones; [1, 1] where all rows are equal.
    """
    if bounds is not None:
        return ordered(bounds, "bounds must be two rising finite numbers above 0")
    low, high = ordered(percentiles, "percentiles must be two rising numbers above 0, at most 100", 100.0)
    n = len(X)
    every = n * (n - 1) // 2
    tried = np.arange(every) if every <= TRIED else generator(seed).integers(every, size=TRIED)
    i, j = unrank_same(tried, np.array([n]))
    d2 = pair_squares(X @ L0.T, i, j)
    d2 = d2[d2 > 1e-24 * d2.max(initial=0.0)]
    return np.percentile(d2, [low, high]) if len(d2) else np.ones(2)


def slack_weight(n_pairs: int) -> float:
    """What the bounds of so many pairs weigh beside the prior by default, each: 1, or 200 together."""
    return min(1.0, 200.0 / n_pairs)


def ordered(pair: Any, needs: str, top: float = np.inf) -> Array:
    """Two finite numbers 0 < u < l <= top, or a ValueError that says what is needed."""
    found = checks.table(pair, needs)
    if found.shape != (2,) or not np.isfinite(found).all() or not 0 < found[0] < found[1] <= top:
        raise ValueError(f"{needs}; got {pair!r}")
    return found
