"""Rows by class, and in few coordinates that keep all differences, as the methods with margins take them."""

from __future__ import annotations

import numpy as np

from ...numerics import psd, scatter
from ...numerics.types import Array, Ints


def rows_by_class(X: Array, labels: Ints) -> tuple[Array, Ints]:
    """Rows of known class, in the order of their classes."""
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    return X[order], labels[order]


def coordinates(X: Array) -> Array:
    """Return coordinates (r, d), r >= 1, that keep all differences of rows; r < d for few rows or dependent columns."""
    n, d = X.shape
    if d > n:
        V = scatter.data_span(X)
        return V if len(V) else np.eye(1, d)  # no two rows differ
    R = scatter.centered_triangle(X)
    lengths = np.linalg.norm(R, axis=0)
    R = R[:, lengths > 0] / lengths[lengths > 0]  # whatever the units, what a dependent column adds is rounding
    s = np.linalg.svd(R, compute_uv=False)
    if not s.size or s[-1] > n * psd.EPS * s[0]:
        return np.eye(d)
    return scatter.data_span(X)
