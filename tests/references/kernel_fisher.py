"""Kernel Fisher-like metric by loops over pairs of columns of the kernel matrix."""

import numpy as np
from scipy.linalg import eigh

from tests.references.kernel_mcml import kernel

SETTINGS = {"constraint": "orthonormal", "gamma": 0.1, "n_components": 3}
EXCEPTIONS = {
    "identical classes": "nothing separates classes that coincide, and no direction count was asked for",
    "equal rows": "nothing separates rows that are equal",
}


def means(K, y):
    S, D = [], []
    for i in range(len(K)):
        for j in range(i):
            z = K[i] - K[j]
            (S if y[i] == y[j] else D).append(np.outer(z, z))
    return sum(S) / len(S), sum(D) / len(D)


def check(learner, X, y):
    K = kernel(X)
    K_S, K_D = means(K, y)
    w, T = eigh(K_S - K_D, K)
    np.testing.assert_allclose(learner.eigenvalues_, w[:3], rtol=1e-6)
    np.testing.assert_allclose(learner.objective_, w[:3].sum(), rtol=1e-6)
    expected, Z = K @ T[:, :3], learner.transform(X)
    for i in range(len(X)):
        for j in range(0, len(X), 7):
            np.testing.assert_allclose(
                np.sum((Z[i] - Z[j]) ** 2), np.sum((expected[i] - expected[j]) ** 2), rtol=1e-5, atol=1e-9
            )
