"""The trace ratio by bisection on its value, as in the paper, with scatters by loops over pairs."""

import numpy as np

SETTINGS = {"n_components": 2}  # pairs do not tell the number of classes, from which the default is made


def metric(X, y):
    d, p = X.shape[1], len(set(y)) - 1
    S_w, S_b = np.zeros((d, d)), np.zeros((d, d))
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            if y[i] == y[j]:
                S_w += np.outer(z, z)
            else:
                S_b += np.outer(z, z)
    low, high = 0.0, np.trace(S_b) / np.linalg.eigvalsh(S_w)[:p].sum()
    for _ in range(200):
        ratio = (low + high) / 2
        w, V = np.linalg.eigh(S_b - ratio * S_w)
        if w[-p:].sum() > 0:
            low = ratio
        else:
            high = ratio
    return V[:, -p:] @ V[:, -p:].T
