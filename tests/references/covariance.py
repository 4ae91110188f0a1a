"""The inverse covariance by loops, without shrinkage."""

import numpy as np

SETTINGS = {"shrinkage": None}
EXCEPTIONS = {"explicit supervision": "it learns from rows alone"}


def metric(X, y):
    mean = sum(X) / len(X)
    Sigma = sum(np.outer(x - mean, x - mean) for x in X) / (len(X) - 1)
    return np.linalg.inv(Sigma)
