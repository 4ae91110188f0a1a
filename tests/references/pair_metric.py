"""The Bayesian pair metric by loops over pairs: the three equations of the fixed point, and the bound."""

import math

import numpy as np

SETTINGS = {"tol": 1e-13, "max_iter": 500}


def features(X, pairs, V):
    rows = []
    for i, j in pairs:
        rows.append([float((X[i] - X[j]) @ V[:, k]) ** 2 for k in range(V.shape[1])] + [-1.0])
    return np.array(rows)


def h(xi):
    return math.tanh(xi / 2) / (4 * xi) if xi > 1e-6 else 1 / 8


def update(W, s, xi, theta0, delta):
    precision = delta * np.eye(len(theta0))
    right = delta * theta0
    for w, sign, x in zip(W, s, xi, strict=True):
        precision = precision + 2 * h(x) * np.outer(w, w)
        right = right - 0.5 * sign * w
    C = np.linalg.inv(precision)
    return C @ right, C


def spread(W, m, C):
    return np.array([math.sqrt(float(w @ m) ** 2 + float(w @ C @ w)) for w in W])


def bound(W, s, xi, m, C, theta0, delta):
    total = 0.0
    for w, sign, x in zip(W, s, xi, strict=True):
        z = -sign * float(m @ w)
        square = float(m @ w) ** 2 + float(w @ C @ w)
        total += -math.log1p(math.exp(-x)) + (z - x) / 2 - h(x) * (square - x * x)
    k, away = len(m), m - theta0
    kl = 0.5 * (delta * (np.trace(C) + away @ away) - k - math.log(np.linalg.det(C)) - k * math.log(delta))
    return total - kl


def solve(W, s, theta0, delta, rounds=300):
    """Mean, covariance, xi and the bound after every half step."""
    C = np.eye(len(theta0)) / delta
    m, history = theta0, []
    xi = spread(W, m, C)
    for _ in range(rounds):
        m, C = update(W, s, xi, theta0, delta)
        history.append(bound(W, s, xi, m, C, theta0, delta))
        xi = spread(W, m, C)
        history.append(bound(W, s, xi, m, C, theta0, delta))
    return m, C, xi, np.array(history)


def directions(X):
    """Principal directions, the mean squared distance of two rows along them made 1."""
    V = np.linalg.eigh(np.cov(X.T))[1]
    n = len(X)
    mean = sum(float((a - b) @ (a - b)) for a in X for b in X) / (n * (n - 1))
    return V[:, ::-1] / math.sqrt(mean)


def check(learner, X, y):
    pairs = [[i, j] for i in range(20) for j in range(i)]
    s = np.array([1.0 if y[i] == y[j] else -1.0 for i, j in pairs])
    learner.fit(X, pairs=pairs, pair_labels=s)
    V = directions(X)
    np.testing.assert_allclose(np.abs(np.sum(V * learner.basis_, axis=0)), np.sum(V * V, axis=0))
    theta0 = np.ones(5)
    m, C, _, history = solve(features(X, pairs, V), s, theta0, 1.0)
    np.testing.assert_allclose(learner.posterior_mean_, m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(learner.posterior_cov_, C, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(learner.objective_, history[-1], rtol=1e-9)
    M = V @ np.diag(np.maximum(m[:4], 0)) @ V.T
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-4, atol=1e-6 * M.max())
    np.testing.assert_allclose(learner.threshold_**2, m[4], rtol=1e-5)
