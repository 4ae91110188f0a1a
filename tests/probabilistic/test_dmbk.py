"""DMBK: gradients, invariances of the divergences, the constraint, imbalance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar import DMBK
from nearfar.probabilistic.information.dmbk import divergences
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import data, fit
from tests.references import dmbk as loops


def classes(shrinkage=1e-3):
    X, y = data()
    return divergences.gaussians(X, y, [shrinkage] * 3), X, y


def test_divergences_equal_the_loops():
    told, X, y = classes()
    U = np.random.default_rng(0).normal(size=(4, 2))
    listed = loops.gaussians(X, y)
    expected = [[loops.kl(U, a, b) for b in listed] for a in listed]
    assert_allclose(divergences.divergences(U, told), expected, rtol=1e-9, atol=1e-12)


def test_gradients():
    told, X, y = classes()
    rng = np.random.default_rng(0)
    U, W = rng.normal(size=(4, 2)), rng.normal(size=(3, 3))
    assert_allclose(
        divergences.weighted_gradient(U, W, told),
        numerical_gradient(lambda V: np.vdot(W, divergences.divergences(V, told)), U),
        rtol=1e-6,
        atol=1e-7,
    )
    for alpha in (0.0, 0.7):
        value, gradient = divergences.balance(U, told, alpha)
        assert_allclose(value, loops.objective(U, X, y, reg=0.0, alpha=alpha), rtol=1e-9)
        assert_allclose(
            gradient,
            numerical_gradient(lambda V, alpha=alpha: divergences.balance(V, told, alpha)[0], U),
            rtol=1e-5,
            atol=1e-8,
        )


@pytest.mark.parametrize("d", [4, 80], ids=["differences", "rows"])
def test_mean_distance(d):
    X, y = data()
    X = np.hstack([X, np.random.default_rng(1).normal(size=(len(X), d - 4))])
    U = np.random.default_rng(0).normal(size=(d, 2))
    i, j = np.nonzero(np.triu(y[:, None] != y, 1))
    mean = divergences.MeanDistance(X, i, j)
    assert (mean.pairs is None) == (d == 4)
    value, gradient = mean(U)
    assert_allclose(value, np.mean(np.linalg.norm((X[i] - X[j]) @ U, axis=1)))
    assert_allclose(gradient, numerical_gradient(lambda V: mean(V)[0], U), rtol=1e-6, atol=1e-9)


def test_divergences_depend_on_the_column_space_only():
    told, *_ = classes()
    rng = np.random.default_rng(0)
    U, R = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    K = divergences.divergences(U, told)
    assert_allclose(divergences.divergences(U @ R, told), K, rtol=1e-8, atol=1e-10)
    assert_allclose(np.diag(K), 0, atol=1e-10)
    assert K.min() >= -1e-10
    every = divergences.divergences(np.eye(4), told)
    assert_allclose(divergences.divergences(rng.normal(size=(4, 4)), told), every, rtol=1e-7, atol=1e-8)
    assert_allclose(
        divergences.divergences(U @ R[:, :2], told), divergences.divergences(7 * U @ R[:, :2], told), atol=1e-9
    )


def test_the_first_term_is_largest_for_equal_shares():
    told, *_ = classes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert divergences.balance(rng.normal(size=(4, 2)), told, 0.0)[0] <= -np.log(6) + 1e-12
    corners = 3 * np.array([[0.0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    even = divergences.GaussianClasses(corners, np.stack([np.eye(2)] * 3), np.full(3, 5.0))
    assert_allclose(divergences.balance(np.eye(2), even, 0.0)[0], -np.log(6), rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"alpha": 1.0}, {"reg": 2.0}, {"n_components": 3}, {"n_components": 1}])
def test_constraint_holds_and_more_starts_are_no_worse(settings):
    X, y = data()
    learner = fit(DMBK(random_state=0, **settings), X, y)
    D = [learner.transform(X[[i, j]]) for i in range(60) for j in range(i) if y[i] == y[j]]
    assert_allclose(np.mean([np.sum((a - b) ** 2) for a, b in D]), 1)
    more = fit(DMBK(random_state=0, n_init=6, **settings), X, y)
    assert more.objective_ >= learner.objective_ - 1e-9
    assert learner.history_[-1] >= learner.history_[0]


def test_two_classes_have_something_to_separate():
    X, y = data()
    y = np.minimum(y, 1)
    learner = fit(DMBK(random_state=0), X, y)
    assert_allclose(learner.objective_, fit(DMBK(alpha=1.0, random_state=0), X, y).objective_)
    Z = learner.transform(X).ravel()
    gap = abs(Z[y == 0].mean() - Z[y == 1].mean())
    assert gap > np.std(Z[y == 0]) + np.std(Z[y == 1])


@pytest.mark.slow
def test_a_small_class_is_not_sacrificed():
    rng = np.random.default_rng(0)
    n = (300, 300, 12)
    y = np.repeat(np.arange(3), n)
    # the two large classes differ along the first axis, the small one along the second, which is louder within
    X = rng.normal(size=(612, 6)) * np.array([1, 1.5, 1, 1, 1, 1])
    X[:, 0] += np.array([-3.0, 3.0, 0.0])[y]
    X[:, 1] += np.array([0.0, 0.0, 6.0])[y]
    L = fit(DMBK(alpha=1.0, shrinkage=0.3, whiten=True, random_state=0), X, y).components_
    M = L.T @ L
    assert M[1, 1] > 3 * M[2:, 2:].max()
    assert M[0, 0] > 3 * M[2:, 2:].max()


def test_whitening_keeps_the_space_and_the_constraint():
    X, y = data()
    plain = fit(DMBK(whiten=False, random_state=0), X, y).components_
    white = fit(DMBK(whiten=True, random_state=0), X, y)
    assert np.linalg.matrix_rank(np.r_[plain, white.components_], tol=1e-6) == 2
    Z = white.transform(X)
    D = np.array([Z[i] - Z[j] for i in range(60) for j in range(i) if y[i] == y[j]])
    assert_allclose(D.T @ D / len(D), np.eye(2) / 2, atol=1e-9)


@pytest.mark.slow
def test_ledoit_wolf_keeps_few_rows_usable():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 20)), np.arange(12) % 3
    found = fit(DMBK(shrinkage="lw", random_state=0), X, y).components_
    assert np.isfinite(found).all()
    assert_array_equal(fit(DMBK(shrinkage="ledoit_wolf", random_state=0), X, y).components_, found)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_components": 4}, "n_components must be below 4, the rank of X; got 4"),
        ({"reg": -1.0}, "reg"),
        ({"alpha": -1.0}, "alpha"),
        ({"shrinkage": 2.0}, "shrinkage"),
        ({"n_pairs": 0}, "n_pairs"),
    ],
)
def test_bad_settings(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^DMBK: {word}"):
        DMBK(**settings).fit(X, y)


def test_one_feature_leaves_nothing_to_choose():
    X, y = data()
    with pytest.raises(ValueError, match=r"^DMBK: X must have at least 2 independent features; got 1 \(n_features=1\)"):
        DMBK().fit(X[:, :1], y)


def test_a_class_of_one_sample_is_an_error():
    X, y = data()
    y = y.copy()
    y[0] = 9
    with pytest.raises(
        ValueError, match=r"^DMBK: y must hold at least 2 rows of each class; 1 classes have a single row"
    ):
        DMBK().fit(X, y)


def test_warm_start_goes_on():
    X, y = data(300, 8)
    learner = fit(DMBK(whiten=False, warm_start=True, max_iter=3, random_state=0), X, y)
    short = learner.objective_
    fit(learner.set_params(max_iter=200), X, y)
    assert learner.history_[0] > short
    cold = fit(DMBK(whiten=False, random_state=0), X, y)
    assert_allclose(learner.objective_, cold.objective_, rtol=1e-6)
    assert fit(learner, X, y).n_iter_ == 1
