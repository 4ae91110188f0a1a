"""Kullback-Leibler divergences between projected Gaussian classes, and how evenly they are spread.

    K_ab(U) = 1/2 [log det G_b - log det G_a + tr(G_b^-1 (G_a + d_ab d_ab')) - p]
    G_a = U' Sigma_a U,  d_ab = U' (mu_a - mu_b),  U (d, p)

Each K depends on U only through the space that its columns span.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....numerics import mahalanobis, psd, scatter
from ....numerics.constraints import generator
from ....numerics.pair_differences import PairList
from ....numerics.types import Array, Ints, Seed

DIVERGENCE_FLOOR = 1e-12  # added to divergences before their logarithm, because two classes may coincide
PROJECTED_RIDGE = 1e-12  # share of the identity in projected covariances, because columns of U may become parallel
LONG = 50  # features for which products take as long as differences of rows


class GaussianClasses(NamedTuple):
    """Gaussian classes: means (c, d), covariances (c, d, d), sizes (c,)."""

    means: Array
    covs: Array
    sizes: Array

    def mapped(self, A: Array) -> GaussianClasses:
        """Return the classes of the rows A' x."""
        return GaussianClasses(self.means @ A, A.T @ self.covs @ A, self.sizes)


def gaussians(X: Array, labels: Ints, shrinkage: list[float]) -> GaussianClasses:
    """Return mean, covariance and size of each class 0..c-1; each class must have two rows or more.

    Parameters
    ----------
    shrinkage : list of float
        Share of the scaled identity in the covariance of each class. A millionth of the overall variance is added to
        all covariances.
    """
    d = X.shape[1]
    parts = [X[labels == c] for c in range(len(shrinkage))]
    covs = []
    for rows, share in zip(parts, shrinkage, strict=True):
        C = mahalanobis.covariance(rows - rows.mean(axis=0), assume_centered=True)
        covs.append(mahalanobis.shrink(C, share))
    floor = 1e-6 * float(np.trace(scatter.total(X))) / (len(X) * d) or 1.0
    return GaussianClasses(
        scatter.class_means(X, labels),
        np.stack(covs) + floor * np.eye(d),
        np.array([float(len(rows)) for rows in parts]),
    )


def first_directions(Y: Array, labels: Ints, p: int, n_init: int, seed: Seed) -> list[Array]:
    """Return starts U (d, p): most variance between classes, most total variance, and `n_init` random ones."""
    rng = generator(seed)
    d = Y.shape[1]
    between = psd.spectrum(scatter.between(Y, labels))[1]
    total = psd.spectrum(scatter.total(Y))[1]
    drawn = [rng.normal(size=(d, p)) / np.sqrt(d) for _ in range(n_init)]
    return [between[:, :p], total[:, :p], *drawn]


def divergences(U: Array, classes: GaussianClasses) -> Array:
    """Return K (c, c) with K[a, b] = KL(a | b)."""
    # G_a = U' Sigma_a U and B_a = G_a^-1, (c, p, p); projected means U' mu_a, (c, p)
    G = propped(U.T @ classes.covs @ U)
    B: Array = np.linalg.inv(G).astype(np.float64, copy=False)
    return from_projected(G, B, classes.means @ U)


def propped(G: Array) -> Array:
    """Return G (c, p, p) with a tiny share of the identity added."""
    share: Array = PROJECTED_RIDGE / G.shape[1] * np.einsum("cpp->c", G)
    return G + share[:, None, None] * np.eye(G.shape[1])


def from_projected(G: Array, B: Array, m: Array) -> Array:
    """Return K from projected covariances G (c, p, p), their inverses B and projected means m (c, p)."""
    c, p = m.shape
    # 2 K_ab = log det G_b - log det G_a + tr(B_b G_a) + d_ab' B_b d_ab - p
    volume = np.linalg.slogdet(G)[1]
    d = m - m[:, None]  # d[b, a] = m_a - m_b
    traces = G.reshape(c, -1) @ B.reshape(c, -1).T
    apart = np.einsum("bap,bap->ab", d @ B, d)
    return (volume - volume[:, None] + traces + apart - p) / 2


