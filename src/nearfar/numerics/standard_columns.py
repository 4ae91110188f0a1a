"""Mean and standard deviation of the columns of rows, by which these are standardized."""

from __future__ import annotations

import numpy as np

from .types import AnyArray


def standard(X: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return mean and standard deviation of every column without its NaN; 1 for a constant column."""
    mean, scale = (each(X, axis=0, dtype=np.float64) for each in (np.nanmean, np.nanstd))
    constant = scale <= 10 * np.finfo(X.dtype).eps * np.abs(mean)
    return mean.astype(X.dtype), np.where(constant, 1, scale).astype(X.dtype)
