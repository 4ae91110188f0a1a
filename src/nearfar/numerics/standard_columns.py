"""Mean and standard deviation of the columns of rows, by which these are standardized.

A column is constant if its deviation is no more than the rounding of its mean, as that of 0.3 and 0.1 + 0.2. It is not
scaled, because its rounding errors would become as large as what other columns measure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .types import AnyArray, Array, Bools

ROUNDING_SHARE = 1e-12
"""Share of its mean that a column deviates from it by the rounding of a few sums in double precision."""


def constant(deviations: AnyArray, means: AnyArray, dtype: Any = np.float64) -> Bools:
    """Return which columns are constant but for rounding (d,), from their deviations and means (d,).

    >>> constant(np.array([1e-17, 1e-17]), np.array([0.3, 1e-16]))
    array([ True, False])
    """
    share = max(ROUNDING_SHARE, 10 * float(np.finfo(dtype).eps))
    least = np.maximum(share * np.abs(means), np.finfo(np.float64).tiny)
    found: Bools = deviations <= least
    return found


def moments(X: AnyArray) -> tuple[Array, Array]:
    """Return mean and standard deviation (d,) of every column without its NaN; 1 for a constant column."""
    mean, scale, _ = moments_and_constant(X)
    return mean, scale


def moments_and_constant(X: AnyArray) -> tuple[Array, Array, Bools]:
    """Return `moments`, and which columns are constant (d,)."""
    rows = np.asarray(X, dtype=np.float64)  # nanstd squares in the precision of its rows, whatever its dtype
    mean = np.nanmean(rows, axis=0)
    scale = np.nanstd(rows, axis=0)
    flat = constant(scale, mean, X.dtype)
    return mean, np.where(flat, 1.0, scale), flat


def standard(X: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return what `moments` returns in the precision of the rows."""
    mean, scale = moments(X)
    return mean.astype(X.dtype), scale.astype(X.dtype)


def standardized(X: AnyArray) -> tuple[AnyArray, Array, Array]:
    """Return rows of mean 0 and standard deviation 1 (n, d), and `moments`; constant columns become 0.

    Their rounding errors are gone, so that whoever scales the rows again finds nothing to scale.
    """
    mean, scale, flat = moments_and_constant(X)
    rows = (X - mean) / scale
    rows[:, flat] = 0
    return rows.astype(X.dtype), mean, scale
