"""Kernel DCA by loops over chunklets of explicit cubic features."""

from itertools import product

import numpy as np

from tests.references.dca import scatters

SETTINGS = {"kernel": "polynomial", "gamma": 1.0, "degree": 2, "coef0": 1.0, "shrinkage": 0.1}
EXCEPTIONS = {
    "identical classes": "nothing lies between chunklets whose means coincide",
    "equal rows": "nothing lies between chunklets whose means coincide",
}


def features(x):
    """All products of two entries of (1, x): their inner products are (x'z + 1)^2."""
    one = [1.0, *x]
    return np.array([a * b for a, b in product(one, one)])


def check(learner, X, y):
    Phi = np.array([features(x) for x in X])
    C_b, C_w = scatters(Phi, y)
    _, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    V = Vt[: int((s > 1e-9 * s[0]).sum())].T
    C_b, C_w = V.T @ C_b @ V, V.T @ C_w @ V
    C_w = 0.9 * C_w + 0.1 * np.trace(C_w) / len(C_w) * np.eye(len(C_w))
    mu, A = np.linalg.eig(np.linalg.inv(C_w) @ C_b)
    best = np.argsort(-mu.real)[: len(set(y)) - 1]
    np.testing.assert_allclose(learner.eigenvalues_, mu.real[best], rtol=1e-6)
    M = np.zeros_like(C_w)
    for k in best:
        a = A[:, k].real
        M += np.outer(a, a) / (a @ C_w @ a)
    Z = learner.transform(X)
    for i in range(0, len(X), 7):
        for j in range(0, len(X), 5):
            z = V.T @ (Phi[i] - Phi[j])
            np.testing.assert_allclose(np.sum((Z[i] - Z[j]) ** 2), z @ M @ z, rtol=1e-5, atol=1e-9)
