"""Local Fisher discriminant analysis (Sugiyama, 2007).

    S_b u = mu S_w u,   S_w = sum_c G_c / n_c,   S_b = sum_c G_c (1/n - 1/n_c) + D / n
    G_c = sum_{i < j in c} A_ij (x_i - x_j)(x_i - x_j)',   A_ij = exp(-|x_i - x_j|^2 / (sigma_i sigma_j))

sigma_i: distance to the k-th nearest row of the class; D: the sum of (x_i - x_j)(x_i - x_j)' over pairs of different
classes. Far rows of a class need not come together, so that a class may have several clusters.
"""

from __future__ import annotations

import numpy as np

from ...base import FromLabels, Mahalanobis
from ...core import checks, eig, scatter
from ...core.constraints import class_sizes
from ...core.distances import distance_blocks
from ...core.neighbors import nearest
from ...core.optimize import Solution
from ...core.types import Array, Ints

KINDS = ("weighted", "orthonormalized", "plain")
BLOCK = 1 << 20  # affinities at a time


def lfda(
    X: Array, labels: Ints, n_neighbors: int = 7, n_components: int | None = None, kind: str = "weighted"
) -> Solution:
    """L (p, d) as `x`, for rows of which every one has a class."""
    S_w, S_b = local_scatters(X, labels, n_neighbors)
    mu, U = eig.gevd(S_b, S_w, n_components, "shrink", "the local scatter within classes")
    above = mu > 1e-9 * max(mu[0], 0.0)
    if not above.any():
        raise ValueError("no direction keeps classes apart: their rows lie in each other")
    if n_components is None:
        mu, U = mu[above], U[:, above]
    if kind == "weighted":
        U = U * np.sqrt(np.maximum(mu, 0.0))
    elif kind == "orthonormalized":
        U = np.linalg.qr(U)[0]
    return Solution(U.T, objective=float(mu.sum()), attributes={"eigenvalues": mu})


def local_scatters(X: Array, labels: Ints, n_neighbors: int) -> tuple[Array, Array]:
    """S_w and S_b, each (d, d), in O(sum_c n_c^2 d)."""
    sizes = class_sizes(labels)
    order = np.argsort(labels, kind="stable")
    S_w, S_b = np.zeros((X.shape[1],) * 2), scatter.all_pairs(X, labels).dissimilar / len(X)
    for n, rows in zip(sizes, np.split(X[order], np.cumsum(sizes)[:-1]), strict=True):
        if n > 1:
            G = affine_scatter(rows, min(n_neighbors, n - 1))
            S_w += G / n
            S_b += G * (1 / len(X) - 1 / n)
    return S_w, S_b


def affine_scatter(X: Array, k: int) -> Array:
    """G (d, d) of the rows of one class: X' (D - A) X with the row sums D of A, in blocks of rows."""
    sigma = nearest(X, X, k, exclude_self=True)[0][:, -1]
    G = np.zeros((X.shape[1],) * 2)
    for rows, squares in distance_blocks(X, X, "sqeuclidean", max(1, BLOCK // len(X))):
        scale = sigma[rows, None] * sigma
        A = np.exp(-np.divide(squares, scale, out=np.where(squares > 0, np.inf, 0.0), where=scale > 0))
        G += X[rows].T @ (A.sum(axis=1)[:, None] * X[rows] - A @ X)
    return (G + G.T) / 2


class LFDA(FromLabels, Mahalanobis):
    """Directions in which classes lie apart and rows near to each other within a class stay near, in closed form.

    Parameters
    ----------
    n_components : int, optional
        Default: every direction that keeps classes apart.
    n_neighbors : int
        k; the paper's 7. In a smaller class all of its rows.
    embedding_type : "weighted", "orthonormalized" or "plain"
        The generalised eigenvectors u times the square roots of their mu, an orthonormal basis of them, or as they
        are, with U' S_w U = I.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    eigenvalues_ : ndarray of shape (k,)
        mu, falling.
    objective_ : float
        Their sum.

    Notes
    -----
    Sugiyama, JMLR 8, 2007. Rows of unknown class do not count. Rows that coincide with their k-th neighbour have
    affinity 1 with equal rows and 0 with others. Time is O(sum_c n_c^2 d) for classes of n_c rows, in blocks of them.
    """

    _span = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 7,
        embedding_type: str = "weighted",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.embedding_type = embedding_type

    def _solve(self, X: Array, labels: Ints) -> Solution:
        checks.counts(1, n_neighbors=self.n_neighbors)
        checks.one_of(KINDS, embedding_type=self.embedding_type)
        return lfda(*scatter.known(X, labels), self.n_neighbors, self.n_components, self.embedding_type)
