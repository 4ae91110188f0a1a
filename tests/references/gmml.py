"""Geometric mean metric learning by loops over pairs and matrix square roots."""

import numpy as np
from scipy.linalg import inv, sqrtm


def metric(X, y, reg=0.1):
    d = X.shape[1]
    S, D = np.zeros((d, d)), np.zeros((d, d))
    similar = dissimilar = 0
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            if y[i] == y[j]:
                S, similar = S + np.outer(z, z), similar + 1
            else:
                D, dissimilar = D + np.outer(z, z), dissimilar + 1
    S, D = S / similar, D / dissimilar
    lam = reg * np.trace(S) / d
    S, D = S + lam * np.eye(d), D + lam * np.eye(d)
    half = np.real(sqrtm(S))
    return inv(half) @ np.real(sqrtm(half @ D @ half)) @ inv(half)
