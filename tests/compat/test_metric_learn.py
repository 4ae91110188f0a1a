"""The names and calls of metric-learn: they reach the learners of nearfar, and take what its users have."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import nearfar
from nearfar.compat import metric_learn
from tests.learners import all_pairs, data

X, Y = data(45)
PAIRS, SIGNS = all_pairs(Y)
SOME = np.random.default_rng(0).permutation(len(SIGNS))[:150]
PAIRS, SIGNS = PAIRS[SOME], SIGNS[SOME]
TRIPLETS = np.array([[i, j, k] for i in range(12) for j in range(12, 20) for k in (30, 40) if Y[i] == Y[j] != Y[k]])
QUADRUPLETS = np.array([[a, b, a, c] for a, b, c in TRIPLETS])
SMALL = {"max_iter": 20}
LABELED = {
    "LFDA": {"k": 3},
    "LMNN": SMALL,
    "NCA": SMALL,
    "MLKR": SMALL,
    "RCA_Supervised": {"n_chunks": 15},
    "ITML_Supervised": {"n_constraints": 50},
    "MMC_Supervised": {**SMALL, "n_constraints": 50},
    "SDML_Supervised": {"n_constraints": 50, "balance_param": 1e-3},
    "LSML_Supervised": {"n_constraints": 50},
    "SCML_Supervised": {"n_basis": 20},
}
PAIRED = {"ITML": {"max_iter": 50}, "MMC": SMALL, "SDML": {"balance_param": 1e-3}}


def make(name, settings, **more):
    return getattr(metric_learn, name)(**settings, **more)


def quietly(fit, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*args, **kwargs)


@pytest.mark.parametrize(("name", "settings"), LABELED.items(), ids=LABELED)
def test_learners_from_labels(name, settings):
    learner = quietly(make(name, settings).fit, X, Y)
    Z = learner.transform(X)
    assert_allclose(Z, X @ learner.components_.T)
    assert_allclose(learner.pair_distance(X[PAIRS]), np.linalg.norm(Z[PAIRS[:, 0]] - Z[PAIRS[:, 1]], axis=1))
    assert_array_equal(learner.pair_score(X[PAIRS]), -learner.pair_distance(X[PAIRS]))
    assert learner.get_metric()(X[0], X[1]) == pytest.approx(np.linalg.norm(Z[0] - Z[1]))
    by_numbers = quietly(make(name, settings, preprocessor=X).fit, np.arange(len(X)), Y)
    assert by_numbers.transform(np.arange(5)).shape == Z[:5].shape
    assert clone(learner).get_params().keys() == learner.get_params().keys()
    assert_array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)


@pytest.mark.parametrize(("name", "settings"), PAIRED.items(), ids=PAIRED)
def test_learners_from_pairs(name, settings):
    learner = quietly(make(name, settings).fit, X[PAIRS], SIGNS)
    by_callable = quietly(make(name, settings, preprocessor=lambda rows: X[rows]).fit, PAIRS, SIGNS)
    assert_allclose(by_callable.components_, learner.components_)
    assert_array_equal(by_callable.predict(PAIRS), learner.predict(X[PAIRS]))
    assert set(learner.predict(X[PAIRS])) <= {-1, 1}
    assert learner.score(X[PAIRS], SIGNS) == roc_auc_score(SIGNS, learner.decision_function(X[PAIRS]))
    learner.calibrate_threshold(X[PAIRS], SIGNS, strategy="max_tpr", min_rate=0.5)
    assert_array_equal(learner.predict(X[PAIRS]) == 1, learner.pair_distance(X[PAIRS]) <= learner.threshold_)
    assert learner.set_threshold(np.inf).predict(X[PAIRS]).min() == 1
    assert quietly(cross_val_score, make(name, settings), X[PAIRS], SIGNS, cv=3).shape == (3,)


def test_the_learner_is_that_of_nearfar():
    compat = metric_learn.ITML(gamma=2.0, tol=1e-8).fit(X[PAIRS], SIGNS, bounds=[1.0, 9.0])
    plain = nearfar.ITML(2.0, tol=1e-8, bounds=[1.0, 9.0]).fit(X, pairs=PAIRS, pair_labels=SIGNS)
    assert_allclose(compat.get_mahalanobis_matrix(), plain.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6)
    assert_array_equal(compat.bounds_, [1.0, 9.0])
    assert_allclose(metric_learn.Covariance().fit(X).get_mahalanobis_matrix(), np.linalg.inv(np.cov(X.T)), rtol=1e-6)
    chunks = np.where(np.arange(45) < 30, Y, -1)
    plain = nearfar.RCA(shrinkage=0).fit(X, chunklets=chunks)
    assert_allclose(metric_learn.RCA().fit(X, chunks).components_, plain.components_)


def test_triplets_and_quadruplets():
    scml = quietly(metric_learn.SCML(n_basis=30).fit, X[TRIPLETS])
    assert 0 <= scml.score(X[TRIPLETS]) <= 1
    assert set(scml.predict(X[TRIPLETS])) <= {-1, 1}
    lsml = quietly(metric_learn.LSML(preprocessor=X).fit, QUADRUPLETS)
    d = lsml.pair_distance(QUADRUPLETS[:, 2:]) - lsml.pair_distance(QUADRUPLETS[:, :2])
    assert_allclose(lsml.decision_function(QUADRUPLETS), d)
    assert_array_equal(lsml.predict(QUADRUPLETS), np.sign(d))


def test_learners_from_tuples_are_classifiers_so_that_every_fold_has_both_kinds_of_pairs():
    for name in ("ITML", "MMC", "SDML", "SCML", "LSML"):
        assert is_classifier(getattr(metric_learn, name)())
    order = np.argsort(SIGNS, kind="stable")
    scores = quietly(cross_val_score, metric_learn.ITML(max_iter=20), X[PAIRS[order]], SIGNS[order], cv=3)
    assert np.isfinite(scores).all()


def test_labels_of_pairs_may_be_a_column():
    with pytest.warns(UserWarning, match="A column-vector y was passed when a 1d array was expected"):
        found = metric_learn.ITML(max_iter=20).fit(X[PAIRS], SIGNS[:, None])
    assert_array_equal(found.components_, quietly(metric_learn.ITML(max_iter=20).fit, X[PAIRS], SIGNS).components_)


def test_lfda_looks_at_fewer_neighbors_than_there_are_features():
    found = metric_learn.LFDA(k=3).fit(X, Y).components_
    assert_allclose(found, nearfar.LFDA(n_neighbors=3, shrinkage=0).fit(X, Y).components_)
    assert_array_equal(metric_learn.LFDA().fit(X, Y).components_, found)
    with pytest.warns(UserWarning, match=r"^Chosen k \(4\) too large, using 3 instead\.$"):
        assert_array_equal(metric_learn.LFDA(k=4).fit(X, Y).components_, found)


def test_searches_take_the_settings():
    search = GridSearchCV(metric_learn.ITML(max_iter=50), {"gamma": [0.1, 1.0]}, cv=2)
    assert quietly(search.fit, X[PAIRS], SIGNS).best_params_["gamma"] in (0.1, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metric_learn.ITML().fit(PAIRS, SIGNS), "3D array of formed tuples expected by ITML. Found 2D array"),
        (
            lambda: metric_learn.ITML().fit(X[TRIPLETS], SIGNS),
            r"Tuples of 2 element\(s\) expected by ITML",
        ),
        (lambda: metric_learn.ITML().fit(X[PAIRS], SIGNS + 1), r"should contain only values in \[-1, 1\]"),
        (
            lambda: metric_learn.ITML().fit(X[PAIRS], SIGNS, bounds=[2.0, 1.0]),
            "First bound should be less",
        ),
        (
            lambda: metric_learn.ITML().fit(X[PAIRS], SIGNS, calibration_params={"strategy": "best"}),
            "Strategy can either",
        ),
        (lambda: metric_learn.ITML(preprocessor=3).fit(PAIRS, SIGNS), "Invalid type for the preprocessor"),
        (lambda: metric_learn.LFDA().fit(X, Y[:-1]), "inconsistent numbers of samples"),
    ],
)
def test_bad_calls_are_told_in_the_words_of_metric_learn(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_old_names_warn_and_work():
    with pytest.warns(FutureWarning, match='"num_constraints" parameter has been renamed to "n_constraints"'):
        assert metric_learn.ITML_Supervised(num_constraints=7).n_constraints == 7
    with pytest.warns(FutureWarning, match='"k" parameter has been renamed to "n_neighbors"'):
        assert metric_learn.LMNN(k=5).n_neighbors == 5
    for name in ("ITML", "ITML_Supervised", "MMC", "MMC_Supervised"):
        with pytest.warns(FutureWarning, match='"convergence_threshold" parameter has been renamed to "tol"'):
            assert getattr(metric_learn, name)(convergence_threshold=0.5).tol == 0.5
    learner = metric_learn.Covariance().fit(X)
    with pytest.warns(FutureWarning, match="score_pairs will be deprecated"):
        assert_array_equal(learner.score_pairs(X[PAIRS]), learner.pair_distance(X[PAIRS]))
    with pytest.raises(metric_learn.PreprocessorError, match="error occurred when trying to use the preprocessor"):
        metric_learn.Covariance(preprocessor=X).fit(np.array([0, 99]))


@pytest.mark.parametrize("name", ["LFDA", "LMNN", "NCA", "MLKR", "RCA_Supervised"])
def test_numbers_of_components_are_refused_in_the_words_of_metric_learn(name):
    for n_components in (0, 5):
        with pytest.raises(ValueError, match=r"^Invalid n_components, must be in \[1, 4\]$"):
            make(name, LABELED[name], n_components=n_components).fit(X, Y)


def test_strategies_are_refused_in_the_words_of_metric_learn():
    learner = make("ITML", PAIRED["ITML"])
    told = r'^Strategy can either be "accuracy", "f_beta" or "max_tpr" or "max_tnr"\. Got "weird" instead\.$'
    with pytest.raises(ValueError, match=told):
        learner.fit(X[PAIRS], SIGNS, calibration_params={"strategy": "weird"})
    assert not hasattr(learner, "components_")  # it is said before the fit


def test_a_metric_takes_vectors():
    metric = quietly(make("ITML", PAIRED["ITML"]).fit, X[PAIRS], SIGNS).get_metric()
    assert metric(X[:1], X[1:2].T) == metric(X[0], X[1])
    for wrong in (X[:4], X[:2]):
        with pytest.raises(ValueError, match="1-D"):
            metric(wrong, X[0])


def test_bounds_are_two_numbers_in_any_shape():
    def bounds_of(bounds):
        return quietly(metric_learn.ITML(max_iter=5).fit, X[PAIRS], SIGNS, bounds=bounds).bounds_

    for bounds in ([1.0, 9.0], [[1.0, 9.0]], np.array([[1], [9]])):
        assert_array_equal(bounds_of(bounds), [1.0, 9.0])
    for wrong in ([1.0], [1.0, 2.0, 3.0], []):
        with pytest.raises(ValueError, match="`bounds` should be an array-like of two elements"):
            bounds_of(wrong)


@pytest.mark.parametrize("name", PAIRED)
def test_equal_pairs_of_points_are_pairs_as_given(name):
    pairs = np.concatenate([PAIRS, PAIRS[:2], PAIRS[:2]])
    signs = np.r_[SIGNS, 1, 1, -1, -1]  # annotators disagree
    assert np.isfinite(quietly(make(name, PAIRED[name]).fit, X[pairs], signs).components_).all()
    with pytest.warns(UserWarning, match="1 collapsed pairs found"):
        make(name, PAIRED[name]).fit(X[np.concatenate([PAIRS, [[3, 3]]])], np.r_[SIGNS, 1])


DRAWING = [name for name in LABELED if name.endswith("_Supervised")]


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("labels", [np.int64, np.float64], ids=["int", "float"])
def test_rows_with_a_negative_label_have_none(name, labels):
    y = Y.astype(labels)
    y[::4] = -1
    y[::8] = -2
    moved = np.where(y[:, None] < 0, 50 * np.random.default_rng(1).normal(size=X.shape), X)
    learner = make(name, LABELED[name], random_state=0)
    found = quietly(clone(learner).fit, X, y).components_
    assert_array_equal(quietly(clone(learner).fit, moved, y).components_, found)
    assert_array_equal(quietly(clone(learner).fit, X[y >= 0], y[y >= 0]).components_, found)
    with pytest.raises(ValueError, match="every label is negative"):
        learner.fit(X, np.full(len(X), -1))


@pytest.mark.parametrize("name", [name for name in LABELED if name not in DRAWING])
def test_negative_labels_are_classes_where_nothing_is_drawn(name):
    found = quietly(make(name, LABELED[name]).fit, X, Y - 1).components_
    assert_allclose(found, quietly(make(name, LABELED[name]).fit, X, Y).components_)


def test_triplets_of_equal_points_are_left_out():
    twice = np.concatenate([TRIPLETS, [[3, 3, 30]]])
    with pytest.warns(UserWarning, match="1 triplets hold a point twice"):
        found = metric_learn.SCML(n_basis=20, random_state=0).fit(X[twice])
    whole = quietly(metric_learn.SCML(n_basis=20, random_state=0).fit, X[TRIPLETS])
    assert_allclose(found.components_, whole.components_)


@pytest.mark.parametrize("seed", [3, np.int64(3), np.random.RandomState], ids=["int", "NumPy int", "RandomState"])
def test_a_random_prior_follows_the_seed(seed):
    def fitted():
        state = seed(3) if seed is np.random.RandomState else seed
        learner = metric_learn.ITML_Supervised(prior="random", n_constraints=50, max_iter=20, random_state=state)
        return quietly(learner.fit, X, Y).components_

    assert_array_equal(fitted(), fitted())


def test_weights_of_drawn_quadruplets_count():
    def fitted(weights):
        learner = metric_learn.LSML_Supervised(n_constraints=50, weights=weights, random_state=0)
        return quietly(learner.fit, X, Y)

    weights = np.random.default_rng(0).random(50)
    found = fitted(weights)
    numbers = found.learner_.quadruplets_
    expected = nearfar.LSML(max_iter=1000, tol=1e-3).fit(X, quadruplets=numbers, quadruplet_weights=weights)
    assert_allclose(found.components_, expected.components_)
    assert not np.allclose(found.components_, fitted(weights[::-1]).components_, rtol=1e-3)
    with pytest.raises(ValueError, match="weights must be 50 finite numbers"):
        fitted(weights[:9])
