"""Maximally collapsing metric learning by loops over rows."""

import math

import numpy as np

SETTINGS = {"max_iter": 500}
TOLERANCE = 2e-3  # the optimum is found up to a duality gap of 1e-6, which leaves M less exact


def objective(M, X, y):
    """sum_i KL(p0_i || p_i)."""
    total = 0.0
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        mates = [j for j in others if y[j] == y[i]]
        if not mates:
            continue
        d = {j: float((X[i] - X[j]) @ M @ (X[i] - X[j])) for j in others}
        normalizer = np.logaddexp.reduce([-d[j] for j in others])
        for j in mates:
            total += (math.log(1 / len(mates)) + d[j] + normalizer) / len(mates)
    return total


def gradient(M, X, y):
    G = np.zeros_like(M)
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        mates = [j for j in others if y[j] == y[i]]
        if not mates:
            continue
        d = np.array([(X[i] - X[j]) @ M @ (X[i] - X[j]) for j in others])
        p = np.exp(d.min() - d) / np.exp(d.min() - d).sum()
        for j, p_j in zip(others, p, strict=True):
            G += ((1 / len(mates) if y[j] == y[i] else 0.0) - p_j) * np.outer(X[i] - X[j], X[i] - X[j])
    return G


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    np.testing.assert_allclose(learner.objective_, objective(M, X, y), rtol=1e-9)
    G = gradient(M, X, y)
    assert learner.converged_
    assert -1e-12 <= learner.duality_gap_ <= 1e-6 * max(1, learner.objective_)
    scale = np.abs(G).max()
    assert np.linalg.eigvalsh(G)[0] >= -1e-3 * scale
    assert abs(np.sum(M * G)) <= 1e-6 * max(1, learner.objective_)
