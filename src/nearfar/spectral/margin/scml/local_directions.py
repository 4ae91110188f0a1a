"""Directions of unit length that separate the classes of a region, or the two kinds of pairs of a few triplets.

    of regions: S_b u = mu S_w u,  of triplets: (S_n - S_p) u = mu u;  mu > 0

S_b and S_w are the scatters between and within classes, with a ridge, of the k rows of each class that are nearest to a
center, for several k. S_p and S_n are the scatters of the positive and of the negative pairs of some triplets.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from ....neighbors.nearest import nearest
from ....numerics import psd, scatter
from ....numerics.checks import class_sizes
from ....numerics.constraints import generator
from ....numerics.pair_differences import squared_distances
from ....numerics.types import Array, Ints, Seed

DIRECTION_RIDGE = 0.1  # share of the mean variance within classes that is added to the variance of every direction
EIGENVALUE_ROUNDING = 1e-10  # share of the largest mu below which mu counts as 0
PASSES = 10  # most times that centers move to the means of their rows
EMPTY_GROUP_TRIES = 10  # consecutive groups of triplets without a direction that end the search


def centers(X: Array, count: int) -> Array:
    """Return points (count, d) spread among the rows of X (n, d), or the rows themselves if there are few.

    Rows far from each other are chosen first, and then replaced by the means of the rows nearest to them. Nothing is
    drawn at random, and the result does not depend on the order of the rows or on the axes.
    """
    if count >= len(X):
        return X
    from_mean = squared_distances(X, X.mean(axis=0, keepdims=True))[:, 0]
    found = X[[int(from_mean.argmin())]]
    far = np.full(len(X), np.inf)
    while len(found) < count:
        # squared distance of each row to the nearest center so far; the farthest row is the next center
        far = np.minimum(far, squared_distances(X, found[-1:])[:, 0])
        found = np.concatenate([found, X[[int(far.argmax())]]])
    for _ in range(PASSES):
        at = nearest(X, found, 1)[1][:, 0]
        used, at = np.unique(at, return_inverse=True)
        means = scatter.class_means(X, at)
        if np.array_equal(means, found[used]):
            break
        found[used] = means
    return found


def of_regions(X: Array, labels: Ints, count: int, sizes: tuple[int, ...]) -> Array:
    """Return at most `count` directions (K, d) from as many regions as needed; all axes if the regions give none.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes, all known.
    count : int
        Maximum number of directions.
    sizes : tuple of int
        Numbers of rows of each class in a region. Every center gives one region of each size.
    """
    c = int(labels.max()) + 1
    each = min(c - 1, X.shape[1])
    points = centers(X, -(-count // (len(sizes) * each)))
    classes = [np.flatnonzero(labels == k) for k in range(c)]
    # for each class, the rows nearest to each point, (points, most rows of a region)
    near = []
    for own in classes:
        width = min(max(sizes), len(own))
        near.append(own[nearest(points, X[own], width)[1]])
    found = []
    for k in sizes:
        rows = np.concatenate([table[:, :k] for table in near], axis=1)
        found += [discriminants(X[i], labels[i], each) for i in rows]
    B = np.concatenate(found)[:count]
    if len(B) == 0:
        return np.eye(X.shape[1])
    return B


def discriminants(X: Array, labels: Ints, p: int) -> Array:
    """Return at most p directions (p', d) along which the classes of a few rows are separated."""
    means = scatter.class_means(X, labels)
    d = X.shape[1]
    S = scatter.deviations(X, labels, means)
    M = np.sqrt(class_sizes(labels)) * (means - X.mean(axis=0)).T  # (d, c), S_b = M M'
    S[np.diag_indices(d)] += DIRECTION_RIDGE * (float(np.trace(S)) or float(np.vdot(M, M)) or 1.0) / d
    if M.shape[1] <= d:
        # S_w^-1 M M' u = mu u  <=>  (M' S_w^-1 M) q = mu q,  u = S_w^-1 M q: of the size of the number of classes
        A = cho_solve(cho_factor(S), M)  # (d, c)
        mu, Q = psd.spectrum(M.T @ A)
    else:
        # S_w = C C'; (C^-1 M M' C'^-1) q = mu q,  u = C'^-1 q: of the size of the number of features
        C = cholesky(S, lower=True)
        W = solve_triangular(C, M, lower=True)  # (d, c)
        mu, Q = psd.spectrum(W @ W.T)
        A = solve_triangular(C, np.eye(d), lower=True, trans="T")  # (d, d)
    U = (A @ Q[:, (mu > EIGENVALUE_ROUNDING * mu[0]) & (mu > 0)]).T[:p]
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def of_triplets(X: Array, triplets: Ints, count: int, seed: Seed) -> Array:
    """Return `count` directions (K, d) from groups of d triplets.

    There are fewer directions if all triplets form one group, and all axes are returned if none is found.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    triplets : ndarray of shape (m, 3)
        Triplets of row numbers.
    count : int
        Number of directions.
    seed : int, Generator, RandomState or None
        Seed of the random number generator that draws the triplets of a group.
    """
    rng = generator(seed)
    d = X.shape[1]
    T = len(triplets)
    found = [np.zeros((0, d))]
    empty = 0
    while sum(map(len, found)) < count and empty < EMPTY_GROUP_TRIES:
        a, p, n = triplets[rng.choice(T, min(d, T), replace=False)].T
        # S_n - S_p of d triplets: directions of positive eigenvalues are longer for negative pairs
        mu, U = psd.spectrum(scatter.weighted_outer(X, a, n) - scatter.weighted_outer(X, a, p))
        found.append(U[:, mu > EIGENVALUE_ROUNDING * np.abs(mu).max()].T)
        if len(found[-1]) > 0:
            empty = 0
        else:
            empty = empty + 1
        # a single group of all triplets; another draw would be the same
        if d >= T:
            break
    B = np.concatenate(found)[:count]
    if len(B) == 0:
        return np.eye(d)
    return B
