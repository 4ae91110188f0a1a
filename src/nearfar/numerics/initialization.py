"""Starting points of searches for components L (k, d)."""

from __future__ import annotations

import numpy as np

from . import checks, psd, scatter
from .constraints import generator
from .types import AnyArray, Array, Ints, Seed

STARTS = ("auto", "pca", "lda", "identity", "random")
SCALE_SAMPLE = 500  # rows from whose distances the scale of a start is computed


def principal(X: Array, k: int) -> Array:
    """Return the k directions of largest variance as orthonormal rows."""
    return scatter.axes(X, k)[1].T


def discriminant(X: Array, labels: Ints, k: int) -> Array:
    """Return the k directions that separate classes best, scaled so that the within-class covariance is I."""
    n = int((labels >= 0).sum())
    return psd.gevd(scatter.between(X, labels), scatter.within(X, labels) / n, k)[1].T


def start(
    X: Array, labels: Ints | None, init: str | AnyArray, n_components: int | None = None, seed: Seed = 0
) -> Array:
    """Return the components (k, d) from which a search starts.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,) or None
        Class codes, -1 for unknown. Required by "lda".
    init : str or array-like of shape (k, d)
        "identity" uses the first k axes; "pca", the principal directions; "lda", the discriminant directions, scaled
        to unit within-class covariance; "random", independent normal entries. "auto" is "lda" if k is below the number
        of classes, else "pca" if k is below d and n, else "identity". An array holds the components.
    n_components : int or None
        Number k of components. If None, d.
    seed : int, Generator, RandomState or None
        Seed of the random number generator of "random".

    Returns
    -------
    ndarray of shape (k, d)
        Initial components.

    Raises
    ------
    ValueError
        The array has the wrong shape or is not finite.
    """
    n, d = X.shape
    k = d if n_components is None else n_components
    if not isinstance(init, str):
        return checked_start(init, k, d)
    checks.one_of(STARTS, init=init)
    if init == "auto":
        init = chosen_start(labels, k, n, d)
    if init in ("lda", "pca") and d > n:
        V = scatter.data_span(X)  # holds all directions in which X varies, without a (d, d) matrix
        if k <= len(V):
            return start(X @ V.T, labels, init, k) @ V
    if init == "lda":
        if labels is None:
            raise ValueError('init="lda" needs labels; got none, so choose another init')
        return discriminant(X, labels, k)
    if init == "pca":
        return principal(X, k)
    if init == "identity":
        return np.eye(k, d)
    return generator(seed).normal(size=(k, d)) / np.sqrt(d)


def chosen_start(labels: Ints | None, k: int, n: int, d: int) -> str:
    """Return the start that "auto" chooses for k components of n rows with d features."""
    classes = 0 if labels is None else int(labels.max()) + 1
    if k <= min(d, classes - 1):
        return "lda"
    if k < min(d, n):
        return "pca"
    return "identity"


def span_setting(init: str | AnyArray, n_components: int | None, reg: float) -> bool | str:
    """Return the `_span` of a learner whose search may start from the identity, and with `reg` is drawn to 0.

    Outside of the span of the differences between rows, a search then stays at its start, or ends at 0.
    """
    if n_components is not None or not isinstance(init, str) or init not in ("auto", "identity"):
        return False
    return "full" if checks.is_zero(reg) else True


def inside(
    V: Array, X: Array, labels: Ints | None, init: str | AnyArray, n_components: int | None = None, seed: Seed = 0
) -> Array:
    """Return the start (k, r) in coordinates V (r, d) with orthonormal rows; k <= r unless `init` holds components."""
    k = n_components
    d = X.shape[1]
    if not isinstance(init, str):
        rows = d if k is None else k
        return checked_start(init, rows, d) @ V.T
    if k is not None:
        k = min(k, len(V))
    return start(X @ V.T, labels, init, k, seed)


def checked_start(init: AnyArray, k: int, d: int) -> Array:
    """Validate and return the user's components."""
    needs = f"init must be a finite array of shape {(k, d)}"
    L = checks.table(init, needs)
    if L.shape != (k, d) or not np.isfinite(L).all():
        raise ValueError(f"{needs}; got shape {L.shape}")
    return L


def median_scaled(X: Array, L: Array) -> Array:
    """Return L scaled so that the median squared distance between (up to `SCALE_SAMPLE`) different rows is 1."""
    Z = X[:: -(-len(X) // SCALE_SAMPLE)] @ L.T
    unit = 2.0 ** np.frexp(np.abs(Z).max(initial=0.0))[1]  # keeps squares from overflowing or vanishing
    Z = Z / unit
    square = np.einsum("nk,nk->n", Z, Z)
    # |z_i|^2 + |z_j|^2 - 2 z_i'z_j for i < j
    d = (square[:, None] + square - 2 * Z @ Z.T)[np.triu_indices(len(Z), 1)]
    d = d[d > 1e-12 * square.max(initial=0.0)]  # of different rows
    if len(d) == 0:
        return L
    return L / unit / np.sqrt(np.median(d))
