"""Kernel SVM-like metric by loops: the objective with its best margin, and no better metric anywhere near."""

import numpy as np

from tests.references.kernel_mcml import kernel

EXCEPTIONS = {"equal rows": "all dissimilar pairs coincide"}
SETTINGS = {"gamma": 0.1, "n_pairs": "all", "l2": 500.0, "nu": 0.5, "tol": 1e-8}
TOY_SETTINGS = {"n_pairs": 2000, "l1": 300.0}
TOLERANCE = 1e-8


def objective(T, K, y, l1=1.0, l2=500.0, nu=0.5):
    """T: dual coefficients; distances in units in which the mean of d0^2 over dissimilar pairs is 1."""
    similar = [(i, j) for i in range(len(K)) for j in range(i) if y[i] == y[j]]
    dissimilar = [(i, j) for i in range(len(K)) for j in range(i) if y[i] != y[j]]
    before = {(i, j): K[i, i] + K[j, j] - 2 * K[i, j] for i, j in dissimilar}
    unit = sum(before.values()) / len(before)

    def squared(i, j):
        return float(np.sum((T.T @ (K[i] - K[j])) ** 2))

    stretch = np.array([squared(i, j) - before[i, j] / unit for i, j in dissimilar])
    pull = sum(squared(i, j) for i, j in similar) / len(similar)
    A = T.T @ K @ T * unit
    value = np.sum(A * A) / 2 + l1 * pull
    margins = [-nu * gam + float(np.mean(np.maximum(gam - stretch, 0))) for gam in [0.0, *stretch[stretch > 0]]]
    return value + l2 * min(margins)


def check(learner, X, y):
    K = kernel(X)
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in learner.X_fit_]
    T = np.zeros_like(learner.dual_coef_)
    T[order] = learner.dual_coef_
    best = objective(T, K, y)
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-6)
    assert learner.duality_gap_ <= 1e-6 * abs(best)
    assert learner.margin_ > 0
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        nudge = size * np.abs(T).max() * rng.normal(size=T.shape)
        assert objective(T + nudge, K, y) > best
