"""Functions of matrices as power series or by definition, and derivatives by differences."""

import numpy as np

from tests.finite_differences import gradient as numerical_gradient


def function(X, f):
    """Return f(X) of one symmetric matrix, eigenvalue by eigenvalue."""
    values, V = np.linalg.eigh((X + X.T) / 2)
    return sum(f(values[k]) * np.outer(V[:, k], V[:, k]) for k in range(len(X)))


def gradient(X, G, f):
    """Return the gradient of sum(G * f(X)) entry by entry, by finite differences."""
    return numerical_gradient(lambda Y: np.sum(G * function(Y, f)), X)
