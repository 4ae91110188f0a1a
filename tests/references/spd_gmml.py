"""Geometric means of scatters of matrix logarithms, by loops over pairs; rows are logarithms of one column."""

import numpy as np
from scipy.linalg import inv, logm, sqrtm


def metric_of_logs(T, y, reg=0.1, t=0.5):
    d = T[0].shape[0]
    S, D, n = np.zeros((d, d)), np.zeros((d, d)), [0, 0]
    for i in range(len(T)):
        for j in range(i):
            z = (T[i] - T[j]) @ (T[i] - T[j]).T
            if y[i] == y[j]:
                S, n[0] = S + z, n[0] + 1
            else:
                D, n[1] = D + z, n[1] + 1
    S, D = S / n[0], D / n[1]
    lam = reg * np.trace(S) / d * np.eye(d)
    S, D = S + lam, D + lam
    half = np.real(sqrtm(S))
    w, V = np.linalg.eigh(half @ D @ half)
    return inv(half) @ (V * w**t) @ V.T @ inv(half)


def logarithms(X):
    return [np.real(logm(A)) for A in X]


def distance(M, A, B):
    Z = np.real(logm(A)) - np.real(logm(B))
    return np.sqrt(np.trace(M @ Z @ Z))


def metric(X, y):
    return metric_of_logs([x[:, None] for x in X], y)
