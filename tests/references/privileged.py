"""Risk with privileged information by loops over pairs."""

import math

import numpy as np

SETTINGS = {"max_iter": 500}
TOLERANCE = 2e-3  # the optimum is found up to a duality gap of 1e-6, which leaves M less exact


def unit(X):
    n = len(X)
    return math.sqrt(sum(float((a - b) @ (a - b)) for a in X for b in X) / (n * (n - 1)))


def objective(M, P, X, Z, pairs, s, reg_x=1e-3, reg_z=1e-3):
    total = 0.0
    for (i, j), sign in zip(pairs, s, strict=True):
        t = sign * ((X[i] - X[j]) @ M @ (X[i] - X[j]) - (Z[i] - Z[j]) @ P @ (Z[i] - Z[j]))
        total += math.log1p(math.exp(-abs(t))) + max(t, 0.0)
    return total / len(pairs) + reg_x * np.trace(M) + reg_z * np.trace(P)


def gradient(M, P, X, Z, pairs, s, reg_x=1e-3, reg_z=1e-3):
    G, H = reg_x * np.eye(len(M)), reg_z * np.eye(len(P))
    for (i, j), sign in zip(pairs, s, strict=True):
        x, z = X[i] - X[j], Z[i] - Z[j]
        t = sign * (x @ M @ x - z @ P @ z)
        w = sign / (1 + math.exp(-t)) / len(pairs)
        G, H = G + w * np.outer(x, x), H - w * np.outer(z, z)
    return G, H


def check(learner, X, y):
    Z = np.random.default_rng(0).normal(size=(60, 2)) + 3.0 * (y == 1)[:, None]
    pairs = [(i, j) for i in range(60) for j in range(0, i, 2)]
    s = [1.0 if y[i] == y[j] else -1.0 for i, j in pairs]
    learner.fit(X, privileged=Z, pairs=pairs, pair_labels=s)
    A, B = X / unit(X), Z / unit(Z)
    L, Q = learner.components_ * unit(X), learner.privileged_components_ * unit(Z)
    M, P = L.T @ L, Q.T @ Q
    np.testing.assert_allclose(learner.objective_, objective(M, P, A, B, pairs, s), rtol=1e-9)
    G, H = gradient(M, P, A, B, pairs, s)
    assert learner.converged_
    assert learner.duality_gap_ <= 1e-6
    assert min(np.linalg.eigvalsh(G)[0], np.linalg.eigvalsh(H)[0]) >= -1e-6
    assert abs(np.sum(G * M) + np.sum(H * P)) <= 1e-6
