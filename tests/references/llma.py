"""Locally linear metric adaptation by loops over rows, centers and pairs."""

import numpy as np

SETTINGS = {"n_pairs": "all", "n_neighbors": None, "max_iter": 3000, "tol": 1e-10}
TOLERANCE = 1e-4  # twenty steps that stop on a small fall, through a nearly singular matrix
EXCEPTIONS = {
    "n_components": "a map of the space onto itself keeps all its dimensions",
    "toy": "only rows near the centers move, so that six loud features of noise stay as they are",
}


def moved(X, centers, B, omega):
    Y = X.copy()
    for i in range(len(X)):
        for r in range(len(centers)):
            Y[i] += B[:, r] * np.exp(-np.sum((X[i] - centers[r]) ** 2) / (2 * omega**2))
    return Y


def bumps(X, centers, omega):
    return np.array([[np.exp(-np.sum((x - c) ** 2) / (2 * omega**2)) for c in centers] for x in X])


def curvature(X, y, centers, omega, lam=0.1):
    """The mean eigenvalue of the quadratic that majorizes the objective without its ridge."""
    P = bumps(X, centers, omega)
    return objective(P, 0 * P, y, lam, X, kept=False) / len(centers)


def objective(X, Y, y, lam=0.1, Z=None, kept=True):
    """Both sums; or, for bumps as X, the trace of the majorizing quadratic (weights from Z)."""
    if not kept:
        X, Y = Z, X
    n = len(X)
    square = {(i, j): float(np.sum((X[i] - X[j]) ** 2)) for i in range(n) for j in range(n) if i != j}
    sigma = np.median([square[i, j] for i in range(n) for j in range(i)])
    f = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                q = np.linalg.norm(Y[i] - Y[j])
                f += lam * np.exp(-square[i, j] / sigma) * (q - kept * np.sqrt(square[i, j])) ** 2
            if i < j and y[i] == y[j]:
                f += np.sum((Y[i] - Y[j]) ** 2)
    return f


def check(learner, X, y):
    Y = moved(X, learner.centers_[0], learner.coef_[0], learner.widths_[0])
    np.testing.assert_allclose(learner.transform(X), Y, atol=1e-8 * np.abs(Y).max())
    rho = 1e-2 * curvature(X, y, learner.centers_[0], learner.widths_[0])
    f = objective(X, Y, y) + rho * np.sum(learner.coef_[0] ** 2)
    assert abs(f - learner.objective_) < 1e-6 * f
    rng = np.random.default_rng(0)
    for _ in range(3):
        B = learner.coef_[0]
        B = B + 0.05 * np.abs(B).max() * rng.normal(size=B.shape)
        assert objective(X, moved(X, learner.centers_[0], B, learner.widths_[0]), y) + rho * np.sum(B**2) > f
