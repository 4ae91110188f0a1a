"""Imbalanced metric learning by loops: neighbors, rivals, hinges."""

import numpy as np

SETTINGS = {"max_iter": 2000, "tol": 1e-8}
TOY_SETTINGS = {"rivals": "fixed", "max_iter": 300}
TOLERANCE = 1e-3  # a duality gap of 1e-6 leaves the metric free by its square root


def nearest(X, y, M, k, same):
    out = []
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i and (y[j] == y[i]) == same]
        out.append(sorted(others, key=lambda j: float((X[i] - X[j]) @ M @ (X[i] - X[j])))[:k])
    return out


def objective(M, X, y, rivals, k=3, a=0.5, m=1.0, gamma=0.1, frequency=False):
    classes, mates, total = sorted(set(y)), nearest(X, y, np.eye(X.shape[1]), k, True), 0.0
    for c in classes:
        rows = [i for i in range(len(X)) if y[i] == c]
        similar, different = sum(len(mates[i]) for i in rows), sum(len(rivals[i]) for i in rows)
        near, far = (1 / (2 * len(classes) * max(count, 1)) for count in (similar, different))
        if frequency:
            near = far = 1 - len(rows) / len(X)
        for i in rows:
            for j in mates[i]:
                total += a * near * max(0.0, (X[i] - X[j]) @ M @ (X[i] - X[j]) - 1)
            for l in rivals[i]:
                total += (1 - a) * far * max(0.0, 1 + m - (X[i] - X[l]) @ M @ (X[i] - X[l]))
    return total + gamma * np.sum((M - np.eye(len(M))) ** 2)


def check(learner, X, y):
    M = learner.get_mahalanobis_matrix()
    rivals = nearest(X, y, M, 3, False)
    f = objective(M, X, y, rivals)
    assert learner.duality_gap_ <= 1e-8 * max(1, f)
    if learner.rivals_settled_:
        assert abs(f - learner.objective_) < 1e-8
        rng = np.random.default_rng(0)
        for k in range(8):
            A = rng.normal(size=(4, 1 + k % 4))
            assert objective(M + 10.0**-k * A @ A.T, X, y, rivals) >= f - 1e-8