def weighted_gradient(U: Array, W: Array, classes: GaussianClasses) -> Array:
    """Return the gradient of sum_ab W_ab K_ab with respect to U, for W (c, c) that does not depend on U.

    With B_a = G_a^-1, it is sum_a Sigma_a U inner_a plus the part of the means, where

        inner_a = (sum_b W_ba - sum_b W_ab) B_a + sum_b W_ab B_b - B_a [sum_b W_ba (G_b + d_ba d_ba')] B_a.
    """
    SU = classes.covs @ U
    G = propped(U.T @ SU)
    m = classes.means @ U
    B = np.linalg.inv(G)
    d = m - m[:, None]  # d[b, a] = m_a - m_b
    pull = W.T[:, :, None] * (d @ B)
    spread = np.einsum("ab,apq->bpq", W, G) + np.swapaxes(W.T[:, :, None] * d, 1, 2) @ d
    out = W.sum(axis=1)[:, None, None]
    into = W.sum(axis=0)[:, None, None]
    inner = (into - out) * B + np.einsum("ab,bpq->apq", W, B) - B @ spread @ B
    return (SU @ inner).sum(axis=0) + classes.means.T @ (pull.sum(axis=0) - pull.sum(axis=1))


def balance(U: Array, classes: GaussianClasses, alpha: float) -> tuple[float, Array]:
    """Return the mean over ordered pairs of classes of log e_ab + alpha log K_ab, and its gradient with respect to U.

    e_ab is the share of n_a n_b K_ab in its sum over pairs. The first part has its maximum, -log(c (c - 1)), if all
    n_a n_b K_ab are equal, and does not depend on a common factor of all K.
    """
    c = len(classes.sizes)
    off = ~np.eye(c, dtype=bool)
    K = np.where(off, divergences(U, classes) + DIVERGENCE_FLOOR, 1.0)
    size = np.where(off, np.outer(classes.sizes, classes.sizes), 0.0)
    total = float(np.vdot(size, K))
    logs = np.log(K)
    value = float((logs + np.log(np.where(off, size, 1.0)))[off].mean() - np.log(total) + alpha * logs[off].mean())
    # derivative of the value with respect to K_ab
    W = np.where(off, (1 + alpha) / (c * (c - 1) * K) - size / total, 0.0)
    return value, weighted_gradient(U, W, classes)


class MeanDistance:
    """Mean of |U' (x_i - x_j)| over pairs of rows, smoothed at 0, and its gradient with respect to U.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    i, j : ndarray of shape (m,)
        Pairs of row numbers.
    """

    def __init__(self, X: Array, i: Ints, j: Ints) -> None:
        rows, ends = np.unique(np.concatenate([i, j]), return_inverse=True)
        first, second = np.split(ends, 2)
        # projecting rows before taking differences is faster if rows are long, and fewer than pairs
        self.pairs: PairList | None = None
        if len(i) * (1 - LONG / X.shape[1]) > len(rows):
            self.pairs = PairList(first, second, len(rows))
            self.X = X[rows]
        else:
            self.X = X[i] - X[j]

    def __call__(self, U: Array) -> tuple[float, Array]:
        # f = mean_m |U' z_m| for m differences z_m, df/dU = sum_m z_m z_m' U / (m |U' z_m|); (d, p)
        Z = self.X @ U
        if self.pairs is None:
            square = np.einsum("mp,mp->m", Z, Z)
        else:
            square = self.pairs.squared_distances(Z)
        distance = np.sqrt(square + 1e-12)
        weight = 1 / (len(distance) * distance)
        if self.pairs is None:
            pull = weight[:, None] * Z
        else:
            pull = self.pairs.laplacian_times(weight, Z)
        return float(distance.mean()), self.X.T @ pull
