"""Neighborhood components analysis by loops over rows."""

import math

import numpy as np

from .nca_loss import reference as reference  # of the batch loss of the same name

TOLERANCE = 1e-4


def neighbor_probabilities(X, L, i):
    """p_ij of every j."""
    d = [float(np.sum((L @ (X[i] - X[j])) ** 2)) for j in range(len(X))]
    least = min(d[j] for j in range(len(X)) if j != i)
    e = [0.0 if j == i else math.exp(least - d[j]) for j in range(len(X))]
    return [e_j / sum(e) for e_j in e]


def objective(L, X, y, kind="accuracy", reg=0.0):
    total = 0.0
    for i in range(len(X)):
        mates = [j for j in range(len(X)) if j != i and y[j] == y[i]]
        if not mates:
            continue
        p = neighbor_probabilities(X, L, i)
        p_i = sum(p[j] for j in mates)
        total += p_i if kind == "accuracy" else math.log(p_i)
    return total - reg * float(np.sum(L**2))


def gradient(L, X, y, kind="accuracy", reg=0.0):
    """The survey's (101) and (103), term by term."""
    G = np.zeros((X.shape[1], X.shape[1]))
    for i in range(len(X)):
        mates = [j for j in range(len(X)) if j != i and y[j] == y[i]]
        if not mates:
            continue
        p = neighbor_probabilities(X, L, i)
        p_i = sum(p[j] for j in mates)
        for j in range(len(X)):
            outer = np.outer(X[i] - X[j], X[i] - X[j])
            near = (p[j] if kind == "accuracy" else p[j] / p_i) if j in mates else 0.0
            every = p_i * p[j] if kind == "accuracy" else p[j]
            G += (every - near) * outer
    return 2 * L @ G - 2 * reg * L


def check(learner, X, y):
    L = learner.components_
    np.testing.assert_allclose(learner.objective_, objective(L, X, y), rtol=1e-9)
    start = objective(np.eye(X.shape[1]), X, y)
    assert learner.objective_ > start
    slope = np.abs(gradient(L, X, y)).max()
    assert slope < 0.2 * np.abs(gradient(np.eye(X.shape[1]), X, y)).max()
