"""Describe sets of points, signals and images by one matrix each: a covariance (positive definite) or a subspace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..deprecation import renamed_settings
from .types import AnyArray, Array


def set_covariances(sets: Sequence[AnyArray] | AnyArray, shrinkage: float = 1e-3, with_mean: bool = False) -> Array:
    """Return the covariance of each set of points, or of each multivariate signal (its moments in time are the points).

    Parameters
    ----------
    sets : sequence of array-like of shape (m, d)
        m may differ.
    shrinkage : float
        In [0, 1]: share of the identity, times the mean eigenvalue, that is mixed in. Above 0 it makes every covariance
        positive definite, unless all points are equal.
    with_mean : bool
        Describe sets by their mean too: [[C + m m', m], [m', 1]], positive definite as C is.

    Returns
    -------
    ndarray of shape (n, d, d), or (n, d + 1, d + 1) with `with_mean`

    Examples
    --------
    >>> set_covariances([[[0.0, 1], [2, 1], [0, 3], [2, 3]]], shrinkage=0.0)
    array([[[1., 0.],
            [0., 1.]]])
    """
    points = [as_points(s, k) for k, s in enumerate(sets)]
    means = np.stack([p.mean(axis=0) for p in points])
    C = np.stack([(p - m).T @ (p - m) / len(p) for p, m in zip(points, means, strict=True)])
    d = C.shape[1]
    C = (1 - shrinkage) * C + shrinkage * np.trace(C, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    if not with_mean:
        return C
    m = np.concatenate([means, np.ones((len(means), 1))], axis=1)
    G = m[:, :, None] * m[:, None, :]
    G[:, :d, :d] += C
    return G


@renamed_settings(centre="center")
def set_spans(sets: Sequence[AnyArray] | AnyArray, q: int, center: bool = False) -> Array:
    """Return for each set an orthonormal basis of its q largest directions (about the set's mean with `center`).

    Parameters
    ----------
    sets : sequence of array-like of shape (m, d)
        m may differ, and is at least q.

    Returns
    -------
    ndarray of shape (n, d, q)
    """
    points = [as_points(s, k) for k, s in enumerate(sets)]
    smallest = min(min(p.shape) for p in points)
    if not 1 <= q <= smallest:
        raise ValueError(f"q must be in 1..{smallest}, the fewest points of a set (or their length); got {q}")
    points = [p - p.mean(axis=0) if center else p for p in points]
    return np.stack([np.linalg.svd(p, full_matrices=False)[2][:q].T for p in points])


def region_covariances(images: AnyArray, shrinkage: float = 1e-3) -> Array:
    """Return the covariance of the pixels' features in each image (Tuzel, Porikli & Meer, 2006).

    Features of a pixel: column, row, value, absolute first and absolute second differences along both axes.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
    shrinkage : float
        As for `set_covariances`.

    Returns
    -------
    ndarray of shape (n, 7, 7)
    """
    I = np.asarray(images, dtype=np.float64)
    if I.ndim != 3 or min(I.shape[1:]) < 2:
        raise ValueError(f"images must have shape (n, height, width), two pixels each way at least; got {I.shape}")
    n, h, w = I.shape
    row, column = np.broadcast_arrays(np.arange(h)[:, None] / h, np.arange(w) / w)
    I_y, I_x = np.gradient(I, axis=(1, 2))
    I_yy = np.gradient(I_y, axis=1)
    I_xx = np.gradient(I_x, axis=2)
    place = [np.broadcast_to(p, I.shape) for p in (column, row)]
    F = np.stack([*place, I, np.abs(I_x), np.abs(I_y), np.abs(I_xx), np.abs(I_yy)], axis=-1)
    return set_covariances(F.reshape(n, h * w, 7), shrinkage)


def as_points(points: AnyArray, k: int) -> Array:
    """Check a set of points and return it as float64 rows."""
    found = np.asarray(points, dtype=np.float64)
    if found.ndim != 2 or len(found) == 0 or not np.isfinite(found).all():
        raise ValueError(f"sets[{k}] must be finite points of shape (m, d), m >= 1; got shape {found.shape}")
    return found
