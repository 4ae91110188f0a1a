"""Kernel information geometry with n x n matrices: K S K is the kernel of the labels."""

import numpy as np

from tests.references.information_geometry import label_kernel
from tests.references.kernel_mcml import kernel

SETTINGS = {"gamma": 0.1, "shrinkage": 0.0, "lam": 0.7}


def check(learner, X, y):
    K = kernel(X)
    Z = learner.transform(X)
    L = label_kernel(y, 0.7)
    d2 = np.array([[float((a - b) @ (a - b)) for b in Z] for a in Z])
    expected = np.diag(L)[:, None] + np.diag(L) - 2 * L
    np.testing.assert_allclose(d2, expected, atol=1e-4)
    S = learner.dual_coef_ @ learner.dual_coef_.T
    order = [int(np.flatnonzero((learner.X_fit_ == row).all(axis=1))[0]) for row in X]
    S = S[np.ix_(order, order)]
    np.testing.assert_allclose(S, np.linalg.inv(K @ np.linalg.inv(L) @ K), rtol=1e-4, atol=1e-4 * np.abs(S).max())
