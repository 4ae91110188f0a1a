"""Relevant component analysis by loops over chunklets."""

import numpy as np

SETTINGS = {"shrinkage": 0.0}
EXCEPTIONS = {"history": "it is of the chunklet criterion; the objective is that of every RCA"}


def metric(X, y):
    C, n = np.zeros((X.shape[1], X.shape[1])), 0
    for chunk in set(y):
        rows = [x for x, label in zip(X, y, strict=True) if label == chunk]
        mean = sum(rows) / len(rows)
        for x in rows:
            C += np.outer(x - mean, x - mean)
            n += 1
    return np.linalg.inv(C / n)
