"""Functions of matrices as power series or by definition, and derivatives by differences."""

import numpy as np


def function(X, f):
    """Return f(X) of one symmetric matrix, eigenvalue by eigenvalue."""
    values, V = np.linalg.eigh((X + X.T) / 2)
    return sum(f(values[k]) * np.outer(V[:, k], V[:, k]) for k in range(len(X)))


def gradient(X, G, f, h=1e-6):
    """Return the gradient of sum(G * f(X)) entry by entry, as central differences."""
    n = len(X)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            step = np.zeros((n, n))
            step[i, j] = h
            out[i, j] = (G * (function(X + step, f) - function(X - step, f))).sum() / (2 * h)
    return out
