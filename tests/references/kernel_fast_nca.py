"""Kernel fast NCA by loops: neighbors by distance in feature space, distances through the dual coefficients."""

import math

import numpy as np

from tests.references.kernel_mcml import kernel

SETTINGS = {"gamma": 0.1, "landmarks": None}
TOLERANCE = 1e-3


def objective(T, K, y, k, reg):
    total = -reg * float(np.trace(T.T @ K @ T))
    for i in range(len(K)):
        order = sorted((j for j in range(len(K)) if j != i), key=lambda j: K[i, i] + K[j, j] - 2 * K[i, j])
        hits, misses = [j for j in order if y[j] == y[i]][:k], [j for j in order if y[j] != y[i]][:k]
        e = {j: math.exp(-float(np.sum((T.T @ (K[i] - K[j])) ** 2))) for j in hits + misses}
        total += sum(e[j] for j in hits) / sum(e.values())
    return total


def check(learner, X, y):
    rows = learner.X_fit_
    label = {tuple(x): c for x, c in zip(X, y, strict=True)}
    labels = [label[tuple(x)] for x in rows]
    K = kernel(rows)
    np.testing.assert_allclose(learner.objective_, objective(learner.dual_coef_, K, labels, learner.k, 0.06), rtol=1e-6)
    assert learner.objective_ > learner.history_[0]
