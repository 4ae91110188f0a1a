"""Geometric means for partial labels by loops over rows, with scipy's solver of non-negative least squares."""

import numpy as np
from scipy.linalg import inv, sqrtm
from scipy.optimize import lsq_linear

SETTINGS = {"n_neighbors": 5}
TOLERANCE = (
    1e-5  # neighbors' combinations are unique only in what they give, up to the rounding of the normal equations
)


def parts(X, Y, k):
    """Per row: neighbors that share a candidate, and rows as near that share none."""
    found = []
    for i in range(len(X)):
        d = [np.linalg.norm(X[i] - x) for x in X]
        alike = [t for t in range(len(X)) if t != i and (Y[i] & Y[t]).any()]
        plus = sorted(alike, key=lambda t: d[t])[:k]
        reach = max((d[t] for t in plus), default=0.0)
        found.append((plus, [t for t in range(len(X)) if not (Y[i] & Y[t]).any() and d[t] < reach]))
    return found


def non_negative(A, b):
    """min |A w - b|^2 over w >= 0; not by `nnls`, which stops too early in some releases of SciPy."""
    return lsq_linear(A, b, bounds=(0, np.inf), method="bvls", tol=1e-15).x


def weights(Y, i, plus, k, l1):
    """The ridge written as further equations."""
    A = np.vstack([Y[plus].T / np.sqrt(Y.shape[1]), np.sqrt(l1 / k) * np.eye(len(plus))])
    return non_negative(A, np.r_[Y[i] / np.sqrt(Y.shape[1]), np.zeros(len(plus))])


def scatters(X, Y, k=5, l1=0.1, lam=1.0):
    X, d, n, m = X - X.mean(axis=0), X.shape[1], 0, 0
    S, D = np.zeros((d, d)), np.zeros((d, d))
    for i, (plus, minus) in enumerate(parts(X, Y, k)):
        if plus:
            n += 1
            v = weights(Y, i, plus, k, l1)
            for v_t, t in zip(v, plus, strict=True):
                S += v_t / v.sum() * np.outer(X[i] - X[t], X[i] - X[t])
            r = X[i] - X[plus].T @ non_negative(X[plus].T, X[i])
            S += lam * np.outer(r, r)
        for t in minus:
            D += np.outer(X[i] - X[t], X[i] - X[t])
            m += 1
    return S / n, D / m


def mean(S, D, reg=0.1):
    ridge = reg * np.trace(S) / len(S) * np.eye(len(S))
    S, D = S + ridge, D + ridge
    half = np.real(sqrtm(S))
    return inv(half) @ np.real(sqrtm(half @ D @ half)) @ inv(half)


def metric(X, y):
    return mean(*scatters(X, y[:, None] == np.arange(y.max() + 1)))
