"""Kernel LLE-regularised metric by loops: weights row by row, pair scatters, and no better ratio anywhere near."""

import math

import numpy as np

SETTINGS = {"gamma": 0.1, "reg": 0.0, "n_components": 2, "lam": 0.5, "n_neighbors": 10}
TOY_SETTINGS = {"n_neighbors": 10}


def rebuilding(X, k=10, ridge=1e-3):
    """(I - S)'(I - S) from each row's own small system."""
    n, W = len(X), np.eye(len(X))
    for i in range(n):
        near = sorted((float(np.sum((X[i] - X[j]) ** 2)), j) for j in range(n) if j != i)[:k]
        near = [j for _, j in near]
        G = np.array([[float((X[i] - X[a]) @ (X[i] - X[b])) for b in near] for a in near])
        s = np.linalg.solve(G + ridge * np.trace(G) / k * np.eye(k), np.ones(k))
        for j, weight in zip(near, s / s.sum(), strict=True):
            W[i, j] -= weight
    return W.T @ W


def scatters(K, y):
    S, D = [], []
    for i in range(len(K)):
        for j in range(i):
            z = K[i] - K[j]
            (S if y[i] == y[j] else D).append(np.outer(z, z))
    return sum(S) / len(S), sum(D) / len(D)


def check(learner, X, y):
    K = np.array([[math.exp(-0.1 * float(np.sum((a - b) ** 2))) for b in X] for a in X])
    K_S, K_D = scatters(K, y)
    below = K_S + 0.5 * K @ rebuilding(X) @ K / len(X)
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in learner.X_fit_]
    T = np.empty_like(learner.dual_coef_)
    T[order] = learner.dual_coef_
    np.testing.assert_allclose(T.T @ K @ T, np.eye(2), atol=1e-6)
    ratio = np.trace(T.T @ K_D @ T) / np.trace(T.T @ below @ T)
    np.testing.assert_allclose(learner.objective_, ratio, rtol=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 10.0):
        U = T + size * rng.normal(size=T.shape)
        U = U @ np.linalg.inv(np.linalg.cholesky(U.T @ K @ U)).T
        assert np.trace(U.T @ K_D @ U) / np.trace(U.T @ below @ U) < ratio
