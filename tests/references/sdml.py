"""SDML's objective by loops over pairs, and its optimality conditions entry by entry."""

import math

import numpy as np

EXCEPTIONS = {"rotation": "single entries of M are penalized, which depend on the axes"}
SETTINGS = {"sparsity": 0.05, "n_pairs": 10_000}  # all there are


def matrix(X, pairs, signs, balance, M0):
    S = np.linalg.inv(M0)
    for (i, j), sign in zip(pairs, signs, strict=True):
        S = S + balance * sign * np.outer(X[i] - X[j], X[i] - X[j])
    return S


def objective(M, S, sparsity):
    value = -math.log(np.linalg.det(M))
    for i in range(len(M)):
        for j in range(len(M)):
            value += S[i, j] * M[i, j] + (sparsity * abs(M[i, j]) if i != j else 0.0)
    return value


def violation(M, S, sparsity):
    """The largest entry of the gradient that no subgradient of the penalty makes 0."""
    G, worst = S - np.linalg.inv(M), 0.0
    for i in range(len(M)):
        for j in range(len(M)):
            if i == j:
                worst = max(worst, abs(G[i, i]))
            elif M[i, j] != 0:
                worst = max(worst, abs(G[i, j] + sparsity * math.copysign(1, M[i, j])))
            else:
                worst = max(worst, abs(G[i, j]) - sparsity)
    return worst


def check(learner, X, y):
    pairs = [(i, j) for i in range(len(X)) for j in range(i)]
    signs = [1 if y[i] == y[j] else -1 for i, j in pairs]
    ratio = signs.count(1) / signs.count(-1)  # both kinds weigh alike
    S = matrix(X, pairs, [sign if sign > 0 else -ratio for sign in signs], learner.balance_, np.eye(4))
    np.testing.assert_allclose(np.abs(np.linalg.eigvalsh(S - np.eye(4))).max(), 0.9, rtol=1e-9)
    M = learner.metric_
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(learner.objective_, objective(M, S, 0.05), rtol=1e-9)
    assert violation(M, S, 0.05) <= 1e-5 * np.abs(S).max()
    assert learner.duality_gap_ <= 1e-10 / 2
    assert learner.converged_
