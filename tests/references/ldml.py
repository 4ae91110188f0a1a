"""Logistic discriminant metric learning by loops over pairs."""

import math

import numpy as np

SETTINGS = {"max_iter": 500}
TOLERANCE = 1e-4


def terms(X, y):
    """Every pair i < j with its sign."""
    return [(i, j, 1 if y[i] == y[j] else -1) for j in range(len(X)) for i in range(j)]


def objective(M, b, X, pairs):
    total = 0.0
    for i, j, s in pairs:
        d = float((X[i] - X[j]) @ M @ (X[i] - X[j]))
        p = 1 / (1 + math.exp(d - b)) if d - b < 700 else 0.0
        t = 1 if s == 1 else 0
        total -= math.log(p if t else 1 - p) / len(pairs)
    return total


def gradient(M, b, X, pairs):
    """By M, and by b."""
    G, slope = np.zeros_like(M), 0.0
    for i, j, s in pairs:
        z = X[i] - X[j]
        w = s / (1 + math.exp(-s * float(z @ M @ z - b))) / len(pairs)
        G, slope = G + w * np.outer(z, z), slope - w
    return G, slope


def check(learner, X, y):
    M, pairs = learner.get_mahalanobis_matrix(), terms(X, y)
    np.testing.assert_allclose(learner.objective_, objective(M, learner.b_, X, pairs), rtol=1e-7)
    G, slope = gradient(M, learner.b_, X, pairs)
    assert learner.converged_
    assert np.linalg.eigvalsh(G)[0] >= -1e-4
    assert abs(np.sum(M * G)) <= 1e-6
    assert abs(slope) <= 1e-6
