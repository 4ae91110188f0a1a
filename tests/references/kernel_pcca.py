"""Kernel PCCA by loops over pairs: distances through the dual coefficients."""

import numpy as np

from tests.references.kernel_mcml import kernel

SETTINGS = {"gamma": 0.1, "landmarks": None, "max_iter": 300}
TOLERANCE = 1e-3


def objective(T, K, pairs, beta=3.0, reg=1e-3):
    total = reg * float(np.trace(T.T @ K @ T)) * float(np.trace(K)) / len(K)
    for i, j, s in pairs:
        d = float(np.sum((T.T @ (K[i] - K[j])) ** 2))
        total += float(np.logaddexp(0, beta * s * (d - 1))) / beta / len(pairs)
    return total


def check(learner, X, y):
    rows = learner.X_fit_
    label = {tuple(x): c for x, c in zip(X, y, strict=True)}
    y = [label[tuple(x)] for x in rows]
    K = kernel(rows)
    pairs = [(i, j, 1 if y[i] == y[j] else -1) for j in range(len(rows)) for i in range(j)]
    np.testing.assert_allclose(learner.objective_, objective(learner.dual_coef_, K, pairs), rtol=1e-6)
    assert learner.objective_ < 0.2 * objective(np.zeros((len(rows), 1)), K, pairs)
