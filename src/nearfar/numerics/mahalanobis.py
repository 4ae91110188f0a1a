"""Mahalanobis distances between points, from points to sets, and between sets (Mahalanobis, 1936; McLachlan, 1999)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..fit_warnings import warn
from . import psd, scatter
from .types import AnyArray, Array, Ints

PRIOR_ROWS = 0.3  # rows for each feature that the scaled identity counts as, for the shrinkage "auto"
LEAST_SHARE = 0.02  # of the largest `class_shares`, which the others have at least
FEWEST_OF_CLASS = 3  # rows of a class, on the mean, that `class_shares` needs


def covariance(X: AnyArray, assume_centered: bool = False) -> Array:
    """Return the unbiased covariance X_c' X_c / (n - 1), shape (d, d), or X' X / n if the rows are already centered."""
    X = np.asarray(X, dtype=np.float64)
    if assume_centered:
        return X.T @ X / len(X)
    if len(X) < 2:
        raise ValueError(f"X must hold at least 2 points for a covariance; got {len(X)}")
    C = X - X.mean(axis=0)
    return C.T @ C / (len(X) - 1)


def pooled_covariance(sets: Sequence[AnyArray]) -> Array:
    """Return the pooled covariance sum_l (n_l - 1) Sigma_l / (n - c) of c sets of points with their own means."""
    n = sum(len(points) for points in sets)
    if n <= len(sets):
        raise ValueError(f"sets must hold one of at least 2 points; got {n} points in {len(sets)} sets")
    several = [points for points in sets if len(points) > 1]
    return np.sum([(len(p) - 1) * covariance(p) for p in several], axis=0) / (n - len(sets))


def shrink(C: Array, shrinkage: float, features: int | None = None) -> Array:
    """Return the shrunk covariance (1 - shrinkage) C + shrinkage tr(C) / d I for d features, by default those of C."""
    return (1 - shrinkage) * C + shrinkage * np.trace(C) / (features or len(C)) * np.eye(len(C))


def regularized(C: Array, shrinkage: float | str, freedom: float, features: int | None = None) -> Array:
    """Return the covariance with a share of the scaled identity, or for "auto" C + 0.3 tr(C) / freedom I.

    The latter is the covariance under a prior (inverse Wishart) that counts as much as 0.3 rows for each feature, up to
    its size. It is the same in the span of the rows and in all their columns.

    Parameters
    ----------
    C : ndarray of shape (d, d)
        Covariance.
    shrinkage : float or "auto"
        Share of the scaled identity.
    freedom : float
        Number of degrees of freedom of C: rows less estimated means.
    features : int, optional
        Number of features, if C is the covariance in coordinates of the rows. By default, d.
    """
    if shrinkage != "auto":
        return shrink(C, float(shrinkage), features)
    return C + PRIOR_ROWS * np.trace(C) / max(freedom, 1.0) * np.eye(len(C))


def prior_share(d: int, freedom: float) -> float:
    """Return the share of the scaled identity in d features that "auto" stands for: 0.3 d / (0.3 d + freedom)."""
    return PRIOR_ROWS * d / (PRIOR_ROWS * d + max(freedom, 1.0))


def class_shares(sizes: Array | Ints, within: Array, between: Array) -> Array:
    """Return the share of the variance of each standardized column (d,) that the classes explain beyond chance.

    With B and W the mean squares between and within c classes of n rows, it is the intraclass correlation of a row,
    times the reliability of a class mean:

        r = (B - W) / (B + (m - 1) W) (1 - W / B),   m = (n - sum_c n_c^2 / n) / (c - 1)

    No share is below `LEAST_SHARE` of the largest. All are 1 if no column tells the classes apart, and if most classes
    have one or two rows, as groups of similar pairs do, unless there are more columns than rows, most of them noise.

    Parameters
    ----------
    sizes : ndarray of shape (c,)
        Number of rows of each class.
    within, between : ndarray of shape (d,)
        Sums of squares of each column within and between classes, n together; 0 together for a constant column.
    """
    n = float(np.sum(sizes))
    c = len(sizes)
    if c < 2 or n <= c or len(within) < n < FEWEST_OF_CLASS * c:
        return np.ones(len(within))
    W = within / (n - c)
    B = between / (c - 1)
    m = (n - float(np.sum(np.square(sizes))) / n) / (c - 1)
    tells = (B > W) & (within + between > n / 2)  # rounding of a constant column tells nothing
    W = W[tells]
    B = B[tells]
    r = np.zeros(len(within))
    r[tells] = (B - W) / (B + (m - 1) * W) * (1 - W / B)
    if r.max() == 0:
        return np.ones(len(within))
    return np.maximum(r, LEAST_SHARE * r.max())


def shares_of_rows(Z: Array, codes: Ints) -> Array:
    """Return `class_shares` (d,) of standardized rows (n, d) of these groups."""
    codes = np.unique(codes, return_inverse=True)[1]
    sizes = np.bincount(codes)
    Z = Z - Z.mean(axis=0)
    means = scatter.class_means(Z, codes)
    within = np.sum((Z - means[codes]) ** 2, axis=0)
    return class_shares(sizes, within, sizes @ means**2)


def ledoit_wolf(X: Array, S: Array, freedom: int | None = None, features: int | None = None) -> float:
    """Return the Ledoit-Wolf shrinkage (2004) of the covariance S = X'X / n of centered rows, without a copy of X.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Centered rows.
    S : ndarray of shape (d, d)
        Covariance.
    freedom : int, optional
        Number of degrees of freedom of the centered rows. By default, n.
    features : int, optional
        Number of features, if X holds coordinates of the rows. By default, d.
    """
    unit = float(np.trace(S)) / len(S) or 1.0  # without which fourth powers of the rows could overflow or vanish
    square = np.einsum("nd,nd->n", X, X) / unit
    return ledoit_wolf_share(S / unit, float(square @ square) / len(X), freedom or len(X), features)


def ledoit_wolf_share(S: Array, fourth: float, freedom: float, features: int | None = None) -> float:
    """Return `ledoit_wolf` from the mean of |x|^4 over centered rows x."""
    d = features or len(S)
    mean = float(np.trace(S)) / d
    # |S - tr(S) / d I|^2 over all features, and the mean over rows of |x x' - S|^2 divided by their number
    spread = float(np.sum((S - mean * np.eye(len(S))) ** 2)) + (d - len(S)) * mean**2
    error = (fourth - float(np.sum(S**2))) / freedom
    if spread <= 0:
        return 0.0
    return min(max(error, 0.0) / spread, 1.0)


def few_rows(
    X: Array, shrinkage: float | str, freedom: int, scale: float, n_components: int | None
) -> tuple[Array, Array] | None:
    """Return `scale` times the shrunk covariance of X, with fewer rows than features, and its `whitener`, from an SVD.

    Return None if the share of the identity is too small, or if more components than rows are requested.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Centered rows.
    shrinkage : "lw", "oas" or float
        Share of the identity, or how to estimate it.
    freedom : int
        Number of degrees of freedom, as for `ledoit_wolf`.
    scale : float
        Factor of the covariance.
    n_components : int or None
        Number of rows of the whitener.
    """
    n, d = X.shape
    # X'X / n has the eigenvectors V, and its other eigenvalues are 0: no (d, d) matrix is formed
    _, s, V = np.linalg.svd(X, full_matrices=False)
    w = s**2 / n  # eigenvalues of the covariance S other than 0
    mean = w.sum() / d
    if mean == 0:
        return None
    relative = w / mean  # fourth powers of the rows could overflow or vanish
    size = float(relative @ relative)  # |S / mean|^2
    spread = size - d  # |S / mean - I|^2
    if shrinkage == "lw":
        square = np.einsum("nd,nd->n", X, X) / mean
        error = float(square @ square) / n - size
        if spread > 0:
            share = min(max(error, 0.0) / freedom / spread, 1.0)
        else:
            share = 0.0
    elif shrinkage == "oas":
        if spread > 0:
            share = min((size / d**2 + 1) / ((n + 1) * spread / d**2), 1.0)
        else:
            share = 1.0
    else:
        share = float(shrinkage)
    # eigenvalues of scale ((1 - share) S + share tr(S) / d I): v in the span of the rows V, and floor outside of it
    floor = scale * share * mean
    v = scale * (1 - share) * w + floor
    if floor <= 10 * d * psd.EPS * v[0] or (n_components or 0) > len(v):
        return None
    if n_components is not None:
        L = (v[:n_components] ** -0.5)[:, None] * psd.fix_signs(V[:n_components].T).T
    else:
        L = psd.around(V, v**-0.5 - floor**-0.5, floor**-0.5)
    return psd.around(V, v - floor, floor), L


def whitener(C: Array, n_components: int | None = None) -> tuple[Array, int]:
    """Return L with L' L = C^-1, and the rank of C.

    If C is singular, the pseudo-inverse is used, with a warning.

    Returns
    -------
    L : ndarray of shape (d, d) or (n_components, d)
        Symmetric root. With `n_components`, rows for the directions of largest variance.
    rank : int
        Rank of C.
    """
    w, V = psd.spectrum(C)
    r = psd.rank(w)
    if r < len(w):
        hint = "distances along its null directions are 0; use shrinkage to avoid this"
        warn(f"the covariance is singular (rank {r} of {len(w)}): {hint}")
    root = np.zeros(len(w))
    root[:r] = w[:r] ** -0.5
    L = root[:, None] * V.T
    if n_components is None:
        return V @ L, r
    return L[:n_components], r


def point_to_point(x: AnyArray, y: AnyArray, C: Array) -> Array:
    """Return sqrt((x - y)' C^-1 (x - y)) for two points or for two arrays of rows."""
    return np.linalg.norm((np.asarray(x, dtype=np.float64) - y) @ whitener(C)[0].T, axis=-1)


def point_to_set(x: AnyArray, points: AnyArray, shrinkage: float = 0.0) -> Array:
    """Return the distance from x, shape (d,) or (n, d), to the mean of a set (m, d), under the covariance of the set.

    The covariance is decomposed once for all points of x.
    """
    points = np.asarray(points, dtype=np.float64)
    return point_to_point(x, points.mean(axis=0), shrink(covariance(points), shrinkage))


def set_to_set(A: AnyArray, B: AnyArray, shrinkage: float = 0.0) -> float:
    """Return the distance between the means of two sets of rows, under their pooled covariance.

    Its square times n_A n_B / (n_A + n_B) is Hotelling's T^2.

    >>> round(set_to_set([[0.0], [2.0]], [[5.0], [7.0]]), 6)
    3.535534
    """
    A = np.asarray(A, dtype=np.float64)
    B = np.asarray(B, dtype=np.float64)
    C = shrink(pooled_covariance([A, B]), shrinkage)
    return float(point_to_point(A.mean(axis=0), B.mean(axis=0), C))
