"""Local Fisher discriminant analysis (Sugiyama, 2007).

    S_b u = mu S_w u,   S_w = sum_c G_c / n_c,   S_b = sum_c G_c (1/n - 1/n_c) + D / n
    G_c = sum_{i < j in c} A_ij (x_i - x_j)(x_i - x_j)',   A_ij = exp(-|x_i - x_j|^2 / (sigma_i sigma_j))

sigma_i is the distance to the k-th nearest row of the class, and D the sum of (x_i - x_j)(x_i - x_j)' over pairs of
different classes. Distant rows of a class have no affinity, so that a class may consist of several clusters.
"""

from __future__ import annotations

import numpy as np

from ...estimators.base import FromLabels, Mahalanobis, Workspace
from ...neighbors import by_class
from ...numerics import checks, mahalanobis, psd, scatter
from ...numerics.checks import class_sizes
from ...numerics.distances import pair_distances
from ...numerics.optimize import Solution
from ...numerics.types import Array, Ints

KINDS = ("weighted", "orthonormalized", "plain")
AFFINITY_BLOCK_VALUES = 1 << 17  # affinities at a time, which stay in the cache
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
        units do not matter; not so with "orthonormalized", whose directions are orthonormal in the units of X. The
        paper uses none: 0.

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

    def _solve(self, X: Array, labels: Ints, work: Workspace) -> Solution:
        checks.counts(1, n_neighbors=self.n_neighbors)
        checks.one_of(KINDS, embedding_type=self.embedding_type)
        checks.share(("auto",), shrinkage=self.shrinkage)
        X, labels = scatter.known(X, labels)
        return lfda(X, labels, self.n_neighbors, self.n_components, self.embedding_type, self.shrinkage)
