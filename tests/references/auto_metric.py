"""The choice by its definition: the largest mean, if it gains more than one standard error; then a plain fit."""

import numpy as np

import nearfar

EXCEPTIONS = {
    "rotation": "columns are standardized, which depends on the axes",
    "n_components": "the learner that is chosen decides",
}


def check(learner, X, y):
    scores = {name: np.array(values) for name, values in learner.fold_scores_.items()}
    assert set(scores) == {"Euclidean", *learner.learners}
    best = max(scores, key=lambda name: scores[name].sum())
    gains = scores[best] - scores["Euclidean"]
    expected = (
        best
        if sum(gains) / len(gains)
        > (1 + 1e-6) * np.sqrt(sum((gains - gains.mean()) ** 2) / (len(gains) - 1) / len(gains))
        else "Euclidean"
    )
    assert learner.chosen_ == expected
    scale = X.std(axis=0)
    L = np.eye(X.shape[1]) if expected == "Euclidean" else getattr(nearfar, expected)().fit(X / scale, y).components_
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), (L / scale).T @ (L / scale), rtol=1e-6)
