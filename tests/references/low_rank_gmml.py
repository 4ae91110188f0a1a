"""Low-rank geometric mean metric learning by loops over pairs, square roots of matrices and a general eigenproblem."""

import numpy as np
from scipy.linalg import eig, inv, sqrtm

SETTINGS = {"n_components": 2}
EXCEPTIONS = {"history": "it is of the search for the subspace, before the metric in it"}


def scatters(X, y, reg=0.1):
    d = X.shape[1]
    S, D, n = np.zeros((d, d)), np.zeros((d, d)), [0, 0]
    for i in range(len(X)):
        for j in range(i):
            z = np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                S, n[0] = S + z, n[0] + 1
            else:
                D, n[1] = D + z, n[1] + 1
    S, D = S / n[0], D / n[1]
    lam = reg * np.trace(S) / d * np.eye(d)
    return S + lam, D + lam


def mean(S, D):
    half = np.real(sqrtm(S))
    return inv(half) @ np.real(sqrtm(half @ D @ half)) @ inv(half)


def metric(X, y, p=2):
    S, D = scatters(X, y)
    w, V = eig(inv(S) @ D)
    U = np.linalg.qr(np.real(V[:, np.argsort(-np.real(w))[:p]]))[0]
    return U @ mean(U.T @ S @ U, U.T @ D @ U) @ U.T


def riemannian(U, S, D):
    """The cost that the paper's code minimizes, with the best B put in."""
    A, B = U.T @ S @ U, U.T @ D @ U
    M = mean(A, B)

    def squared(P, Q):
        w = np.linalg.eigvals(np.linalg.solve(P, Q))
        return np.sum(np.log(np.real(w)) ** 2)

    return (squared(inv(A), M) + squared(B, M)) / 8


def trace(U, S, D):
    A, B = U.T @ S @ U, U.T @ D @ U
    M = mean(A, B)
    return np.trace(A @ M) + np.trace(inv(M) @ B)


def check(learner, X, y):
    S, D = scatters(X, y)
    U, B = learner.subspace_, learner.inner_
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(U @ B @ U.T, learner.get_mahalanobis_matrix(), rtol=1e-10, atol=1e-10)
    residual = B @ (U.T @ S @ U) @ B - U.T @ D @ U
    assert np.abs(residual).max() <= 1e-8 * np.abs(U.T @ D @ U).max()
