"""Kernel MCML by loops: the divergences from learned distances, the penalty as the norm of the dual coefficients."""

import math

import numpy as np

SETTINGS = {"max_iter": 1000, "gamma": 0.1, "reg": 1e-2, "tol": 1e-7}
TOLERANCE = 1e-4


def kernel(X, gamma=0.1):
    return np.array([[math.exp(-gamma * float(np.sum((a - b) ** 2))) for b in X] for a in X])


def objective(T, K, y, reg=SETTINGS["reg"]):
    total = reg * float(np.trace(T.T @ K @ T))
    for i in range(len(K)):
        others = [j for j in range(len(K)) if j != i]
        mates = [j for j in others if y[j] == y[i]]
        d = {j: float(np.sum((T.T @ (K[i] - K[j])) ** 2)) for j in others}
        normalizer = np.logaddexp.reduce([-d[j] for j in others])
        for j in mates:
            total += (math.log(1 / len(mates)) + d[j] + normalizer) / len(mates)
    return total


def check(learner, X, y):
    chosen = learner.X_fit_
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in chosen]
    K, labels = kernel(chosen), np.asarray(y)[order]
    best = objective(learner.dual_coef_, K, labels)
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(5):
        nudge = 1e-3 * np.abs(learner.dual_coef_).max() * rng.normal(size=learner.dual_coef_.shape)
        assert objective(learner.dual_coef_ + nudge, K, labels) > best
