"""The precision of rows under a label kernel, from class sums, whose inverse is an information-geometric metric.

    lam X' K_L^-1 X,  K_L = Y Y' + lam I

Y (n, c) holds one-hot labels, or memberships. By Woodbury's identity, this is X'X - X'Y (lam I + Y'Y)^-1 Y'X. For
one-hot rows, it is S_w + sum_c lam n_c / (lam + n_c) mu_c mu_c', with S_w the scatter within classes. No n x n matrix
is formed.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve

from ...numerics import psd, scatter
from ...numerics.checks import class_sizes
from ...numerics.types import AnyArray, Array, Ints


def label_precision(X: Array, labels: AnyArray, lam: float) -> Array:
    """Return lam X' K_L^-1 X (d, d) for codes (n,), where rows with -1 are left out, or memberships (n, c)."""
    if labels.ndim == 2:
        # X'X - X'Y (lam I + Y'Y)^-1 Y'X
        cross = X.T @ labels  # (d, c)
        inner = lam * np.eye(labels.shape[1]) + labels.T @ labels
        return psd.symmetrize(X.T @ X - cross @ solve(inner, cross.T))
    X, labels = scatter.known(X, labels)
    n = class_sizes(labels)
    means = scatter.class_means(X, labels)
    return precision_of_sums(scatter.deviations(X, labels, means), n, means, lam)


def degrees_of_freedom(labels: AnyArray) -> int:
    """Return the number of rows less that of classes, for codes (n,) or memberships (n, c)."""
    if labels.ndim == 2:
        return labels.shape[0] - labels.shape[1]
    known = labels[labels >= 0]
    return len(known) - len(np.unique(known))


def precision_of_sums(within: Array, n: Array | Ints, means: Array, lam: float) -> Array:
    """Return `label_precision` of one-hot labels from the scatter within classes (d, d), sizes n (c,), means (c, d)."""
    return within + (means.T * (lam * n / (lam + n))) @ means


def inverse_metric(B: Array, lam: float, repeats: int = 0) -> tuple[Array, float]:
    """Return L with L' L = M = (B / lam)^-1, and the minimum tr(M^-1 M) - log det M.

    The last coordinate represents `repeats` more, along which B is the same.
    """
    B = psd.regularize_singular(B / lam, name="the precision of the rows")
    w, V = psd.spectrum(B)
    value = len(B) + np.log(w).sum() + repeats * (1 + np.log(B[-1, -1]))
    return (V / np.sqrt(w)).T[::-1], float(value)
