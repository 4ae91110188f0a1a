"""Metric learning for kernel regression by loops over pairs of rows."""

import math

import numpy as np

SETTINGS = {"reg": 0.0}
TOLERANCE = 1e-4
EXCEPTIONS = {
    "label names": "targets are numbers, and other numbers are other targets",
    "unknown labels": "-1 is a target like any other",
}


def prediction(X, y, L, i):
    """Weights of all rows in the prediction for row i, and the prediction, from all other rows."""
    d = [float(np.sum((L @ (X[i] - X[j])) ** 2)) for j in range(len(X))]
    least = min(d[j] for j in range(len(X)) if j != i)
    k = [0.0 if j == i else math.exp(least - d[j]) for j in range(len(X))]
    p = [k_j / sum(k) for k_j in k]
    return p, sum(p[j] * y[j] for j in range(len(X)))


def objective(L, X, y):
    return sum(float(np.sum((prediction(X, y, L, i)[1] - y[i]) ** 2)) for i in range(len(X)))


def gradient(L, X, y):
    """2 L sum_ij 2 p_ij (h_i - y_i)(h_i - y_j) x_ij x_ij'."""
    G = np.zeros((X.shape[1], X.shape[1]))
    for i in range(len(X)):
        p, h = prediction(X, y, L, i)
        for j in range(len(X)):
            slope = 2 * float(np.sum((h - y[i]) * (h - y[j]))) * p[j]
            G += slope * np.outer(X[i] - X[j], X[i] - X[j])
    return 2 * L @ G


def check(learner, X, y):
    L, I = learner.components_, np.eye(X.shape[1])
    np.testing.assert_allclose(learner.objective_, objective(L, X, y), rtol=1e-9)
    assert learner.objective_ < 0.9 * objective(I, X, y)
    # steps end, or run out, near a stationary point
    assert np.abs(gradient(L, X, y) @ L.T).max() < 0.05 * np.abs(gradient(I, X, y)).max()
