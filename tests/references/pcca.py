"""Pairwise constrained component analysis by loops over pairs."""

import math

import numpy as np

TOLERANCE = 1e-3


def objective(L, X, pairs, beta=3.0):
    total = 0.0
    for i, j, s in pairs:
        d = float(np.sum((L @ (X[i] - X[j])) ** 2))
        total += float(np.logaddexp(0, beta * s * (d - 1))) / beta / len(pairs)
    return total


def gradient(L, X, pairs, beta=3.0):
    G = np.zeros((X.shape[1], X.shape[1]))
    for i, j, s in pairs:
        z = X[i] - X[j]
        margin = beta * s * (float(np.sum((L @ z) ** 2)) - 1)
        w = s / (1 + math.exp(-margin)) if margin > -700 else 0.0
        G += w / len(pairs) * np.outer(z, z)
    return 2 * L @ G


def check(learner, X, y):
    pairs = [(i, j, 1 if y[i] == y[j] else -1) for j in range(len(X)) for i in range(j)]
    L = learner.components_
    np.testing.assert_allclose(learner.objective_, objective(L, X, pairs), rtol=1e-9)
    assert (np.diff(learner.history_) <= 1e-12).all()
    assert np.abs(gradient(L, X, pairs)).max() < 0.05 * np.abs(gradient(2 * L, X, pairs)).max()
