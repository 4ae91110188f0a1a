"""Kernels, and the empirical kernel map: a kernel method is the linear method on the mapped rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from ..fit_warnings import warn
from . import checks, psd
from .constraints import generator
from .distances import unit_rows
from .types import AnyArray, Array, Seed

Kernel = str | Callable[[Array, Array], Array]

KERNELS = ("linear", "rbf", "polynomial", "laplacian", "cosine", "precomputed")
KERNEL_BLOCK_VALUES = 1 << 20  # kernel values in one block of rows
SLOW_KERNEL_ROWS = 8_000  # rows whose eigenvectors take minutes
COPIES = 4  # memory that computing the eigenvectors takes, in kernel matrices
GAMMA_SAMPLE = 500  # rows from whose distances gamma is computed


def linear(X: Array, Y: Array) -> Array:
    """Return the linear kernel x'y."""
    return X @ Y.T


def rbf(X: Array, Y: Array, gamma: float) -> Array:
    """Return the Gaussian kernel exp(-gamma |x - y|^2)."""
    return decay(cdist(X, Y, "sqeuclidean"), gamma)


def laplacian(X: Array, Y: Array, gamma: float) -> Array:
    """Return the Laplacian kernel exp(-gamma |x - y|_1)."""
    return decay(cdist(X, Y, "cityblock"), gamma)


def decay(d: Array, gamma: float) -> Array:
    """Return exp(-gamma d), which overwrites d."""
    d *= -gamma
    return np.exp(d, out=d)


def polynomial(X: Array, Y: Array, gamma: float, degree: float, coef0: float) -> Array:
    """Return the polynomial kernel (gamma x'y + coef0)^degree."""
    K = X @ Y.T
    K *= gamma
    K += coef0
    return np.power(K, degree, out=K)


def cosine(X: Array, Y: Array) -> Array:
    """Return the cosine similarity x'y / (|x| |y|), which is 0 for a zero row."""
    return unit_rows(X) @ unit_rows(Y).T


def median_gamma(X: Array, kernel: Kernel) -> float:
    """Return 1 / (median distance between different rows), or 1/d.

    The distance is squared for "rbf" and the city-block distance for "laplacian"; other kernels use 1/d.
    """
    if kernel not in ("rbf", "laplacian"):
        return 1.0 / X.shape[1]
    rows = np.arange(len(X))
    if len(X) > GAMMA_SAMPLE:
        rows = generator(0).permutation(len(X))[:GAMMA_SAMPLE]
    distance = "sqeuclidean" if kernel == "rbf" else "cityblock"
    d = pdist(X[rows], distance)
    # many copies of a row would make the median 0
    d = d[d > 0]
    if len(d) == 0:
        return 1.0
    return 1.0 / float(np.median(d))


def gram(X: Array, Y: Array, kernel: Kernel, gamma: float = 1.0, degree: float = 3.0, coef0: float = 1.0) -> Array:
    """Return k(x, y) of every row of X with every row of Y, shape (n, m).

    Parameters
    ----------
    X, Y : ndarray of shape (n, d), (m, d)
        Rows.
    kernel : str or callable
        One of `KERNELS` ("poly" is short for "polynomial"), or a function (X, Y) -> (n, m). With "precomputed", X
        already holds the values.
    gamma, degree, coef0 : float
        Parameters of the kernel.
    """
    if callable(kernel):
        needs = f"kernel must be a function (X, Y) -> ({len(X)}, {len(Y)}) numbers"
        K = checks.table(kernel(X, Y), needs)
        if K.shape != (len(X), len(Y)):
            raise ValueError(f"{needs}; got a result of shape {K.shape}")
        return K
    if kernel == "precomputed":
        return X
    if kernel == "linear":
        return linear(X, Y)
    if kernel == "cosine":
        return cosine(X, Y)
    if kernel == "rbf":
        return rbf(X, Y, gamma)
    if kernel == "laplacian":
        return laplacian(X, Y, gamma)
    if kernel in ("polynomial", "poly"):
        return polynomial(X, Y, gamma, degree, coef0)
    raise ValueError(f"kernel must be a callable or one of {', '.join(KERNELS)}; got {kernel!r}")


class KernelMap(NamedTuple):
    """Empirical kernel map R(x) = k(x)' V w^(-1/2), whose inner products on the landmarks are those of the kernel.

    Attributes
    ----------
    landmarks : ndarray of shape (m,)
        Row numbers of X that span the map: all of them, unless Nystroem landmarks were requested.
    rows : ndarray of shape (n, r)
        R of the training rows. With all landmarks, ``rows @ rows.T`` is the kernel matrix.
    basis : ndarray of shape (m, r)
        V w^(-1/2): ``gram(x, X[landmarks]) @ basis`` is R(x).
    """

    landmarks: AnyArray
    rows: Array
    basis: Array


