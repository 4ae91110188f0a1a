"""Information geometry with the n x n label kernel, entry by entry."""

import numpy as np

SETTINGS = {"shrinkage": 0.0}


def label_kernel(y, lam):
    return np.array([[float(a == b) + lam * (i == j) for j, b in enumerate(y)] for i, a in enumerate(y)])


def metric(X, y, lam=0.5):
    X = X - X.mean(axis=0)
    return np.linalg.inv(X.T @ np.linalg.inv(label_kernel(y, lam)) @ X)


def objective(M, X, y, lam=0.5):
    X = X - X.mean(axis=0)
    return np.trace(np.linalg.inv(label_kernel(y, lam)) @ X @ M @ X.T) - np.log(np.linalg.det(M))


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    np.testing.assert_allclose(learner.objective_, objective(M, X, y), rtol=1e-9)
