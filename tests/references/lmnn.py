"""Large margin nearest neighbors by loops over rows, targets and impostors."""

import numpy as np

SETTINGS = {"max_iter": 2000, "tol": 1e-5}


def targets(X, y, k=3):
    out = []
    for i in range(len(X)):
        mates = [j for j in range(len(X)) if j != i and y[j] == y[i]]
        out.append(sorted(mates, key=lambda j: float(np.sum((X[i] - X[j]) ** 2)))[:k])
    return out


def objective(M, X, y, k=3, mu=0.5, near=None, squared=False):
    """The paper's two sums."""
    near = targets(X, y, k) if near is None else near
    pull = push = 0.0
    for i in range(len(X)):
        for j in near[i]:
            d_ij = float((X[i] - X[j]) @ M @ (X[i] - X[j]))
            pull += d_ij
            for l in range(len(X)):
                if y[l] != y[i]:
                    u = max(1 + d_ij - float((X[i] - X[l]) @ M @ (X[i] - X[l])), 0.0)
                    push += u * u if squared else u
    return (1 - mu) * pull + mu * push


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    f = objective(M, X, y)
    assert learner.converged_
    assert abs(f - learner.objective_) < 1e-8 * f
    assert learner.duality_gap_ <= 1e-5 * f
    near, rng = targets(X, y), np.random.default_rng(0)
    assert f <= objective(np.eye(4), X, y, near=near)
    for k in range(6):
        A = rng.normal(size=(4, 1 + k % 4))
        N = M + 10.0 ** -(k + 1) * np.trace(M) * A @ A.T
        assert objective(N, X, y, near=near) >= f - learner.duality_gap_
