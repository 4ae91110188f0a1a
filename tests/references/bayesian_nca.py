"""Bayesian NCA by the literal matrices of the bound, row by row."""

import math

import numpy as np

from tests.references.pair_metric import directions

SETTINGS = {"n_neighbors": 6, "max_iter": 200, "tol": 1e-9}


def neighborhoods(X, y, k):
    """For each row: its k nearest others, and the positions among them of its own class."""
    found = []
    for i in range(len(X)):
        d = [(float(np.sum((X[i] - X[j]) ** 2)), j) for j in range(len(X)) if j != i]
        N = [j for _, j in sorted(d)[:k]]
        found.append((N, [t for t, j in enumerate(N) if y[j] == y[i]]))
    return found


def features(X, i, N, V):
    return np.array([[float((X[i] - X[t]) @ V[:, l]) ** 2 for l in range(V.shape[1])] for t in N])


def precision(X, hoods, V, V0):
    """V0^-1 + sum W H W', W the columns u_ij - u_it over t other than j, H = (I - 11'/k) / 2 of size k - 1."""
    P = np.linalg.inv(V0)
    for i, (N, J) in enumerate(hoods):
        U, k = features(X, i, N, V), len(N)
        H = (np.eye(k - 1) - np.ones((k - 1, k - 1)) / k) / 2
        for j in J:
            W = np.array([U[j] - U[t] for t in range(k) if t != j]).T
            P = P + W @ H @ W.T
    return P


def log_posterior(m, X, hoods, V, m0, V0):
    total = -0.5 * float((m - m0) @ np.linalg.inv(V0) @ (m - m0))
    for i, (N, J) in enumerate(hoods):
        e = -features(X, i, N, V) @ m
        for j in J:
            total += float(e[j]) - math.log(np.exp(e - e.max()).sum()) - float(e.max())
    return total


def bound(m, X, hoods, V, m0, V0):
    P0 = np.linalg.inv(V0)
    P = precision(X, hoods, V, V0)
    C, k = np.linalg.inv(P), len(m)
    away = m - m0
    kl = 0.5 * (np.trace(P0 @ C) + away @ P0 @ away - k + math.log(np.linalg.det(V0)) - math.log(np.linalg.det(C)))
    likelihood = log_posterior(m, X, hoods, V, m0, V0) + 0.5 * float(away @ P0 @ away)
    return likelihood - 0.5 * np.trace((P - P0) @ C) - kl


def check(learner, X, y):
    V, hoods, m0, V0 = directions(X), neighborhoods(X, y, 6), np.ones(4), np.eye(4)
    C = np.linalg.inv(precision(X, hoods, V, V0))
    np.testing.assert_allclose(learner.posterior_cov_, C, rtol=1e-6, atol=1e-9)
    m = learner.posterior_mean_
    np.testing.assert_allclose(learner.objective_, bound(m, X, hoods, V, m0, V0), rtol=1e-9)
    best = log_posterior(m, X, hoods, V, m0, V0)
    for l in range(4):
        for step in (-1e-3, 1e-3):
            assert log_posterior(m + step * np.eye(4)[l], X, hoods, V, m0, V0) < best
    M = V @ np.diag(np.maximum(m, 0)) @ V.T
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-6, atol=1e-9 * M.max())
