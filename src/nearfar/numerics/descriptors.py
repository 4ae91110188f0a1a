"""Descriptors of sets of points, signals and images by one matrix each: a covariance or the basis of a subspace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .types import AnyArray, Array


def set_covariances(sets: Sequence[AnyArray] | AnyArray, shrinkage: float = 1e-3, with_mean: bool = False) -> Array:
    """Return the covariance of each set of points, or of each multivariate signal (whose points are its time steps).

    Parameters
    ----------
    sets : sequence of array-like of shape (m, d)
        Sets of points; m may differ between them.
    shrinkage : float
        Share of the identity, times the mean eigenvalue, that is mixed into each covariance, in [0, 1]. Values above 0
        make every covariance positive definite, unless all points are equal.
    with_mean : bool
        Include the mean of each set: [[C + m m', m], [m', 1]], which is positive definite if C is.

    Returns
    -------
    ndarray of shape (n, d, d), or (n, d + 1, d + 1) with `with_mean`
        Covariances.

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
    # (1 - a) C + a tr(C) / d I
    C = (1 - shrinkage) * C + shrinkage * np.trace(C, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    if not with_mean:
        return C
    m = np.concatenate([means, np.ones((len(means), 1))], axis=1)
    # [[C + m m', m], [m', 1]]
    G = m[:, :, None] * m[:, None, :]
    G[:, :d, :d] += C
    return G


def set_spans(sets: Sequence[AnyArray] | AnyArray, q: int, center: bool = False) -> Array:
    """Return an orthonormal basis of the q leading directions of each set, about its mean with `center`.

    Parameters
    ----------
    sets : sequence of array-like of shape (m, d)
        Sets of points; m may differ between them, but must be at least q.
    q : int
        Number of directions of each set.
    center : bool
        Subtract the mean of each set first.

    Returns
    -------
    ndarray of shape (n, d, q)
        Bases.
    """
    points = [as_points(s, k) for k, s in enumerate(sets)]
    smallest = min(min(p.shape) for p in points)
    if not 1 <= q <= smallest:
        limit = f"{smallest}, the number of points or of dimensions of the smallest set"
        raise ValueError(f"q must be in 1..{limit}; got {q}")
    if center:
        points = [p - p.mean(axis=0) for p in points]
    return np.stack([np.linalg.svd(p, full_matrices=False)[2][:q].T for p in points])


def region_covariances(images: AnyArray, shrinkage: float = 1e-3) -> Array:
    """Return the covariance of pixel features of each image (Tuzel, Porikli & Meer, 2006).

    The features of a pixel are its column, row and value, and the absolute first and second differences along both
    axes.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
        Images with one channel.
    shrinkage : float
        Share of the scaled identity, as for `set_covariances`.

    Returns
    -------
    ndarray of shape (n, 7, 7)
        Covariances.
    """
    I = np.asarray(images, dtype=np.float64)
    if I.ndim != 3 or min(I.shape[1:]) < 2:
        raise ValueError(f"images must have shape (n, height, width), height and width at least 2; got {I.shape}")
    n, h, w = I.shape
    row, column = np.broadcast_arrays(np.arange(h)[:, None] / h, np.arange(w) / w)
    I_y, I_x = np.gradient(I, axis=(1, 2))
    I_yy = np.gradient(I_y, axis=1)
    I_xx = np.gradient(I_x, axis=2)
    place = [np.broadcast_to(p, I.shape) for p in (column, row)]
    F = np.stack([*place, I, np.abs(I_x), np.abs(I_y), np.abs(I_xx), np.abs(I_yy)], axis=-1)
    return set_covariances(F.reshape(n, h * w, 7), shrinkage)


def as_points(points: AnyArray, k: int) -> Array:
    """Validate a set of points and return it as float64 rows."""
    found = np.asarray(points, dtype=np.float64)
    if found.ndim != 2 or len(found) == 0 or not np.isfinite(found).all():
        raise ValueError(f"sets[{k}] must be finite points of shape (m, d), m >= 1; got shape {found.shape}")
    return found
