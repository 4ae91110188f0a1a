"""The objective in the dual coefficients of a kernel, by loops over pairs."""

import numpy as np

from tests.references import stiefel_spd

EXCEPTIONS = {"equal rows": "there is no distance to scale by"}
SETTINGS = {"n_pairs": "all", "kernel": "rbf", "gamma": 0.1, "n_components": 2, "max_iter": 2000, "tol": 1e-8}
TOLERANCE = 1e-4  # as for the linear method, in as many dimensions as there are rows


def check(learner, X, y):
    K = np.array([[np.exp(-0.1 * np.sum((a - b) ** 2)) for b in X] for a in X])
    squares = [K[i, i] + K[j, j] - 2 * K[i, j] for i in range(len(X)) for j in range(i)]
    np.testing.assert_allclose(learner.scale_, np.sqrt(np.mean(squares)), rtol=1e-6)
    Z = K @ learner_dual(learner, X)
    np.testing.assert_allclose(Z, learner.transform(X), rtol=1e-6, atol=1e-8)
    near, far = [], []
    for i in range(len(X)):
        for j in range(i):
            d = np.sum((Z[i] - Z[j]) ** 2)
            (near if y[i] == y[j] else far).append(stiefel_spd.softplus(d if y[i] == y[j] else -d))
    Lam = learner.spd_ * learner.scale_**2
    burg = np.trace(Lam) - np.log(np.linalg.det(Lam)) - 2
    np.testing.assert_allclose(learner.objective_, np.mean(near) + np.mean(far) + learner.lam * burg, rtol=1e-6)
    V = learner.stiefel_
    np.testing.assert_allclose(V.T @ V, np.eye(2), atol=1e-10)


def learner_dual(learner, X):
    """Dual coefficients in the order of X: the learner keeps its rows in one of its own."""
    place = [int(np.argmin(np.sum((learner.X_fit_ - x) ** 2, axis=1))) for x in X]
    return learner.dual_coef_[place]
