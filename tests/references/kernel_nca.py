"""Kernel NCA by loops over rows: distances through the dual coefficients, the penalty as their norm."""

import math

import numpy as np

from tests.references.kernel_mcml import kernel

SETTINGS = {"gamma": 0.1, "landmarks": None}
TOLERANCE = 1e-3


def objective(T, K, y, reg):
    total = -reg * float(np.trace(T.T @ K @ T))
    for i in range(len(K)):
        d = [float(np.sum((T.T @ (K[i] - K[j])) ** 2)) for j in range(len(K))]
        e = [0.0 if j == i else math.exp(-d[j]) for j in range(len(K))]
        total += sum(e[j] for j in range(len(K)) if y[j] == y[i]) / sum(e)
    return total


def check(learner, X, y):
    rows = learner.X_fit_
    label = {tuple(x): c for x, c in zip(X, y, strict=True)}
    labels, K = [label[tuple(x)] for x in rows], kernel(rows)
    np.testing.assert_allclose(learner.objective_, objective(learner.dual_coef_, K, labels, 0.06), rtol=1e-6)
    assert learner.objective_ > learner.history_[0]
