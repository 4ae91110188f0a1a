"""The alternation over subspaces with the QR factorization of the paper, by loops over pairs."""

import numpy as np
from scipy.linalg import inv, sqrtm

EXCEPTIONS = {
    "translation": "lines through 0 move with it",
    "toy": "rows are lines through 0, and the toy's classes differ in what lines leave out: length and sign",
    "history": "the best round is kept, which need not be the last",
    "n_components": "the metric is on d x d matrices, of which no row can go alone",
}


def rule(X, M):
    """Y Y' with Y = X R^-1, L X = Q R."""
    L = np.real(sqrtm(M))
    Y = X @ inv(np.linalg.qr(L @ X)[1])
    return Y @ Y.T


def scatters(T, y, reg=0.1):
    d = len(T[0])
    S, D, n = np.zeros((d, d)), np.zeros((d, d)), [0, 0]
    for i in range(len(T)):
        for j in range(i):
            z = (T[i] - T[j]) @ (T[i] - T[j])
            if y[i] == y[j]:
                S, n[0] = S + z, n[0] + 1
            else:
                D, n[1] = D + z, n[1] + 1
    S, D = S / n[0], D / n[1]
    lam = reg * np.trace(S) / d * np.eye(d)
    return S + lam, D + lam


def alternate(X, y, rounds):
    """The last two metrics."""
    d = len(X[0])
    before, M = None, np.eye(d)
    for _ in range(rounds):
        S, D = scatters([rule(A, M) for A in X], y)
        half = np.real(sqrtm(S))
        N = inv(half) @ np.real(sqrtm(half @ D @ half)) @ inv(half)
        before, M = M, d * N / np.trace(N)
    return before, M


def distance(A, B, before, M):
    Z = rule(A, before) - rule(B, before)
    return np.sqrt(np.trace(M @ Z @ Z))


def check(learner, X, y):
    assert learner.converged_
    lines = X[:, :, None]
    before, M = alternate(lines, y, int(np.argmin(learner.history_)) + 1)
    L = learner.components_
    np.testing.assert_allclose(L.T @ L, M, rtol=1e-6, atol=1e-8)
    expected = distance(lines[0], lines[1], before, M)
    np.testing.assert_allclose(learner.pair_distance([[0, 1]], X), expected, rtol=1e-6)
