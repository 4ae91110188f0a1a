"""Laplacian-regularized kernel by loops: the objective over pairs and edges, constraints, no cheaper kernel near."""

import numpy as np

SETTINGS = {"n_pairs": "all", "q": 59, "n_neighbors": 10}
TOY_SETTINGS = {"n_pairs": 600, "q": 199, "n_neighbors": 10}
TOLERANCE = 1e-4


def edges(X, k=10):
    found = set()
    for i in range(len(X)):
        near = sorted((float(np.sum((X[i] - X[j]) ** 2)), j) for j in range(len(X)) if j != i)[:k]
        found |= {(min(i, j), max(i, j)) for _, j in near}
    return found


def cost(Y, graph, y, lam=0.1):
    """Mean over similar pairs of the squared distance, and lam times its sum over edges."""
    similar = [(i, j) for i in range(len(Y)) for j in range(i) if y[i] == y[j]]
    mean = sum(float(np.sum((Y[i] - Y[j]) ** 2)) for i, j in similar) / len(similar)
    return mean + lam * sum(float(np.sum((Y[i] - Y[j]) ** 2)) for i, j in graph)


def least(Y, y):
    return min(float(np.sum((Y[i] - Y[j]) ** 2)) for i in range(len(Y)) for j in range(i) if y[i] != y[j])


def check(learner, X, y):
    Y, graph = learner.embedding_, edges(X)
    best = cost(Y, graph, y)
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-5)
    assert learner.duality_gap_ <= 1e-6 * best
    np.testing.assert_allclose(least(Y, y), 1, atol=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        other = Y + size * rng.normal(size=Y.shape)
        assert cost(other, graph, y) / least(other, y) > best
