"""Weights of features and their intervals, against plain loops and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from nearfar import RCA, Kernelized
from nearfar.estimators import Explanation, explain
from nearfar.estimators.explanation import halves
from tests.learners import data, toy

X, Y = data(60)


def test_weights_are_shares_of_the_mean_squared_distance():
    found = explain(RCA(), X, Y, n_fits=3)
    M = RCA().fit(X, Y).get_mahalanobis_matrix()
    alone = []
    for k in range(4):
        d2 = [M[k, k] * (X[i, k] - X[j, k]) ** 2 for i in range(60) for j in range(60)]
        alone.append(np.mean(d2))
    assert_allclose(found.weights, np.array(alone) / np.sum(alone), rtol=1e-9)
    assert_allclose(found.weights.sum(), 1)
    assert (found.low <= found.weights).all()
    assert (found.weights <= found.high).all()
    S = M * np.outer(X.std(axis=0), X.std(axis=0))
    for direction, share in zip(found.directions, found.shares, strict=True):
        assert_allclose(S @ direction, share * np.trace(S) * direction, atol=1e-9)
    assert ((found.stability >= 0) & (found.stability <= 1 + 1e-12)).all()


def test_units_and_names_of_classes_do_not_matter():
    units = np.array([1e-3, 1.0, 50.0, 7.0])
    a = explain(RCA(), X, Y, n_fits=4)
    b = explain(RCA(), X * units, np.array(["c", "a", "b"])[Y], n_fits=4)
    for one, other in ((a.weights, b.weights), (a.low, b.low), (a.high, b.high), (a.stability, b.stability)):
        assert_allclose(one, other, rtol=1e-6)


def test_features_that_tell_are_surely_heavier():
    A, a = toy()
    found = explain(RCA(), A, a, n_fits=10)
    assert found.low[:2].min() > found.high[2:].max()
    assert found.stability[:1].min() > 0.5


def test_names_and_table():
    pytest.importorskip("pandas")
    frame, y = load_iris(return_X_y=True, as_frame=True)
    found = explain(RCA(), frame, y, n_fits=3)
    assert found.names == list(frame.columns)
    heaviest = frame.columns[np.argmax(found.weights)]
    assert found.table(2).splitlines()[0].startswith(heaviest)
    assert len(found.table(2).splitlines()) == 2


def test_directions_name_the_features_that_weigh_most_in_them():
    direction = np.array([[0.6, 0.0, -0.8, 0.0], [0.0, 1.0, 0.0, 0.0]])
    names = ["ash", "hue", "flavor", "color"]
    nothing = np.zeros(4)
    found = Explanation(names, nothing, nothing, nothing, direction, np.array([0.9, 0.1]), np.ones(2))
    assert found.direction_table(3).splitlines() == [" 90.0%  -0.80 flavor, +0.60 ash", " 10.0%  +1.00 hue"]


@pytest.mark.parametrize("sizes", [(1, 2, 3), (4, 5, 10), (2, 2, 2)])
def test_halves_are_of_each_class(sizes):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(3), sizes))
    taken = np.bincount(labels[halves(labels, np.random.default_rng(1))], minlength=3)
    assert taken.tolist() == [min(n, max(2, (n + 1) // 2)) for n in sizes]


def test_what_has_no_weights_is_refused():
    with pytest.raises(ValueError, match=r"^Kernelized: learner must be linear, with get_mahalanobis_matrix"):
        explain(Kernelized(RCA()), X, Y)
    with pytest.raises(ValueError, match=r"^RCA: n_fits must be an integer >= 2; got 1"):
        explain(RCA(), X, Y, n_fits=1)
