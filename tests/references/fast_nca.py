"""Fast NCA by loops over rows and their nearest hits and misses."""

import math

import numpy as np

TOLERANCE = 1e-3


def neighbors(X, y, k):
    """Hits and misses of every row."""
    found = []
    for i in range(len(X)):
        order = sorted((j for j in range(len(X)) if j != i), key=lambda j: float(np.sum((X[i] - X[j]) ** 2)))
        found.append(([j for j in order if y[j] == y[i]][:k], [j for j in order if y[j] != y[i]][:k]))
    return found


def probabilities(X, L, i, near):
    e = {j: math.exp(-float(np.sum((L @ (X[i] - X[j])) ** 2))) for j in near}
    total = sum(e.values())
    return {j: v / total for j, v in e.items()}


def objective(L, X, lists, reg=0.0):
    total = -reg * float(np.sum(L**2))
    for i, (hits, misses) in enumerate(lists):
        if hits:
            p = probabilities(X, L, i, hits + misses)
            total += sum(p[j] for j in hits)
    return total


def gradient(L, X, lists, reg=0.0):
    """The published form with hits and misses in their places and the factor 2."""
    G = np.zeros((X.shape[1], X.shape[1]))
    for i, (hits, misses) in enumerate(lists):
        if not hits:
            continue
        p = probabilities(X, L, i, hits + misses)
        p_i = sum(p[j] for j in hits)
        for t in misses:
            G += p_i * p[t] * np.outer(X[i] - X[t], X[i] - X[t])
        for j in hits:
            G += (p_i - 1) * p[j] * np.outer(X[i] - X[j], X[i] - X[j])
    return 2 * L @ G - 2 * reg * L


def check(learner, X, y):
    lists = neighbors(X, y, learner.k)
    np.testing.assert_allclose(learner.objective_, objective(learner.components_, X, lists), rtol=1e-7)
    assert learner.objective_ > objective(np.eye(X.shape[1]), X, lists)
