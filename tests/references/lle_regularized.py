"""LLE-regularized metric by loops: weights row by row, pair scatters, the ratio by bisection."""

import numpy as np

SETTINGS = {"n_components": 2, "lam": 0.5, "n_neighbors": 10}


def rebuilding(X, k=10, ridge=1e-3):
    """(I - W)'(I - W) from each row's own small system."""
    n, A = len(X), np.eye(len(X))
    for i in range(n):
        near = sorted((float(np.sum((X[i] - X[j]) ** 2)), j) for j in range(n) if j != i)[:k]
        near = [j for _, j in near]
        G = np.array([[float((X[i] - X[a]) @ (X[i] - X[b])) for b in near] for a in near])
        s = np.linalg.solve(G + ridge * np.trace(G) / k * np.eye(k), np.ones(k))
        for j, weight in zip(near, s / s.sum(), strict=True):
            A[i, j] -= weight
    return A.T @ A


def scatters(X, y, lam=0.5):
    S, D = [], []
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            (S if y[i] == y[j] else D).append(np.outer(z, z))
    return sum(S) / len(S) + lam * X.T @ rebuilding(X) @ X / len(X), sum(D) / len(D)


def metric(X, y):
    S_w, S_b = scatters(X, y)
    low, high = 0.0, np.trace(S_b) / np.linalg.eigvalsh(S_w)[:2].sum()
    for _ in range(200):
        ratio = (low + high) / 2
        w, V = np.linalg.eigh(S_b - ratio * S_w)
        low, high = (ratio, high) if w[-2:].sum() > 0 else (low, ratio)
    return V[:, -2:] @ V[:, -2:].T
