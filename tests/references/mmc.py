"""The objective and the constraint of Xing et al. by loops over pairs, and random feasible metrics to compare with."""

import numpy as np

SETTINGS = {"floor": 0.0, "shrinkage": 0.0, "n_pairs": "all", "max_iter": 500, "tol": 1e-6}
TOLERANCE = 1e-2  # where the objective is flat, a gap of 1e-6 leaves the metric free by its square root


def parts(M, X, y):
    near = far = 0.0
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            if y[i] == y[j]:
                near += z @ M @ z
            else:
                far += np.sqrt(max(z @ M @ z, 0.0))
    return near, far


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    near, far = parts(M, X, y)
    assert learner.converged_
    assert abs(near - 1) < 1e-6
    assert abs(far - learner.objective_) < 1e-6 * far
    assert learner.duality_gap_ <= 2e-6 * far
    rng = np.random.default_rng(0)
    for k in range(20):
        A = rng.normal(size=(4, 1 + k % 4))
        N = A @ A.T if k < 10 else M + 1e-2 * np.trace(M) * A @ A.T
        near_too, far_too = parts(N, X, y)
        assert far_too / np.sqrt(near_too) <= far + learner.duality_gap_ + 1e-6 * far
