"""The contract with scikit-learn on arrays of pairs: scores, searches, probabilities and folds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from nearfar import GMML, ITML, LSML, NCA, RCA, SCML
from nearfar.estimators import PairClassifier, TupleKFold
from nearfar.estimators.base import MetricLearner
from nearfar.estimators.probability import fit_sigmoid, similar_probability
from tests.learners import all_pairs, data

X, Y = data(40)
PAIRS, SIGNS = all_pairs(Y)
SOME = np.random.default_rng(0).permutation(len(SIGNS))[:200]
POINTS, TOLD = X[PAIRS[SOME]], SIGNS[SOME]


@pytest.mark.parametrize("learner", [GMML(), ITML(max_iter=50)])
def test_pairs_of_points_are_pairs_of_rows(learner):
    by_points = learner.fit(POINTS, TOLD)
    threshold, L = by_points.threshold_, by_points.components_
    used = np.unique(PAIRS[SOME])
    numbers = np.searchsorted(used, PAIRS[SOME])
    by_rows = learner.fit(X[used], pairs=numbers, pair_labels=TOLD)
    assert_allclose(by_points.pair_distance(POINTS), by_rows.pair_distance(POINTS), rtol=1e-6)
    assert_allclose(L.T @ L, by_rows.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-9)
    assert threshold == pytest.approx(by_rows.threshold_)


@pytest.mark.filterwarnings("ignore:SCML. Newton's method stopped")
def test_points_may_be_lists_and_objects():
    expected = GMML().fit(POINTS, TOLD)
    for points in (POINTS.tolist(), [*POINTS], POINTS.astype(object)):
        found = GMML().fit(points, TOLD.tolist())
        assert_array_equal(found.components_, expected.components_)
        assert found.threshold_ == expected.threshold_
        assert found.score(points, TOLD) == expected.score(POINTS, TOLD)
        assert_array_equal(found.predict(points), expected.predict(POINTS))
    triplets = X[np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [1, 3, 12]])]
    lists, arrays = (SCML(n_basis=8, max_iter=20, random_state=0).fit(given) for given in (triplets.tolist(), triplets))
    assert_array_equal(lists.components_, arrays.components_)
    four = X[np.array([[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])]
    assert_array_equal(LSML().fit(four.tolist()).components_, LSML().fit(four).components_)


@pytest.mark.parametrize("points", [[["a", "b"], ["c", "d"]], [[[1.0, 2.0], [3.0]], [[1.0], [2.0]]], [[["a"], ["b"]]]])
def test_points_that_are_no_numbers_are_refused(points):
    with pytest.raises(ValueError, match=r"^GMML: "):
        GMML().fit(points, [1] * len(points))


def test_pairs_of_points_are_used_as_given():
    counts = np.round(X)  # many rows are equal, as those of counts or of survey answers
    order = np.random.default_rng(1).permutation(len(SIGNS))[:150]
    # the first pair again, with both labels, and pairs of equal points
    numbers = np.concatenate([PAIRS[order], PAIRS[order[[0, 0]]], np.repeat(np.arange(3)[:, None], 2, axis=1)])
    signs = np.r_[SIGNS[order], 1, -1, 1, 1, -1]
    points = counts[numbers]
    apart = np.arange(2 * len(numbers)).reshape(-1, 2)  # each point is a row of its own
    by_points = GMML().fit(points, signs)
    by_rows = GMML().fit(points.reshape(-1, 4), pairs=apart, pair_labels=signs)
    assert_allclose(by_points.pair_distance(points), by_rows.pair_distance(points), rtol=1e-6, atol=1e-12)
    assert by_points.threshold_ == pytest.approx(by_rows.threshold_)
    with pytest.raises(ValueError, match=r"^GMML: pair_labels must have one entry per pair, shape \(200,\)"):
        GMML().fit(POINTS, TOLD[:-1])
    with pytest.raises(ValueError, match=r"^GMML: pair_labels must be \+1 \(similar\) or -1"):
        GMML().fit(POINTS, TOLD + 5)


@pytest.mark.parametrize("of_points", [True, False])
def test_annotators_may_disagree(of_points):
    numbers = np.concatenate([PAIRS[SOME], PAIRS[SOME[:3]][:, ::-1]])
    signs = np.r_[TOLD, -TOLD[:3]]

    def fitted(numbers, signs, **more):
        if of_points:
            return GMML().fit(X[numbers], signs, **more)
        return GMML().fit(X, pairs=numbers, pair_labels=signs, **more)

    told = rf"pairs\[{0 if TOLD[0] > 0 else 200}\] is similar and pairs\[{200 if TOLD[0] > 0 else 0}\] is not"
    with pytest.raises(ValueError, match=rf"^GMML: pair_labels must give each pair one label; .*{told}.*conflicts="):
        fitted(numbers, signs, conflicts="raise")
    if not of_points:
        with pytest.raises(ValueError, match="must give each pair one label"):
            fitted(numbers, signs)
    with pytest.warns(UserWarning, match=r"^GMML: 6 of 203 pairs have both labels; they were left out"):
        dropped = fitted(numbers, signs, conflicts="drop")
    assert_allclose(dropped.components_, fitted(PAIRS[SOME[3:]], TOLD[3:]).components_)
    kept = fitted(numbers, signs, conflicts="keep")
    apart = np.arange(2 * len(numbers)).reshape(-1, 2)
    expected = GMML().fit(X[numbers].reshape(-1, 4), pairs=apart, pair_labels=signs)
    assert_allclose(kept.pair_distance(POINTS), expected.pair_distance(POINTS), rtol=1e-6)
    with pytest.raises(ValueError, match=r"conflicts must be one of|conflicts: "):
        fitted(numbers, signs, conflicts="ignore")
    with pytest.raises(ValueError, match='conflicts="drop" must leave some pairs'):
        fitted(PAIRS[[0, 0]], [1, -1], conflicts="drop")
    with pytest.raises(ValueError, match="conflicts must be given with pairs"):
        GMML().fit(X, Y, conflicts="keep")


def test_quadruplets_of_equal_points_are_those_of_equal_rows():
    numbers = np.array([[0, 1, 2, 2], [3, 3, 4, 5], [6, 7, 8, 9], [1, 2, 3, 9]])
    by_points = LSML().fit(X[numbers])
    rows = X[numbers].reshape(-1, 4)
    by_rows = LSML().fit(rows, quadruplets=np.arange(16).reshape(4, 4))
    assert_allclose(by_points.components_, by_rows.components_, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match=r"^LSML: quadruplets must join different rows"):
        LSML().fit(X, quadruplets=numbers)
    triplets = np.array([[0, 1, 1], [2, 2, 3], [4, 5, 6], [7, 8, 7]])
    by_points = LSML().fit(X[triplets])
    by_rows = LSML().fit(X[triplets].reshape(-1, 4), triplets=np.arange(12).reshape(4, 3))
    assert_allclose(by_points.components_, by_rows.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:SCML. Newton's method stopped")
def test_triplets_and_quadruplets_of_points():
    triplets = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [1, 3, 12]])
    a = SCML(n_basis=8, max_iter=20, random_state=0).fit(X[triplets])
    assert np.isfinite(a.transform(X)).all()
    quadruplets = np.array([[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])
    by_points = LSML(max_iter=50).fit(X[quadruplets])
    assert by_points.components_.shape == (4, 4)


def test_score_of_pairs_is_the_area_under_the_curve():
    learner = GMML().fit(X, Y)
    assert learner.score(POINTS, TOLD) == pytest.approx(roc_auc_score(TOLD, learner.pair_score(POINTS)))


def test_score_of_rows_is_that_of_the_nearest_other_row():
    learner = RCA().fit(X, Y)
    Z = learner.transform(X)
    D = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(D, np.inf)
    assert learner.score(X, Y) == np.mean(Y[D.argmin(axis=1)] == Y)
    with pytest.raises(ValueError, match=r"^RCA: y must hold one class per row of X, shape \(40,\)"):
        learner.score(X, Y[:-1])


@pytest.mark.filterwarnings("ignore:NCA. L-BFGS stopped after 5")
def test_searches_work_on_pairs_and_on_rows():
    scores = cross_val_score(GMML(), POINTS, TOLD, cv=3)
    assert scores.shape == (3,)
    assert (scores > 0.5).all()
    search = GridSearchCV(GMML(), {"reg": [1e-3, 0.1, 10.0]}, cv=3).fit(POINTS, TOLD)
    assert search.best_score_ == pytest.approx(search.cv_results_["mean_test_score"].max())
    assert set(search.predict(POINTS)) <= {-1, 1}
    assert GridSearchCV(NCA(max_iter=5), {"n_components": [1, 2]}, cv=2).fit(X, Y).best_score_ > 0.3


@pytest.mark.parametrize("labels", [TOLD, TOLD > 0, np.where(TOLD > 0, "same", "other")])
def test_a_classifier_of_pairs(labels):
    model = PairClassifier(GMML()).fit(POINTS, labels)
    similar = np.unique(labels)[1]
    assert_array_equal(model.classes_, np.unique(labels))
    assert_array_equal(model.predict(POINTS) == similar, model.decision_function(POINTS) >= 0)
    p = model.predict_proba(POINTS)
    assert_allclose(p.sum(axis=1), 1)
    order = np.argsort(model.learner_.pair_distance(POINTS))
    assert (np.diff(p[order, 1]) <= 0).all()
    assert model.score(POINTS, labels) >= np.mean(labels == labels[0])


def test_a_classifier_of_pairs_is_calibrated_on_pairs_held_out():
    model = CalibratedClassifierCV(PairClassifier(GMML()), cv=3).fit(POINTS, TOLD)
    p = model.predict_proba(POINTS)
    assert p.shape == (len(POINTS), 2)
    assert roc_auc_score(TOLD, p[:, 1]) > 0.6
    assert cross_val_score(PairClassifier(GMML()), POINTS, TOLD, cv=3).shape == (3,)
    with pytest.raises(ValueError, match=r"^PairClassifier: X must hold pairs of points, shape \(m, 2, d\); got"):
        PairClassifier(GMML()).fit(X, Y)
    with pytest.raises(ValueError, match="two values, the larger one for similar pairs; got"):
        PairClassifier(GMML()).fit(POINTS, np.zeros(len(POINTS)))


def test_probabilities_maximize_the_likelihood():
    rng = np.random.default_rng(0)
    d = rng.gamma(2.0, size=120)
    similar = rng.random(120) < 1 / (1 + np.exp(2 * d - 3))
    slope, offset = fit_sigmoid(d, similar)
    n = np.array([(~similar).sum(), similar.sum()])
    t = np.where(similar, (n[1] + 1) / (n[1] + 2), 1 / (n[0] + 2))

    def loss(w):
        u = w[1] - w[0] * d
        return np.sum(np.logaddexp(0, u) - t * u)

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000})
    assert_allclose([slope, offset], best.x, rtol=1e-4)
    assert_allclose(similar_probability(d, (slope, offset)), 1 / (1 + np.exp(slope * d - offset)))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_probabilities_are_finite_where_kinds_are_apart_or_equal(scale):
    similar = np.arange(10) < 5
    slope, offset = fit_sigmoid(scale * np.where(similar, 1.0, 9.0), similar)
    assert np.isfinite([slope, offset]).all()
    assert slope > 0
    p = similar_probability(np.full(10, 2.0), fit_sigmoid(np.full(10, 2.0), similar))
    assert_allclose(p, 0.5)
    with pytest.raises(ValueError, match="both similar and dissimilar"):
        fit_sigmoid(np.ones(3), np.ones(3, dtype=bool))


def test_probabilities_need_calibration_and_travel_in_files(tmp_path):
    learner = GMML().fit(X, Y)
    assert not hasattr(learner, "predict_proba")
    learner.calibrate_probability(PAIRS[::3], SIGNS[::3], X=X)
    p = learner.predict_proba(PAIRS, X)
    learner.save(tmp_path / "x")
    assert_array_equal(MetricLearner.load(tmp_path / "x").predict_proba(PAIRS, X), p)
    learner.fit(X, Y)
    assert not hasattr(learner, "predict_proba")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["names", "numbers", "points", "groups"])
def test_folds_of_pairs_keep_entities_apart(kind, shuffle):
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 20, size=(150, 2))
    given = {"names": np.array([f"p{k:02}" for k in range(20)])[numbers], "numbers": numbers, "points": X[numbers]}
    pairs = given.get(kind, X[numbers])
    groups = numbers if kind == "groups" else None
    folds = TupleKFold(4, shuffle=shuffle, random_state=0)
    tested = []
    for train, test in folds.split(pairs, groups=groups):
        assert len(test) > 0
        assert not set(numbers[train].ravel()) & set(numbers[test].ravel())
        tested += test.tolist()
    assert len(tested) == len(set(tested))
    assert {k for k, (i, j) in enumerate(numbers) if i == j} <= set(tested)
    assert folds.get_n_splits() == 4


def test_folds_of_pairs_serve_cross_validation():
    scores = cross_val_score(GMML(), POINTS, TOLD, cv=TupleKFold(3, shuffle=True, random_state=0))
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="n_splits must be at most 3, the number of entities; got 4"):
        next(TupleKFold(4).split(np.array([[0, 1], [1, 2]])))
    with pytest.raises(ValueError, match=r"groups must name the two entities of each pair, shape \(200, 2\)"):
        next(TupleKFold(3).split(POINTS, groups=np.arange(200)))


def relative(size: int, m: int = 120) -> np.ndarray:
    """Tuples of row numbers of which the first two are of one class, and the last two are not."""
    X, y = data()
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(X), size=(50 * m, size))
    fits = (y[drawn[:, 0]] == y[drawn[:, 1]]) & (y[drawn[:, -1]] != y[drawn[:, 0 if size == 3 else 2]])
    return drawn[fits][:m]


@pytest.mark.parametrize(("learner", "size"), [(SCML(n_basis=20), 3), (LSML(), 3), (LSML(), 4)])
def test_triplets_and_quadruplets_are_scored_and_cross_validated(learner, size):
    X, _ = data()
    T = relative(size)
    learner = learner.fit(X[T])
    first = [np.linalg.norm(learner.transform(X[[a]]) - learner.transform(X[[b]])) for a, b in T[:, :2]]
    second = [
        np.linalg.norm(learner.transform(X[[a]]) - learner.transform(X[[b]]))
        for a, b in T[:, [0 if size == 3 else 2, -1]]
    ]
    expected = np.mean([1.0 if a < b else 0.5 if a == b else 0.0 for a, b in zip(first, second, strict=True)])
    assert learner.score(X[T]) == pytest.approx(expected)
    folds = TupleKFold(2, shuffle=True, random_state=0)
    for numbers, groups in ((X[T], None), (X[T], T), (T, None)):
        for train, test in folds.split(numbers, groups=groups):
            assert len(test) > 0
            assert not set(T[train].ravel()) & set(T[test].ravel())
    scores = cross_val_score(learner, X[T], cv=folds)
    assert (scores > 0.5).all()
    with pytest.raises(ValueError, match=f"{type(learner).__name__}: requires y to be passed"):
        learner.score(X)