def kernel_map(
    X: Array,
    kernel: Kernel = "rbf",
    *,
    gamma: float = 1.0,
    degree: float = 3.0,
    coef0: float = 1.0,
    landmarks: int | None = None,
    seed: Seed = 0,
    tol: float = 1e-10,
) -> KernelMap:
    """Return the empirical kernel map of X: K = R R', exactly, or approximately through Nystroem landmarks.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows, or with "precomputed" the (n, n) kernel matrix.
    kernel : str or callable
        Kernel, as for `gram`.
    gamma, degree, coef0 : float
        Parameters of the kernel.
    landmarks : int or None
        Number m of rows drawn to span the map, which costs O(n m^2) instead of O(n^3) and is exact for m = n. None
        uses all rows.
    seed : int, Generator, RandomState or None
        Seed of the random number generator that draws the landmarks.
    tol : float
        Eigenvalues below ``tol * largest`` are dropped.

    Raises
    ------
    ValueError
        The kernel matrix is not symmetric positive semi-definite, or there is no landmark.

    Warns
    -----
    UserWarning
        More than `SLOW_KERNEL_ROWS` rows span the map, which takes minutes and gigabytes of memory.
    """
    n = len(X)
    check_kernel(X, kernel, degree, coef0)
    checks.counts(1, **checks.not_none(landmarks=landmarks))
    m = n if landmarks is None else min(landmarks, n)
    chosen = np.arange(n)
    Z = X
    if m < n:
        chosen = np.sort(generator(seed).permutation(n)[:m])
        Z = X[chosen]
    if m > SLOW_KERNEL_ROWS:
        memory = COPIES * 8 * m**2 / 2**30
        warn(
            f"a kernel on all {m:,} rows takes about {memory:.0f} GB, and time in proportion to the cube of their "
            "number; landmarks=500 computes the map from a sample of 500 rows"
        )

    def values(part: slice) -> Array:
        if kernel == "precomputed":
            return X[part, chosen]
        return gram(X[part], Z, kernel, gamma, degree, coef0)

    if kernel == "precomputed":
        K = Z[:, chosen]
    else:
        K = gram(Z, Z, kernel, gamma, degree, coef0)
    # K = V diag(w) V' of the landmarks, (m, m); with R(z) = k(z)' V w^(-1/2), R R' = K on them
    basis = roots(K, tol)
    if m == n:
        return KernelMap(chosen, K @ basis, basis)
    # the other rows in blocks: the (n, m) matrix of their values is never held
    rows = np.empty((n, basis.shape[1]))
    step = max(1, KERNEL_BLOCK_VALUES // m)
    for a in range(0, n, step):
        rows[a : a + step] = require_finite(values(slice(a, a + step))) @ basis
    return KernelMap(chosen, rows, basis)


def check_kernel(X: Array, kernel: Kernel, degree: float, coef0: float) -> None:
    """Raise a ValueError unless a precomputed kernel is a symmetric matrix, and a polynomial kernel is definite."""
    if kernel == "precomputed":
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel must be a square matrix; got shape {X.shape}")
        require_symmetric(X)
    if kernel in ("polynomial", "poly"):
        checks.above(0, degree=degree)
        checks.at_least(0, coef0=coef0)


def roots(K: Array, tol: float) -> Array:
    """Return V w^(-1/2) of a kernel matrix K = V diag(w) V', without the eigenvalues below ``tol * largest``."""
    require_symmetric(K)
    w, V = psd.spectrum(K)
    if w[0] <= 0 <= w[-1]:
        raise ValueError("the kernel matrix must not be 0; no two rows differ under this kernel")
    # rounding leaves eigenvalues of this size; a larger one belongs to a function that is no kernel
    if w[-1] < -1e-8 * max(w[0], 0.0):
        raise ValueError(f"the kernel matrix must be positive semi-definite; its smallest eigenvalue is {w[-1]:.3g}")
    keep = w > tol * w[0]
    return V[:, keep] / np.sqrt(w[keep])


def require_symmetric(K: Array) -> None:
    """Raise a ValueError unless the matrix is finite and equals its transpose."""
    apart = float(np.abs(require_finite(K) - K.T).max(initial=0.0))
    if apart > 1e-8 * max(float(np.abs(K).max()), 1e-300):
        raise ValueError(f"the kernel matrix must be symmetric; it differs from its transpose by {apart:.3g}")


def require_finite(K: Array) -> Array:
    """Return the kernel values; raise a ValueError if some are not finite."""
    if not np.isfinite(K).all():
        raise ValueError(f"the kernel matrix must be finite; {int((~np.isfinite(K)).sum())} of its values are not")
    return K
