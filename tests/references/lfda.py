"""Local Fisher discriminant analysis by loops over all pairs with the weights of the paper."""

import math

import numpy as np

SETTINGS = {"shrinkage": 0.0}
EXCEPTIONS = {"equal rows": "nothing separates rows that are equal"}


def affinities(X, y, k):
    def distance(i, j):
        return math.sqrt(float(np.sum((X[i] - X[j]) ** 2)))

    n, sigma = len(X), []
    for i in range(n):
        mates = sorted(distance(i, j) for j in range(n) if j != i and y[j] == y[i])
        sigma.append(mates[min(k, len(mates)) - 1] if mates else 0.0)
    return [
        [math.exp(-(distance(i, j) ** 2) / (sigma[i] * sigma[j])) if i != j and y[i] == y[j] else 0.0 for j in range(n)]
        for i in range(n)
    ]


def scatters(X, y, k=7):
    A, n = affinities(X, y, k), len(X)
    S_w, S_b = np.zeros((X.shape[1],) * 2), np.zeros((X.shape[1],) * 2)
    for i in range(n):
        for j in range(n):
            outer, size = np.outer(X[i] - X[j], X[i] - X[j]), sum(one == y[i] for one in y)
            alike = y[i] == y[j]
            S_w += (A[i][j] / size if alike else 0.0) * outer / 2
            S_b += (A[i][j] * (1 / n - 1 / size) if alike else 1 / n) * outer / 2
    return S_w, S_b


def metric(X, y):
    S_w, S_b = scatters(X, y)
    mu, U = np.linalg.eig(np.linalg.inv(S_w) @ S_b)
    M = np.zeros_like(S_w)
    for k in range(len(mu)):
        if mu[k].real > 0:
            u = U[:, k].real
            M += mu[k].real * np.outer(u, u) / (u @ S_w @ u)
    return M
