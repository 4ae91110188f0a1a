"""Shrunk whitening within classes that emphasizes the span of the class means, by loops over rows and directions."""

import math

import numpy as np


def metric(X, y, shrinkage=0.5, emphasis=None, power=-0.5):
    d, classes = X.shape[1], sorted(set(y) - {-1})
    rows = {c: [x for x, label in zip(X, y, strict=True) if label == c] for c in classes}
    means = {c: sum(rows[c]) / len(rows[c]) for c in classes}
    n = sum(len(rows[c]) for c in classes)
    S_w = np.zeros((d, d))
    for c in classes:
        for x in rows[c]:
            S_w += np.outer(x - means[c], x - means[c]) / (n - len(classes))
    C = (1 - shrinkage) * S_w + shrinkage * np.trace(S_w) / d * np.eye(d)
    W = np.linalg.inv(np.linalg.cholesky(C))
    center = sum(means.values()) / len(classes)
    B = np.zeros((d, d))
    for c in classes:
        z = W @ (means[c] - center)
        B += np.outer(z, z) / len(classes)
    psi, U = np.linalg.eigh(B)
    kept = [k for k in range(d) if psi[k] > 1e-4 * psi[-1]]
    g = 1 + len(classes) / 10 if emphasis is None else emphasis
    typical = math.exp(power * sum(math.log(1 + psi[k]) for k in kept) / len(kept))
    A = np.eye(d)
    for k in kept:
        w = g * (1 + psi[k]) ** power / typical
        A += (w - 1) * np.outer(U[:, k], U[:, k])
    return W.T @ A @ W
