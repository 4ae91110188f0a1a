"""Sparse compositional metric learning by loops over triplets, and as the linear program that it is."""

import numpy as np
from scipy.optimize import linprog

# a fixed table of directions, in which the learner and the program choose
SETTINGS = {"basis": np.random.default_rng(0).normal(size=(30, 4)), "tol": 1e-7}
BETA = 1e-5
TOLERANCE = 1e-4
EXCEPTIONS = {"history": "the search is over hinges that are rounded"}


def triplets(X, y, k=3, rivals=10):
    """Each row, each of its k nearest of its class, each of its nearest of other classes."""
    found = []
    for a in range(len(X)):
        d = [float(np.sum((X[a] - X[j]) ** 2)) for j in range(len(X))]
        mates = sorted((j for j in range(len(X)) if j != a and y[j] == y[a]), key=lambda j: d[j])[:k]
        foes = sorted((j for j in range(len(X)) if y[j] != y[a]), key=lambda j: d[j])[:rivals]
        found += [(a, p, n) for p in mates for n in foes]
    return found


def objective(M, X, listed):
    """The mean hinge under M."""

    def square(i, j):
        return float((X[i] - X[j]) @ M @ (X[i] - X[j]))

    return sum(max(0.0, 1 + square(a, p) - square(a, n)) for a, p, n in listed) / len(listed)


def scatter(slopes, X, listed):
    """G: the sum of what triplets say, each with its slope, over their number."""
    G = np.zeros((X.shape[1],) * 2)
    for s, (a, p, n) in zip(slopes, listed, strict=True):
        G += s * (np.outer(X[a] - X[p], X[a] - X[p]) - np.outer(X[a] - X[n], X[a] - X[n])) / len(listed)
    return G


def unit(X):
    """The power of two that is near the deviation of the features."""
    return 2.0 ** np.round(np.log2(np.sqrt(np.mean(np.var(X, axis=0)))))


def program(X, B, listed, penalty):
    """The least objective, by a solver of linear programs over weights and one slack per triplet."""
    D = np.array([[float(b @ (X[a] - X[p])) ** 2 - float(b @ (X[a] - X[n])) ** 2 for b in B] for a, p, n in listed])
    c = np.r_[np.full(len(B), penalty), np.full(len(D), 1 / len(D))]
    unit = c.min()  # what the solver calls optimal is absolute
    return unit * linprog(c / unit, A_ub=np.c_[D, -np.eye(len(D))], b_ub=np.full(len(D), -1.0), bounds=(0, None)).fun


def check(learner, X, y):
    listed, s = triplets(X, y), unit(X)
    M = sum(w * np.outer(b, b) for w, b in zip(learner.weights_, learner.basis_, strict=True))
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-9 * np.abs(M).max())
    value = objective(M, X, listed) + BETA * s**2 * learner.weights_.sum()
    np.testing.assert_allclose(learner.objective_, value, rtol=1e-9)
    np.testing.assert_allclose(value, program(X, SETTINGS["basis"], listed, BETA * s**2), rtol=1e-6)
    assert 0 <= learner.duality_gap_ <= 1e-7 * value
