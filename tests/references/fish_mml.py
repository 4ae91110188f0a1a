"""The objective of FISH-MML with n x n kernel matrices, and its fixed point for one view."""

import numpy as np


def between(X, y):
    mean = X.mean(axis=0)
    S = np.zeros((X.shape[1], X.shape[1]))
    for c in set(y):
        rows = X[y == c]
        m = rows.mean(axis=0) - mean
        S += len(rows) / len(X) * np.outer(m, m)
    return S


def objective(P, views, y, lam1, lam2):
    n = len(y)
    H = np.eye(n) - 1 / n
    total = 0.0
    for v, X in enumerate(views):
        S_t = sum(np.outer(x, x) for x in X - X.mean(axis=0)) / n
        total += np.trace(P[v].T @ (between(X, y) + lam1 * S_t) @ P[v])
        for w in range(v):
            K, Q = X @ P[v] @ P[v].T @ X.T, views[w] @ P[w] @ P[w].T @ views[w].T
            total += lam2 * np.trace(K @ H @ Q @ H) / (n - 1) ** 2
    return total


def metric(X, y):
    C = X - X.mean(axis=0)
    V = np.linalg.eigh(between(X, y) + 0.1 * C.T @ C / len(X))[1][:, -(len(set(y)) - 1) :]
    return V @ V.T


def check(learner, X, y):
    P = [L.T for L in learner.view_components_]
    assert np.isclose(learner.objective_, objective(P, [X], y, learner.lam1, learner.lam2))
