"""Imbalanced metric learning: optimum, neighbors, weights, limits."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from nearfar import IML
from nearfar.neighbors import by_class
from nearfar.spectral.margin.iml import neighbor_hinges
from tests import conic
from tests.learners import data, distances, fit
from tests.references import iml as loops


def two_classes(n=40, d=3):
    X, y = data(n, d, 2)
    return X / X.std(axis=0), y


def test_rivals_equal_loops():
    X, y = data(50, 3)
    order = np.argsort(y, kind="stable")
    expected = loops.nearest(X[order], y[order], np.eye(3), 4, False)
    assert_array_equal(by_class.nearest_of_others(X[order], y[order], 4), expected)


@pytest.mark.parametrize("weighting", ["mean", "frequency"])
def test_optimum_equals_a_generic_solver(weighting):
    X, y = two_classes()
    share, m, gamma = 0.3, 2.0, 0.2
    learner = fit(IML(2, a=share, m=m, gamma=gamma, rivals="fixed", weighting=weighting, tol=1e-10), X, y)
    mates, others = (loops.nearest(X, y, np.eye(3), 2, same) for same in (True, False))
    size = np.bincount(y)
    Z, s, b, c = [], [], [], []
    for i in range(len(X)):
        each = 1 / (4 * size[y[i]] * 2) if weighting == "mean" else size[1 - y[i]] / len(y)
        for j in mates[i]:
            Z, s, b, c = [*Z, X[i] - X[j]], [*s, 1.0], [*b, 1.0], [*c, share * each]
        for l in others[i]:
            Z, s, b, c = [*Z, X[i] - X[l]], [*s, -1.0], [*b, 1 + m], [*c, (1 - share) * each]
    M = conic.hinge(np.array(Z), np.array(s), np.array(b), np.array(c), np.eye(3), gamma)
    settings = {"k": 2, "a": share, "m": m, "gamma": gamma, "frequency": weighting == "frequency"}
    best = loops.objective(M, X, y, others, **settings)
    assert_allclose(learner.objective_, best, rtol=1e-7)
    assert_allclose(learner.get_mahalanobis_matrix(), M, atol=1e-3)
    assert learner.duality_gap_ <= 1e-8 * max(1, learner.objective_)


def test_strong_regularization_gives_the_identity():
    X, y = two_classes()
    assert_allclose(fit(IML(gamma=1e7), X, y).get_mahalanobis_matrix(), np.eye(3), atol=1e-4)


def test_settled_rivals_are_those_of_the_metric():
    X, y = two_classes()
    learner = fit(IML(2, gamma=0.2, tol=1e-9), X, y)
    assert learner.rivals_settled_
    assert learner.n_looks_ > 1
    others = loops.nearest(X, y, learner.get_mahalanobis_matrix(), 2, False)
    assert_allclose(loops.objective(learner.get_mahalanobis_matrix(), X, y, others, k=2, gamma=0.2), learner.objective_)


@pytest.mark.slow
def test_rivals_that_change_forever_do_not_keep_a_good_metric_from_being_one():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    X = rng.normal(size=(200, 8)) + np.eye(3, 8)[y]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = IML().fit(X, y)
    assert learner.n_looks_ < neighbor_hinges.LOOKS
    assert learner.duality_gap_ <= 1e-3
    M = learner.get_mahalanobis_matrix()
    f = loops.objective(M, X, y, loops.nearest(X, y, M, 3, False))
    assert_allclose(f, learner.objective_, rtol=1e-9)
    for _ in range(20):
        N = M + 0.01 * np.cov(rng.normal(size=(8, 9)))
        assert loops.objective(N, X, y, loops.nearest(X, y, N, 3, False)) >= f - learner.duality_gap_


@pytest.mark.slow
def test_without_regularization_no_certificate_but_no_worse_than_the_start():
    X, y = two_classes()
    learner = fit(IML(gamma=0.0, rivals="fixed", max_iter=2000, tol=1e-8), X, y)
    assert not hasattr(learner, "duality_gap_")
    others = loops.nearest(X, y, np.eye(3), 3, False)
    f = loops.objective(learner.get_mahalanobis_matrix(), X, y, others, gamma=0.0)
    assert_allclose(f, learner.objective_, atol=1e-9)
    assert f <= loops.objective(np.eye(3), X, y, others, gamma=0.0)
    near = fit(IML(gamma=1e-7, rivals="fixed", tol=1e-9, max_iter=20_000), X, y)
    assert f <= near.objective_ * (1 + 1e-3) + 1e-6


def test_warm_start_without_regularization_goes_on():
    X, y = two_classes()
    learner = fit(IML(gamma=0.0, rivals="fixed", warm_start=True, max_iter=3), X, y)
    first = learner.objective_
    assert fit(learner, X, y).objective_ < first


def test_each_class_weighs_the_same():
    labels = np.repeat([0, 1], [30, 7])
    weights = neighbor_hinges.class_weights(labels, 3, 0.5, "mean")
    assert_allclose([weights[labels == c].sum() for c in (0, 1)], 0.5 / 4 / 3)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"a": 1.5}, "a must"), ({"m": -1.0}, "m must"), ({"gamma": -1.0}, "gamma"), ({"rivals": "x"}, "rivals")],
)
def test_bad_settings_are_named(settings, word):
    with pytest.raises(ValueError, match=f"^IML: {word}"):
        IML(**settings).fit(*two_classes())


@pytest.mark.parametrize("weighting", ["mean", "frequency"])
@pytest.mark.parametrize("small", [1, 3])
def test_small_classes_have_fewer_neighbors(small, weighting):
    X = np.random.default_rng(0).normal(size=(12, 2))
    y = np.where(np.arange(12) < small, 0, 1 + np.arange(12) % 2)
    with pytest.warns(UserWarning, match=r"^IML: n_neighbors=4: "):
        learner = IML(4, rivals="fixed", weighting=weighting, tol=1e-9, max_iter=5000).fit(X, y)
    M = learner.get_mahalanobis_matrix()
    others = loops.nearest(X, y, np.eye(2), 4, False)
    value = loops.objective(M, X, y, others, k=4, frequency=weighting == "frequency")
    assert_allclose(learner.objective_, value, rtol=1e-7)
    rng = np.random.default_rng(1)
    for _ in range(20):
        A = rng.normal(size=(2, 2)) * 0.1
        assert loops.objective(M + A @ A.T, X, y, others, k=4, frequency=weighting == "frequency") >= value - 1e-7


def test_more_than_two_classes_by_loops():
    X, y = data(45, 3, 3)
    learner = fit(IML(2, rivals="fixed", tol=1e-8), X, y)
    others = loops.nearest(X, y, np.eye(3), 2, False)
    f = loops.objective(learner.get_mahalanobis_matrix(), X, y, others, k=2)
    assert_allclose(f, learner.objective_, rtol=1e-8)
    assert len(distances(learner, X)) == 45 * 44 // 2


@pytest.mark.filterwarnings("ignore:IML. the metric and all distances are 0")
def test_rows_in_a_small_unit_take_a_hint():
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="median squared distance .* far above the bound 2: scale"):
        IML(max_iter=5).fit(30 * X, y)
