"""Adversarial metric learning with the adversary's points written out, by loops over pairs."""

import numpy as np
from scipy.linalg import inv

from tests.references import low_rank_gmml

SETTINGS = {"max_iter": 500, "tol": 1e-9}
TOLERANCE = 1e-5  # a search cut short leaves what rounding makes of it


def adversaries(x, z, similar, M, beta):
    """The minimum over p and p' of the adversary's objective, from its normal equations in (p, p')."""
    d, B = len(x), inv(M) if similar else M
    A = np.block([[B, -B], [-B, B]]) + beta * np.kron(np.eye(2), M)
    p = np.linalg.solve(A, beta * np.r_[M @ x, M @ z])
    return p[:d], p[d:]


def objective(M, X, y, alpha, beta, ridge):
    """The ridge, lam I in both scatters, stands for further pairs along the axes."""
    sums, n = np.zeros(2), np.zeros(2)
    B = inv(M)
    for i in range(len(X)):
        for j in range(i):
            same = int(y[i] == y[j])
            A = M if same else B
            p, q = adversaries(X[i], X[j], bool(same), M, beta)
            sums[same] += (X[i] - X[j]) @ A @ (X[i] - X[j]) + alpha * (p - q) @ A @ (p - q)
            n[same] += 1
    for axis in np.eye(len(M)) * np.sqrt(ridge):
        for same, A in ((1, M), (0, B)):
            p, q = adversaries(axis, 0 * axis, bool(same), M, beta)
            sums[same] += n[same] * (axis @ A @ axis + alpha * (p - q) @ A @ (p - q))
    return np.sum(sums / n)


def check(learner, X, y):
    d = X.shape[1]
    S, _ = low_rank_gmml.scatters(X, y)
    plain, _ = low_rank_gmml.scatters(X, y, 0.0)
    ridge = np.trace(S - plain) / d
    M = learner.get_mahalanobis_matrix()
    value = objective(M, X, y, 1.0, 1.0, ridge)
    np.testing.assert_allclose(learner.objective_, value, rtol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(5):
        A = rng.normal(size=(d, d))
        step = 1e-2 * np.trace(M) * (A + A.T) / np.linalg.norm(A)
        assert np.linalg.eigvalsh(M + step)[0] < 0 or objective(M + step, X, y, 1.0, 1.0, ridge) >= value
