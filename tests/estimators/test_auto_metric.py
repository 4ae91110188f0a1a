"""The learner that held-out rows or classes choose."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearfar
from nearfar import AutoMetric
from nearfar.estimators.choice.auto_metric import CANDIDATES, accuracy, chosen, halves_of_classes, sampled, spread
from nearfar.evaluation import map_at_r
from nearfar.workflows.fitting import fit
from tests.learners import toy

QUICK = ("LFDA", "GMML", "DiscriminantWhitening")


def test_noise_is_left_out_where_rows_of_the_classes_are_held_out():
    X, y = toy(150)
    learner = AutoMetric(QUICK).fit(X, y)
    assert learner.chosen_ in QUICK
    scores = {name: np.mean(values) for name, values in learner.fold_scores_.items()}
    assert max(scores, key=scores.get) == learner.chosen_
    assert all(len(values) == 5 for values in learner.fold_scores_.values())


def test_the_plain_distance_of_standardized_columns_is_kept_if_none_is_better():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) * [1, 10, 0.1, 1]  # labels by chance
    learner = AutoMetric(("LFDA",)).fit(X, y)
    assert learner.chosen_ == "Euclidean"
    assert_allclose(learner.components_, np.diag(1 / X.std(axis=0)))


def test_classes_are_held_out_where_new_ones_will_come():
    rng = np.random.default_rng(0)
    y = np.arange(80) // 10
    X = np.c_[3 * rng.normal(size=(8, 2))[y] + rng.normal(size=(80, 2)), rng.normal(size=(80, 6))]
    learner = AutoMetric(QUICK, hold_out="classes").fit(X, y)
    assert learner.chosen_ in QUICK
    assert all(len(values) == 10 for values in learner.fold_scores_.values())
    assert learner.chosen_by_ == "MAP@R on held-out classes"
    for fold in halves_of_classes(y, rng):
        assert not set(y[fold.train]) & set(y[fold.test])
    scores = learner._scores(X, y, ("GMML(t=0.1)",), by_classes=True)
    fold = next(halves_of_classes(y, np.random.default_rng(0)))
    Z = nearfar.GMML(t=0.1).fit(X[fold.train], y[fold.train]).transform(X[fold.test])
    assert scores["GMML(t=0.1)"][0] == map_at_r(Z, y[fold.test], distance="euclidean")


def test_rows_of_few_classes_choose_among_learners_that_do_little_harm():
    X, y = toy(60)
    few = AutoMetric(hold_out="classes").fit(X, y)
    assert set(few.fold_scores_) == {"Euclidean", "DiscriminantWhitening", "GMML(t=0.1)"}
    assert all(len(values) == 5 for values in few.fold_scores_.values())
    assert few.chosen_by_ == "accuracy on held-out rows"


def test_a_single_fold_does_not_decide():
    for gain in np.geomspace(1e-3, 0.5, 200):  # rounding would decide: the mean gain equals its standard error
        assert chosen({"Euclidean": [1 - gain, 1, 1, 1, 1], "LFDA": [1, 1, 1, 1, 1]}) == "Euclidean"
    assert chosen({"Euclidean": [0.9, 0.95, 1, 1, 1], "LFDA": [1, 1, 1, 1, 1]}) == "LFDA"


def test_learners_may_have_settings():
    X, y = toy(150)
    learner = AutoMetric(("LFDA(n_components=2)",)).fit(X, y)
    assert learner.chosen_ == "LFDA(n_components=2)"
    assert learner.components_.shape[0] == 2
    with pytest.raises(ValueError, match="n_component"):
        AutoMetric(("LFDA(n_component=2)",)).fit(X, y)


@pytest.mark.parametrize("sizes", [(10, 10), (1, 3, 30), (2, 2, 2)])
def test_folds_spread_every_class(sizes):
    y = np.repeat(np.arange(len(sizes)), sizes)
    fold = spread(y, 5, np.random.default_rng(0))
    for k in range(len(sizes)):
        counts = np.bincount(fold[y == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert len(sampled(y, 5, np.random.default_rng(0))) <= 5


def test_accuracy_is_that_of_most_of_the_nearest_rows():
    from sklearn.neighbors import KNeighborsClassifier

    X, y = toy(120)
    fold = next(iter(AutoMetric(QUICK)._folds(y, np.random.default_rng(0))))
    plain = KNeighborsClassifier(1).fit(X[fold.train], y[fold.train]).score(X[fold.test], y[fold.test])
    assert accuracy(X, y, fold, 1) == pytest.approx(plain)
    assert accuracy(np.eye(3)[y], y, fold, 3) == 1


@pytest.mark.parametrize("name", ["KernelNCA", "TripletLoss", "AutoMetric", "Nothing", "SPDGMML"])
def test_only_linear_learners_are_compared(name):
    X, y = toy(30)
    with pytest.raises(
        ValueError, match=f"AutoMetric: learners must be linear learners of the catalog, .*got '{name}'"
    ):
        AutoMetric((name,)).fit(X, y)


def test_very_many_features_are_refused():
    with pytest.raises(ValueError, match="X has 5000 features; AutoMetric compares up to 4096"):
        AutoMetric().fit(np.random.default_rng(0).normal(size=(6, 5000)), [0, 0, 0, 1, 1, 1])


@pytest.mark.slow
def test_fit_without_a_learner_chooses_one(tmp_path):
    X, y = toy(80)
    np.savez(tmp_path / "rows.npz", X=X.astype(np.float32), y=y)
    said = fit(str(tmp_path / "rows.npz"), "auto", tmp_path / "auto.safetensors", split="rows")
    learner = nearfar.load(tmp_path / "auto.safetensors")
    assert f"AutoMetric chose {learner.chosen_} by accuracy on held-out rows: " in said
    assert set(learner.fold_scores_) == {"Euclidean", *CANDIDATES}
    said = fit(str(tmp_path / "rows.npz"), "auto", tmp_path / "few.safetensors")
    assert "by accuracy on held-out rows, as there are too few classes to hold any out: " in said
