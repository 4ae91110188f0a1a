"""The primal of the nu-margin metric by loops over pairs, with the best margin by trying all."""

import numpy as np

SETTINGS = {"n_pairs": "all", "l2": 50.0, "nu": 0.5, "tol": 1e-7}
TOY_SETTINGS = {"l1": 20.0, "l2": 20.0}
TOLERANCE = 1e-8


def primal(M, X, y, l1=1.0, l2=50.0, nu=0.5):
    """In units of the dissimilar pairs' mean squared distance: M is scaled by it."""
    near, far, before = [], [], []
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            if y[i] == y[j]:
                near.append(z @ M @ z)
            else:
                far.append(z @ M @ z)
                before.append(z @ z)
    unit = np.mean(before)
    gain = [d - b / unit for d, b in zip(far, before, strict=True)]
    best = min(-nu * g + np.mean(np.maximum(0.0, g - np.array(gain))) for g in [0.0, *(r for r in gain if r > 0)])
    return 0.5 * np.sum((M * unit) ** 2) + l1 * np.mean(near) + l2 * best


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    f = primal(M, X, y)
    assert learner.converged_
    assert abs(f - learner.objective_) < 1e-7 * max(1, abs(f))
    assert learner.duality_gap_ <= 1e-7 * max(1, abs(f))
    rng = np.random.default_rng(0)
    for k in range(4):
        A = rng.normal(size=(4, 1 + k))
        assert primal(M + 10.0**-k * np.trace(M) * A @ A.T, X, y) >= f - 1e-6
