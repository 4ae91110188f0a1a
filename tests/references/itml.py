"""ITML by cyclic projections, one pair after the other, and the objective by loops."""

import math

import numpy as np

SETTINGS = {"gamma": 2.0, "tol": 1e-9}


def project(V, sign, bound, gamma, A0, sweeps=3000, tol=1e-13):
    """A, multipliers and slacks."""
    A, lam, xi = A0.copy(), np.zeros(len(V)), bound.astype(float).copy()
    share = gamma / (gamma + 1) if math.isfinite(gamma) else 1.0
    for _ in range(sweeps):
        before = lam.copy()
        for c in range(len(V)):
            p = float(V[c] @ A @ V[c])
            a = min(lam[c], share * sign[c] * (1 / p - 1 / xi[c]))
            beta = sign[c] * a / (1 - sign[c] * a * p)
            A = A + beta * np.outer(A @ V[c], A @ V[c])
            lam[c] -= a
            xi[c] = 1 / (1 / xi[c] + sign[c] * a / gamma)
        if np.abs(lam - before).sum() <= tol * np.linalg.norm(lam):
            break
    return A, lam, xi


def divergence(A, B):
    C = A @ np.linalg.inv(B)
    return float(np.trace(C)) - math.log(np.linalg.det(C)) - len(A)


def objective(A, V, sign, bound, gamma, A0):
    total = divergence(A, A0)
    for v, s, b in zip(V, sign, bound, strict=True):
        p = float(v @ A @ v)
        xi = p if s * (p - b) > 0 else b
        total += gamma * (xi / b - math.log(xi / b) - 1)
    return total


def gradient(A, V, sign, bound, gamma, A0):
    G = np.linalg.inv(A0) - np.linalg.inv(A)
    for v, s, b in zip(V, sign, bound, strict=True):
        p = float(v @ A @ v)
        if s * (p - b) > 0:
            G = G + gamma * (1 / b - 1 / p) * np.outer(v, v)
    return G


def constraints(learner, X, y):
    """The pairs that the learner drew: all of them where fewer exist than it asks for."""
    V, sign = [], []
    for i in range(len(X)):
        for j in range(i):
            V.append(X[i] - X[j])
            sign.append(1.0 if y[i] == y[j] else -1.0)
    u, l = learner.bounds_
    return np.array(V), np.array(sign), np.array([u if s > 0 else l for s in sign])


def check(learner, X, y):
    X, y = X[::3], y[::3]
    learner.fit(X, y)
    V, sign, bound = constraints(learner, X, y)
    A = learner.get_mahalanobis_matrix()
    best = objective(A, V, sign, bound, 2.0, np.eye(4))
    np.testing.assert_allclose(learner.objective_, best, rtol=1e-9)
    G = gradient(A, V, sign, bound, 2.0, np.eye(4))
    np.testing.assert_allclose(A @ G @ A, 0, atol=1e-6 * np.abs(A).max())
    nearly = project(V, sign, bound, 2.0, np.eye(4), sweeps=50)[0]
    assert best <= objective(nearly, V, sign, bound, 2.0, np.eye(4))
    d2 = np.sort([float(v @ v) for v in V])
    np.testing.assert_allclose(learner.bounds_, np.percentile(d2, [5, 95]))
    assert learner.duality_gap_ <= 1e-18 / 2 + 1e-15
