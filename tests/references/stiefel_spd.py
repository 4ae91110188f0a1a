"""The objective on Stiefel x SPD by loops over pairs, in V and Lam, and a plain descent on the product of both."""

import math

import numpy as np
from scipy.linalg import expm, inv, sqrtm

EXCEPTIONS = {"equal rows": "there is no distance to scale by"}
SETTINGS = {"n_pairs": "all", "max_iter": 2000, "tol": 1e-9}
TOLERANCE = 1e-4  # twenty iterations of a search that is not convex let rounding grow


def softplus(v):
    return max(v, 0.0) + math.log1p(math.exp(-abs(v)))


def value(V, Lam, X, y, lam, prior=None, bias=0.0):
    """X in units in which pairs have mean squared distance 1."""
    total, n = [0.0, 0.0], [0, 0]
    W = V @ Lam @ V.T
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            same = int(y[i] == y[j])
            margin = z @ W @ z - bias
            total[same] += softplus(margin if same else -margin)
            n[same] += 1
    P = np.eye(len(Lam)) if prior is None else prior
    R = Lam @ inv(P)
    return total[0] / n[0] + total[1] / n[1] + lam * (np.trace(R) - np.log(np.linalg.det(R)) - len(Lam))


def unit(X):
    d = [np.sum((X[i] - X[j]) ** 2) for i in range(len(X)) for j in range(i)]
    return X / np.sqrt(np.mean(d))


def euclidean_gradient(V, Lam, X, y, lam, prior=None):
    """In V and in Lam, with all pairs at once."""
    i, j = np.triu_indices(len(X), 1)
    Z, same = X[i] - X[j], y[i] == y[j]
    s = np.where(same, 1.0, -1.0)
    d = np.einsum("pd,de,pe->p", Z, V @ Lam @ V.T, Z)
    w = s / (1 + np.exp(-s * d)) / np.where(same, same.sum(), (~same).sum())
    G = (Z * w[:, None]).T @ Z
    P = np.eye(len(Lam)) if prior is None else prior
    return 2 * G @ V @ Lam, V.T @ G @ V + lam * (inv(P) - inv(Lam))


def descend(X, y, p, lam, prior=None, seed=0, steps=4000, tol=1e-7):
    """Riemannian gradient descent with backtracking: QR retraction for V, exponential map for Lam."""

    def fast(V, Lam):
        i, j = np.triu_indices(len(X), 1)
        Z, same = X[i] - X[j], y[i] == y[j]
        d = np.einsum("pd,de,pe->p", Z, V @ Lam @ V.T, Z)
        P = np.eye(p) if prior is None else prior
        R = Lam @ inv(P)
        return (
            np.logaddexp(0, d)[same].mean()
            + np.logaddexp(0, -d)[~same].mean()
            + lam * (np.trace(R) - np.log(np.linalg.det(R)) - p)
        )

    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(X.shape[1], p)))[0]
    Lam, step, f = np.eye(p), 1.0, np.inf
    f = fast(V, Lam)
    for _ in range(steps):
        G_V, G_L = euclidean_gradient(V, Lam, X, y, lam, prior)
        A = V.T @ G_V
        tangent = G_V - V @ (A + A.T) / 2
        half = np.real(sqrtm(Lam))
        inner = half @ G_L @ half
        size = np.sum(tangent**2) + np.sum(inner**2)
        if size <= tol**2:
            break
        while step > 1e-14:
            Q, R = np.linalg.qr(V - step * tangent)
            trial = (Q * np.sign(np.diag(R)), half @ expm(-step * inner) @ half)
            g = fast(*trial)
            if g <= f - 1e-4 * step * size:
                (V, Lam), f = trial, g
                step *= 2
                break
            step /= 2
    return V, Lam, f


def check(learner, X, y):
    np.testing.assert_allclose(learner.stiefel_.T @ learner.stiefel_, np.eye(4), atol=1e-12)
    V, Lam = learner.stiefel_, learner.spd_ * learner.scale_**2
    np.testing.assert_allclose(learner.objective_, value(V, Lam, unit(X), y, learner.lam), rtol=1e-9)
    np.testing.assert_allclose(V @ learner.spd_ @ V.T, learner.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-9)
    G_V, G_L = euclidean_gradient(V, Lam, unit(X), y, learner.lam)
    A = V.T @ G_V
    assert np.abs(G_V - V @ (A + A.T) / 2).max() < 1e-6
    assert np.abs(G_L).max() < 1e-6
