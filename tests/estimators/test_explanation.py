"""Weights of features and their intervals, against plain loops and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from nearfar import GMML, LFDA, LSML, RCA, SCML, CovarianceMetric, Kernelized
from nearfar.estimators import Explanation, explain
from nearfar.estimators.explanation import halves
from tests.learners import all_pairs, data, toy

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
    assert (found.low <= found.high).all()
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


def test_pairs_and_triplets_are_explained():
    A, a = toy(120)
    drawn = np.random.default_rng(0).permutation(7140)[:800]
    pairs, similar = (every[drawn] for every in all_pairs(a))
    triplets = np.array(
        [
            (i, j, k)
            for i, j, k in np.random.default_rng(0).integers(120, size=(2000, 3))
            if i != j and a[i] == a[j] != a[k]
        ]
    )
    of_pairs = []
    for learner, given in (
        (GMML(), {"X": A, "pairs": pairs, "pair_labels": similar}),
        (GMML(), {"X": A[pairs], "y": similar}),
        (SCML(), {"X": A, "triplets": triplets}),
        (SCML(), {"X": A[triplets]}),
        (LSML(), {"X": A, "quadruplets": triplets[:, [0, 1, 0, 2]]}),
    ):
        found = explain(learner, **given, n_fits=3)
        assert_allclose(found.weights.sum(), 1)
        if isinstance(learner, SCML):  # the others stay near their priors
            assert min(found.weights[:2]) > max(found.weights[2:])
        of_pairs += [found.weights] * isinstance(learner, GMML)
    assert_allclose(*of_pairs, rtol=1e-6)  # lists and points


def test_a_warning_of_halves_is_given_once():
    doubled = np.c_[X, X[:, :1]]
    with pytest.warns(UserWarning, match="LFDA") as caught:
        explain(LFDA(shrinkage=0), doubled, Y, n_fits=5)
    texts = [str(one.message) for one in caught]
    assert len(texts) == 2
    assert texts[0].startswith("LFDA: the local scatter")
    assert texts[1].startswith("LFDA: 5 of 5 fits on halves, such as: the local scatter")


def test_intervals_show_where_halves_disagree():
    learner = CovarianceMetric().fit(X * [9, 1, 1, 1])
    of_others = explain(learner, X, Y, prefit=True, n_fits=9)
    assert (of_others.weights < of_others.low).any()  # of a metric that the rows do not give
    outside = [line for line in of_others.table().splitlines() if line.endswith("outside")]
    assert len(outside) == np.sum((of_others.weights < of_others.low) | (of_others.weights > of_others.high))


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
