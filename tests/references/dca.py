"""Discriminative component analysis by loops over chunklets."""

import numpy as np

SETTINGS = {"shrinkage": 0.0}
EXCEPTIONS = {
    "identical classes": "nothing lies between chunklets whose means coincide",
    "equal rows": "nothing lies between chunklets whose means coincide",
}


def scatters(X, chunklets, apart=None):
    groups = {c: [x for x, k in zip(X, chunklets, strict=True) if k == c] for c in sorted(set(chunklets) - {-1})}
    means = {c: sum(rows) / len(rows) for c, rows in groups.items()}
    n = sum(len(rows) for rows in groups.values() if len(rows) > 1)
    C_w = sum(np.outer(x - means[c], x - means[c]) for c, rows in groups.items() for x in rows) / n
    C_b, n_b = np.zeros_like(C_w), 0
    for a in groups:
        for b in groups:
            if a != b and (apart is None or (a, b) in apart or (b, a) in apart):
                C_b, n_b = C_b + np.outer(means[a] - means[b], means[a] - means[b]), n_b + 1
    return C_b / n_b, C_w


def metric(X, y):
    C_b, C_w = scatters(X, y)
    mu, A = np.linalg.eig(np.linalg.inv(C_w) @ C_b)
    M = np.zeros_like(C_w)
    for k in np.argsort(-mu.real)[: len(set(y)) - 1]:
        a = A[:, k].real
        M += np.outer(a, a) / (a @ C_w @ a)
    return M
