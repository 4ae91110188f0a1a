"""sstress with label-scaled targets by loops over pairs, and its optimality conditions."""

import numpy as np

SETTINGS = {"max_iter": 500}
TOLERANCE = 1e-3  # twenty steps of a search whose rounding differs
TOY_SETTINGS = {"max_iter": 500, "a": 0.0, "b": 1.0}


def terms(X, y, a=0.25, b=2.25):
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            yield z, float(z @ z) * (a if y[i] == y[j] else b)


def objective(M, X, y, **factors):
    return sum((t - z @ M @ z) ** 2 for z, t in terms(X, y, **factors))


def gradient(M, X, y, **factors):
    return sum(2 * (z @ M @ z - t) * np.outer(z, z) for z, t in terms(X, y, **factors))


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    f, G = objective(M, X, y), gradient(M, X, y)
    assert learner.converged_
    assert abs(f - learner.objective_) < 1e-9 * f
    assert learner.duality_gap_ <= 1e-8 * f
    assert abs(np.vdot(M, G)) < 1e-7 * f
    assert np.linalg.eigvalsh(G)[0] > -1e-6 * np.abs(gradient(np.zeros_like(M), X, y)).max()
