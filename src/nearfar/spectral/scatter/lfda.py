"""Local Fisher discriminant analysis (Sugiyama, 2007).

    S_b u = mu S_w u,   S_w = sum_c G_c / n_c,   S_b = sum_c G_c (1/n - 1/n_c) + D / n
    G_c = sum_{i < j in c} A_ij (x_i - x_j)(x_i - x_j)',   A_ij = exp(-|x_i - x_j|^2 / (sigma_i sigma_j))

sigma_i is the distance to the k-th nearest row of the class, and D the sum of (x_i - x_j)(x_i - x_j)' over pairs of
different classes. Distant rows of a class have no affinity, so that a class may consist of several clusters.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ... import settings
from ...estimators.base import FromLabels, Mahalanobis, Workspace
from ...estimators.validation import error_context
from ...neighbors import by_class
from ...numerics import checks, class_sums, device_arrays, mahalanobis, psd, scatter
from ...numerics.checks import class_sizes
from ...numerics.class_sums import ClassMoments
from ...numerics.distances import pair_distances
from ...numerics.optimize import Solution
from ...numerics.types import Array, Ints

Self = TypeVar("Self", bound="LFDA")

KINDS = ("weighted", "orthonormalized", "plain")
AFFINITY_BLOCK_VALUES = 1 << 17  # affinities at a time, which stay in the cache
DEVICE_BLOCK_VALUES = 1 << 24  # distances of a block on a device
MIN_AFFINITY_ROWS = 64  # least rows of a block
MIN_SIGMA_SHARE = 1e-100  # share of the largest value below which a sigma counts as 0


def lfda(
    X: Array,
    labels: Ints,
    n_neighbors: int = 7,
    n_components: int | None = None,
    kind: str = "weighted",
    shrinkage: float | str = 0.0,
) -> Solution:
    """Return L (p, d) as `x`, for rows that all have a class."""
    S_w, S_b = local_scatters(X, labels, n_neighbors)
    freedom = len(X) - len(class_sizes(labels))
    return local_components(S_w, S_b, freedom, n_components, kind, shrinkage)


def local_components(
    S_w: Array, S_b: Array, freedom: int, n_components: int | None, kind: str, shrinkage: float | str
) -> Solution:
    """Return L (p, d) as `x` from the local scatters (d, d), for rows with so many degrees of freedom."""
    S_w = mahalanobis.regularized(S_w, shrinkage, freedom)
    # S_b u = mu S_w u, the largest mu first; U' S_w U = I
    mu, U = psd.gevd(S_b, S_w, n_components, "shrink", "the local scatter within classes")
    above = mu > 1e-9 * max(mu[0], 0.0)
    if not above.any():
        raise ValueError("X must separate the classes in some direction; all generalized eigenvalues are 0")
    if n_components is None:
        mu = mu[above]
        U = U[:, above]
    if kind == "weighted":
        # directions that separate classes better count more
        U = U * np.sqrt(np.maximum(mu, 0.0))
    elif kind == "orthonormalized":
        U = np.linalg.qr(U)[0]
    return Solution(U.T, objective=float(mu.sum()), attributes={"eigenvalues": mu})


def local_scatters(X: Array, labels: Ints, n_neighbors: int) -> tuple[Array, Array]:
    """Return S_w and S_b, each of shape (d, d), in O(sum_c n_c^2 d)."""
    sizes = class_sizes(labels)
    order = np.argsort(labels, kind="stable")
    S_w = np.zeros((X.shape[1],) * 2)
    S_b = scatter.all_pairs(X, labels).dissimilar / len(X)  # D / n
    sigma = local_scales(X, labels, n_neighbors)
    for n, rows in zip(sizes, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
        if n > 1:
            G = affinity_scatter(X[rows], sigma[rows])
            # S_w = sum_c G_c / n_c and S_b = sum_c G_c (1/n - 1/n_c) + D / n
            S_w += G / n
            S_b += G * (1 / len(X) - 1 / n)
    return S_w, S_b


def local_scales(X: Array, labels: Ints, k: int) -> Array:
    """Return sigma (n,), the distance of each row to the k-th nearest row of its class.

    In smaller classes, it is the distance to the farthest row, and 0 for a row that is alone in its class.
    """
    near = by_class.nearest_of_class(X, labels, k)  # (n, k), -1 where there are fewer
    count = (near >= 0).sum(axis=1)
    rows = np.flatnonzero(count)
    sigma = np.zeros(len(X))
    sigma[rows] = pair_distances(X, X, rows, near[rows, count[rows] - 1])
    return sigma


def affinity_scatter(X: Array, sigma: Array) -> Array:
    """Return G (d, d) of the rows of one class: X' (D - A) X, where D holds the row sums of A, in blocks of rows.

    Each pair is counted once. The exponents of A are one product of rows,

        -|x_i - x_j|^2 / (sigma_i sigma_j) = [2 x_i, -|x_i|^2, -1]'[x_j, 1, |x_j|^2] / (sigma_i sigma_j).

    Rows with a sigma of 0 have affinity only with equal rows, which add nothing to G.
    """
    X = X - X.mean(axis=0)
    there = sigma > MIN_SIGMA_SHARE * np.abs(X).max()
    X = X[there]
    sigma = sigma[there, None]
    one = 1 / sigma
    square = np.sum(X**2, axis=1, keepdims=True) / sigma
    left = np.hstack([2 * X / sigma, -square, -one])
    right = np.hstack([X / sigma, one, square])
    G = np.zeros((X.shape[1],) * 2)
    D = np.zeros(len(X))
    start = 0
    while start < len(X):
        rows = slice(start, start + max(MIN_AFFINITY_ROWS, AFFINITY_BLOCK_VALUES // (len(X) - start)))
        A = left[rows] @ right[start:].T  # (b, n - start): pairs with earlier rows have been counted
        np.exp(np.minimum(A, 0.0, out=A), out=A)
        A[:, : len(A)] /= 2  # the block holds each pair of its own rows twice
        D[rows] += A.sum(axis=1)
        D[start:] += A.sum(axis=0)
        # - X' A X over pairs with i in the block; the other order is the transpose, added at the end
        G -= X[rows].T @ (A @ X[start:])
        start = rows.stop
    return G + G.T + X.T @ (D[:, None] * X)


def device_scatters(X: Any, labels: Ints, sums: ClassMoments, n_neighbors: int) -> tuple[Array, Array]:
    """Return `local_scatters` of rows on a device, computed there, with the sums over their classes."""
    sizes = class_sizes(labels)
    # the scatter within classes is sum_c n_c S_c if each row counts n_c times
    repeated = class_sums.class_sums(X, labels, sizes[labels].astype(np.float64), classes=len(sizes), per_class=False)
    n = len(labels)
    S_w = np.zeros((X.shape[1],) * 2)
    S_b = sums.total - repeated.within / n  # D / n
    for rows in class_sums.class_rows(labels, len(sizes)):
        if len(rows) > 1:
            G = device_affinity_scatter(device_arrays.rows_at(X, rows), n_neighbors)
            S_w += G / len(rows)
            S_b += G * (1 / n - 1 / len(rows))
    return psd.symmetrize(S_w), psd.symmetrize(S_b)


def device_affinity_scatter(X: Any, n_neighbors: int) -> Array:
    """Return `affinity_scatter` of the rows of one class on a device, in blocks of rows.

    The squared distances of a block are computed for the local scales, and again for the affinities.
    """
    xp = device_arrays.namespace_of(X)
    X = device_arrays.in_type(X, device_arrays.widest(X))
    X = X - xp.mean(X, axis=0)
    n = X.shape[0]
    square = xp.sum(X * X, axis=1)
    step = max(MIN_AFFINITY_ROWS, DEVICE_BLOCK_VALUES // n)
    blocks = [slice(a, min(a + step, n)) for a in range(0, n, step)]

    def squares(rows: slice) -> Any:
        """Return the squared distances (b, n) of the rows of a block from all rows."""
        found = square[rows][:, None] + square[None, :] - 2 * (X[rows, :] @ X.T)
        return xp.where(found > 0, found, xp.zeros_like(found))

    # the row itself is the first of its neighbors
    k = min(n_neighbors, n - 1)
    sigma = xp.concat([xp.sqrt(device_arrays.sorted_rows(squares(rows))[:, k]) for rows in blocks])
    there = sigma > MIN_SIGMA_SHARE * xp.max(xp.abs(X))
    scale = xp.where(there, sigma, xp.ones_like(sigma))
    keep = device_arrays.in_type(there, X.dtype)
    G = xp.zeros((X.shape[1], X.shape[1]), dtype=X.dtype, device=X.device)
    for rows in blocks:
        A = xp.exp(-squares(rows) / scale[rows][:, None] / scale[None, :]) * keep[rows][:, None] * keep[None, :]
        D = xp.sum(A, axis=1)[:, None]
        # X' (D - A) X
        G = G + X[rows, :].T @ (D * X[rows, :] - A @ X)
    return device_arrays.to_host(G)


class LFDA(FromLabels, Mahalanobis):
    """Find directions that separate classes and keep nearby rows of the same class together, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Number of dimensions of the learned space. By default, every direction that separates the classes is kept.
    n_neighbors : int
        Number k of the neighbor whose distance sets the local scale sigma_i of each row, at least 1. The default of 7
        is that of the paper. In smaller classes, all rows are used.
    embedding_type : {"weighted", "orthonormalized", "plain"}
        "weighted" multiplies the generalized eigenvectors u by the square roots of their eigenvalues mu,
        "orthonormalized" uses an orthonormal basis of them, and "plain" does not change them: U' S_w U = I.
    shrinkage : float or "auto"
        Share of the scaled identity that is mixed into S_w, in [0, 1], because few rows or many features make its
        inverse uncertain. "auto" adds 0.3 tr(S_w) / (n - c) to its diagonal for n rows of c classes, as if the identity
        had been seen in 0.3 rows for each feature. Columns are first divided by their standard deviation, so that their
        units do not matter, and if there are no more rows than columns, multiplied by the root of the share of their
        variance that the classes explain. Not so with "orthonormalized", whose directions are orthonormal in the units
        of X. The paper uses none: 0.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Linear map L of the metric: the distance is |L (a - b)|.
    eigenvalues_ : ndarray of shape (k,)
        Generalized eigenvalues mu, in decreasing order.
    objective_ : float
        Sum of the eigenvalues.

    Notes
    -----
    Sugiyama, "Dimensionality reduction of multimodal labeled data by local Fisher discriminant analysis", JMLR 8,
    2007.

    Rows without a label are ignored. Rows that coincide with their k-th neighbor have affinity 1 with equal rows and 0
    with other rows. The computation takes O(sum_c n_c^2 d) time for classes of n_c rows, in blocks of rows.
    """

    _span = True
    _fits_on_device = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 7,
        embedding_type: str = "weighted",
        shrinkage: float | str = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.embedding_type = embedding_type
        self.shrinkage = shrinkage

    @property
    def _in_deviations(self) -> bool:
        return self.shrinkage == "auto" and self.embedding_type != "orthonormalized"

    def _weighs_columns(self, n: int, d: int) -> bool:
        return n <= d  # with more rows, a class may have several clusters, which its mean does not show

    def _fit(self: Self, X: Any, y: Any = None, **given: Any) -> Self:
        if not device_arrays.is_device_array(X):
            return super()._fit(X, y, **given)
        with error_context(self):
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            settings.check_settings(self)
            self._check_settings()
            X, known, labels = self._coded(X, device_arrays.to_host(y), given.get("unlabeled"))
            checks.require_discrete(known)
            checks.require_classes(labels)
            labeled = np.flatnonzero(labels >= 0)
            self._fit_on_device(device_arrays.rows_at(X, labeled), labels[labeled])
        return self

    def _fit_on_device(self, X: Any, labels: Ints) -> None:
        """Compute the local scatters of rows that all have a class where they are, and solve and store on the host."""
        d = X.shape[1]
        dtype = device_arrays.host_type(X)
        sums = class_sums.class_sums(X, labels, classes=int(labels.max()) + 1, per_class=False)
        units = None
        if self._has_units and self._in_deviations:
            units = self._units_of_sums(sums)
            sums = sums.divided(units)
            X = device_arrays.in_type(X, device_arrays.widest(X)) / device_arrays.on_device_of(X, units)
        S_w, S_b = device_scatters(X, labels, sums, self.n_neighbors)
        basis = None
        if d > sums.n:
            basis = sums.span()
            S_w = basis @ S_w @ basis.T
            S_b = basis @ S_b @ basis.T
        spread = np.sqrt(np.diag(sums.total) / sums.n) if basis is None else np.ones(len(basis))
        work = Workspace(np.stack([-spread, spread]), basis=basis, units=units)
        self._check_search(work, features=d)
        freedom = int(sums.n) - len(sums.count)
        found = local_components(
            S_w, S_b, freedom, n_components=self.n_components, kind=self.embedding_type, shrinkage=self.shrinkage
        )
        self._store(found, work, dtype=dtype)
        self._training_marks = None

    def _check_settings(self) -> None:
        checks.counts(1, n_neighbors=self.n_neighbors)
        checks.one_of(KINDS, embedding_type=self.embedding_type)
        checks.share(("auto",), shrinkage=self.shrinkage)

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        self._check_settings()
        X, labels = scatter.known(X, labels)
        return lfda(
            X,
            labels,
            n_neighbors=self.n_neighbors,
            n_components=self.n_components,
            kind=self.embedding_type,
            shrinkage=self.shrinkage,
        )
