"""Kernel LLE-regularized metric by loops: weights row by row, pair scatters, and no better ratio anywhere near."""

import numpy as np

from tests.references.kernel_fisher import means
from tests.references.kernel_mcml import kernel
from tests.references.lle_regularized import rebuilding

SETTINGS = {"gamma": 0.1, "reg": 0.0, "n_components": 2, "lam": 0.5, "n_neighbors": 10}
TOY_SETTINGS = {"n_neighbors": 10}


def check(learner, X, y):
    K = kernel(X)
    K_S, K_D = means(K, y)
    below = K_S + 0.5 * K @ rebuilding(X) @ K / len(X)
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in learner.X_fit_]
    T = np.empty_like(learner.dual_coef_)
    T[order] = learner.dual_coef_
    np.testing.assert_allclose(T.T @ K @ T, np.eye(2), atol=1e-6)
    ratio = np.trace(T.T @ K_D @ T) / np.trace(T.T @ below @ T)
    np.testing.assert_allclose(learner.objective_, ratio, rtol=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 10.0):
        U = T + size * rng.normal(size=T.shape)
        U = U @ np.linalg.inv(np.linalg.cholesky(U.T @ K @ U)).T
        assert np.trace(U.T @ K_D @ U) / np.trace(U.T @ below @ U) < ratio
