"""The kernel's eigenvalues by loops: the spread of each eigenvector over similar pairs, and the weights from it."""

import numpy as np

from tests.references.kernel_mcml import kernel

SETTINGS = {"gamma": 0.1, "n_components": 5}


def check(learner, X, y):
    K = kernel(X)
    w, V = np.linalg.eigh(K)
    leading = V[:, ::-1][:, :5]
    f = [sum((a[i] - a[j]) ** 2 for i in range(len(X)) for j in range(i) if y[i] == y[j]) for a in leading.T]
    beta = [1 / g / sum(1 / h for h in f) for g in f]
    np.testing.assert_allclose(learner.eigenvalues_, w[::-1][:5], rtol=1e-9)
    np.testing.assert_allclose(learner.f_, f, rtol=1e-7)
    np.testing.assert_allclose(learner.beta_, beta, rtol=1e-7)
    np.testing.assert_allclose(learner.objective_, sum(b * b * g for b, g in zip(beta, f, strict=True)), rtol=1e-7)
    expected = leading * beta
    signs = np.sign((learner.transform(X) * expected).sum(axis=0))
    np.testing.assert_allclose(learner.transform(X), expected * signs, rtol=1e-6, atol=1e-9)
    assert learner.objective_ <= sum(g * (1 / 5) ** 2 for g in f)
