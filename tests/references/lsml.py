"""LSML's objective and its gradient by loops over quadruplets, as in the paper, and a search by factors of M."""

import math

import numpy as np
from scipy.optimize import minimize

SETTINGS = {"gamma": 20.0}
EXCEPTIONS = {
    "rotation": "other quadruplets are drawn, by an order of rows that turns with them; given ones are tested"
}


def objective(M, X, quadruplets, weight, gamma, M0):
    C = M @ np.linalg.inv(M0)
    total = float(np.trace(C)) - math.log(np.linalg.det(C)) - len(M)
    for (a, b, c, d), w in zip(quadruplets, weight, strict=True):
        near, far = (math.sqrt(max(0.0, float(z @ M @ z))) for z in (X[a] - X[b], X[c] - X[d]))
        if near > far:
            total += gamma * w / sum(weight) * (near - far) ** 2
    return total


def gradient(M, X, quadruplets, weight, gamma, M0):
    G = np.linalg.inv(M0) - np.linalg.inv(M)
    for (a, b, c, d), w in zip(quadruplets, weight, strict=True):
        v, u = X[a] - X[b], X[c] - X[d]
        near, far = math.sqrt(float(v @ M @ v)), math.sqrt(float(u @ M @ u))
        if near > far:
            G = G + gamma * w / sum(weight) * (1 - far / near) * np.outer(v, v)
            if far > 0:
                G = G + gamma * w / sum(weight) * (1 - near / far) * np.outer(u, u)
    return G


def searched(X, quadruplets, weight, gamma, M0, seed=0):
    """The least value that a general search over triangular factors finds from a random start."""
    d = X.shape[1]
    at = np.tril_indices(d)

    def value(z):
        L = np.zeros((d, d))
        L[at] = z
        if abs(np.prod(np.diag(L))) < 1e-12:
            return 1e6
        return objective(L @ L.T, X, quadruplets, weight, gamma, M0)

    start = np.eye(d) + 0.3 * np.random.default_rng(seed).normal(size=(d, d))
    return float(minimize(value, start[at], method="BFGS", options={"gtol": 1e-7}).fun)


def check(learner, X, y):
    Q, d = learner.quadruplets_, X.shape[1]
    assert (y[Q[:, 0]] == y[Q[:, 1]]).all()
    assert (y[Q[:, 2]] != y[Q[:, 3]]).all()
    M, weight = learner.get_mahalanobis_matrix(), np.ones(len(Q))
    best = objective(M, X, Q, weight, 20.0, np.eye(d))
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-9)
    np.testing.assert_allclose(gradient(M, X, Q, weight, 20.0, np.eye(d)), 0, atol=1e-5 * np.linalg.inv(M).max())
    assert best <= searched(X, Q, weight, 20.0, np.eye(d)) + 1e-9
    assert learner.converged_
    assert learner.duality_gap_ <= 1e-12 / 2
