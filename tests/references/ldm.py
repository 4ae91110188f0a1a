"""Local distance metric by loops over rows."""

import numpy as np

TOLERANCE = 1e-3


def features(X, V):
    """w_ij for every i and j."""
    return [[((V.T @ (a - b)) ** 2) for b in X] for a in X]


def objective(gamma, w, y):
    total = 0.0
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        mates = [j for j in others if y[j] == y[i]]
        if mates:
            total += np.logaddexp.reduce([-float(gamma @ w[i][j]) for j in mates])
            total -= np.logaddexp.reduce([-float(gamma @ w[i][j]) for j in others])
    return total


def gradient(gamma, w, y):
    """-(1 + S / D)^-1 (mean of w over similar rows - mean over dissimilar rows), softmax means, summed over rows."""
    total = np.zeros_like(gamma)
    for i in range(len(y)):
        mates = [j for j in range(len(y)) if j != i and y[j] == y[i]]
        rest = [j for j in range(len(y)) if y[j] != y[i]]
        if not mates:
            continue
        e = {j: np.exp(-float(gamma @ w[i][j])) for j in mates + rest}
        S, D = sum(e[j] for j in mates), sum(e[j] for j in rest)
        near = sum(e[j] * w[i][j] for j in mates) / S
        far = sum(e[j] * w[i][j] for j in rest) / D
        total -= (near - far) / (1 + S / D)
    return total


def check(learner, X, y):
    w = features(X, learner.basis_)
    np.testing.assert_allclose(learner.objective_, objective(learner.gamma_, w, y), rtol=1e-8)
    C = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    np.testing.assert_allclose(learner.basis_.T @ C @ learner.basis_, np.diag(np.linalg.eigvalsh(C)[::-1]), atol=1e-6)
    assert (learner.gamma_ >= 0).all()
    slope, start = gradient(learner.gamma_, w, y), np.full_like(learner.gamma_, learner.gamma_.mean())
    scale = np.abs(learner.gamma_ * slope).max()
    assert scale < 0.05 * np.abs(start * gradient(start, w, y)).max() + 1e-3
