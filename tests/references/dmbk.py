"""DMBK by loops over ordered pairs of classes and over pairs of rows."""

import math

import numpy as np

SETTINGS = {"max_iter": 300, "tol": 1e-9, "whiten": False}
EXCEPTIONS = {"one feature": "a projection of one feature leaves nothing to choose"}
TOLERANCE = 1e-3  # few iterations, whose end depends on the axes by rounding


def gaussians(X, y, shrinkage=1e-3):
    """Mean, shrunk covariance and size of each class."""
    d = X.shape[1]
    total = sum(float((x - X.mean(axis=0)) @ (x - X.mean(axis=0))) for x in X) / len(X)
    found = []
    for c in np.unique(y):
        rows = X[y == c]
        mean = rows.mean(axis=0)
        S = sum(np.outer(x - mean, x - mean) for x in rows) / len(rows)
        S = (1 - shrinkage) * S + shrinkage * np.trace(S) / d * np.eye(d)
        found.append((mean, S + 1e-6 * total / d * np.eye(d), len(rows)))
    return found


def kl(U, a, b):
    A, B = U.T @ a[1] @ U, U.T @ b[1] @ U
    m = U.T @ (a[0] - b[0])
    log = math.log(np.linalg.det(B)) - math.log(np.linalg.det(A))
    return 0.5 * (log + np.trace(np.linalg.inv(B) @ A) + m @ np.linalg.inv(B) @ m - len(A))


def objective(U, X, y, reg=0.1, alpha=0.0):
    """The value at U scaled to tr(U' M_S U) = 1."""
    classes = gaussians(X, y)
    same = [X[i] - X[j] for i in range(len(X)) for j in range(i) if y[i] == y[j]]
    other = [X[i] - X[j] for i in range(len(X)) for j in range(i) if y[i] != y[j]]
    M = sum(np.outer(z, z) for z in same) / len(same)
    U = U / math.sqrt(np.trace(U.T @ M @ U))
    pairs = [(a, b) for a in range(len(classes)) for b in range(len(classes)) if a != b]
    K = {pair: kl(U, classes[pair[0]], classes[pair[1]]) for pair in pairs}
    whole = sum(classes[a][2] * classes[b][2] * K[a, b] for a, b in pairs)
    value = sum(math.log(classes[a][2] * classes[b][2] * K[a, b] / whole) for a, b in pairs) / len(pairs)
    value += alpha * sum(math.log(K[pair]) for pair in pairs) / len(pairs)
    return value + reg * sum(math.sqrt(float((U.T @ z) @ (U.T @ z))) for z in other) / len(other)


def check(learner, X, y):
    U = learner.components_.T
    assert U.shape == (4, 2)
    best = objective(U, X, y)
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-6)
    same = [X[i] - X[j] for i in range(len(X)) for j in range(i) if y[i] == y[j]]
    np.testing.assert_allclose(np.mean([float((U.T @ z) @ (U.T @ z)) for z in same]), 1, rtol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert objective(U + 1e-2 * np.abs(U).max() * rng.normal(size=U.shape), X, y) < best
