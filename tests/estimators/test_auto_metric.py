"""The learner that held-out rows or classes choose."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearfar
from nearfar import AutoMetric
from nearfar.estimators.choice.auto_metric import (
    CANDIDATES,
    accuracy,
    chosen,
    halves_of_classes,
    sampled,
    spread,
    spread_groups,
)
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


@pytest.mark.parametrize("hold_out", ["rows", "classes"])
def test_the_rows_of_a_group_are_on_one_side_of_every_fold(hold_out):
    """Rows of a group are alike whatever their class, so that they would tell each other's."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 6
    group = rng.integers(60, size=120)
    X = np.c_[np.eye(6)[y] + rng.normal(size=(120, 6)), 5 * rng.normal(size=(60, 6))[group]]
    folds = list(halves_of_classes(y, rng, group) if hold_out == "classes" else AutoMetric()._folds(y, rng, group))
    assert len(folds) == (10 if hold_out == "classes" else 5)
    for fold in folds:
        assert not set(group[fold.train]) & set(group[fold.test])
    names = [f"person {k}" for k in group]
    learner = AutoMetric(("LFDA",), hold_out=hold_out, n_folds=3).fit(X, y, groups=names)
    again = rng.permutation(120)
    other = AutoMetric(("LFDA",), hold_out=hold_out, n_folds=3).fit(X[again], y[again], groups=group[again])
    assert_allclose(other.fold_scores_["Euclidean"], learner.fold_scores_["Euclidean"])
    if hold_out == "classes":
        fold = next(halves_of_classes(y, np.random.default_rng(0), group))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        plain = learner._scores(Z, y, (), by_classes=True, groups=group)["Euclidean"][0]
        assert plain == map_at_r(Z[fold.test], y[fold.test], groups=group[fold.test], distance="euclidean")


def test_groups_spread_over_the_folds():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), rng.integers(1, 6, size=40))
    y = group % 4
    fold = spread_groups(y, group, 5, rng)
    counts = np.array([np.bincount(fold[y == k], minlength=5) for k in range(4)])
    assert counts.max(axis=1).max() - counts.min() <= 5  # of at most five rows in a group
    assert all(len(set(fold[group == one])) == 1 for one in set(group))


def test_groups_that_cannot_be_used_are_named():
    X, y = toy(60)
    with pytest.warns(UserWarning, match="AutoMetric: groups are not used, because all rows of every class are in one"):
        alone = AutoMetric(("LFDA",)).fit(X, y, groups=y)
    assert alone.fold_scores_ == AutoMetric(("LFDA",)).fit(X, y).fold_scores_
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        AutoMetric(("LFDA",)).fit(X, y, groups=y[1:])


def test_fit_holds_out_the_groups_of_a_table(tmp_path, monkeypatch):
    X, y = toy(80)
    lines = [
        "label,group,a,b",
        *(f"{k},g{i % 20},{a},{b}" for i, (k, (a, b)) in enumerate(zip(y, X[:, :2], strict=True))),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    seen = []
    monkeypatch.setattr(AutoMetric, "fit", recorded(AutoMetric.fit, seen))
    fit(str(tmp_path / "rows.csv"), "AutoMetric(learners=('LFDA',))", tmp_path / "x.safetensors", split="rows")
    assert {text[:1] for text in seen[0]["groups"]} == {"g"}


def recorded(function, seen):
    """A function that notes the keywords with which it is called."""

    @functools.wraps(function)
    def call(*given, **named):
        seen.append(named)
        return function(*given, **named)

    return call


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
