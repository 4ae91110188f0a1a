"""Online ITML: each step's root by bisection on its stationarity condition, one pair after the other."""

import numpy as np

EXCEPTIONS = {
    "explicit supervision": "in a stream the order of pairs matters",
    "contradicting pairs": "a stream may tell a pair again, with the other label",
}


def step(A, z, y, eta):
    """argmin D(A+, A) + eta / 2 (z' A+ z - y)^2, through A+^-1 = A^-1 + eta (yb - y) z z'."""
    yh = float(z @ A @ z)
    low, high = 0.0, max(y, yh)  # yb lies between the target and the old value
    for _ in range(200):
        yb = (low + high) / 2
        # z' A+ z with the multiplier eta (yb - y), less yb, falls with yb
        k = eta * (yb - y)
        if k * yh > -1 and yh / (1 + k * yh) < yb:
            high = yb
        else:
            low = yb
    return np.linalg.inv(np.linalg.inv(A) + eta * (yb - y) * np.outer(z, z))


def stream(A, Z, sign, target, eta):
    A = A.copy()
    for z, s, y in zip(Z, sign, target, strict=True):
        yh = float(z @ A @ z)
        if s * (yh - y) >= 0 and yh != y:
            A = step(A, z, y, eta)
    return A


def check(learner, X, y):
    pairs = [[i, j] for i in range(20) for j in range(i)]
    labels = [1 if y[i] == y[j] else -1 for i, j in pairs]
    learner.fit(X, pairs=pairs, pair_labels=labels)
    u, l = learner.bounds_
    Z = np.array([X[i] - X[j] for i, j in pairs])
    target = [u if s > 0 else l for s in labels]
    M = stream(np.eye(4), Z, labels, target, 0.5 / l**2)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-6, atol=1e-8 * np.abs(M).max())
