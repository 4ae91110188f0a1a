"""Metrics with target distances: trivial limits, certificate, both losses, every kind of target."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar import MDSMetric
from nearfar.spectral.embedding.mds import target_fit, targets
from tests import conic
from tests.learners import data, distances, fit
from tests.references import mds as loops


def test_unchanged_targets_give_the_identity():
    X, _ = data()
    i, j = targets.listed(60, None, 0)
    found = target_fit.sstress(target_fit.ListedTargets(X, i, j, np.sum((X[i] - X[j]) ** 2, axis=1)), 0.3 * np.eye(4))
    assert_allclose(found.x.T @ found.x, np.eye(4), atol=1e-4)


@pytest.mark.parametrize("a", [0.5, 3.0])
def test_equal_factors_give_a_multiple_of_the_identity(a):
    X, y = data()
    assert_allclose(fit(MDSMetric(a=a, b=a), X, y).get_mahalanobis_matrix(), a * np.eye(4), atol=1e-4 * a)


def test_all_pairs_are_listed_once():
    i, j = targets.listed(40, None, 0)
    assert (i < j).all()
    assert len(np.unique(i * 40 + j)) == 40 * 39 // 2
    i, j = targets.listed(40, 30, 0)
    assert len(np.unique(i * 40 + j)) == 30


def test_class_sums_equal_listed_pairs():
    X, y = data()
    X = X - X.mean(axis=0)
    i, j = targets.listed(60, None, 0)
    square = np.sum((X[i] - X[j]) ** 2, axis=1)
    sums = target_fit.ClassTargets(X, y, 0.3, 2.0)
    pairs = target_fit.ListedTargets(X, i, j, square * np.where(y[i] == y[j], 0.3, 2.0))
    A = np.random.default_rng(0).normal(size=(4, 4))
    for name in ("S", "T", "weight", "constant"):
        assert_allclose(getattr(sums, name), getattr(pairs, name), rtol=1e-9)
    for of_sums, of_pairs in zip(sums.misfit(A.T @ A), pairs.misfit(A.T @ A), strict=True):
        assert_allclose(of_sums, of_pairs, rtol=1e-9)


def test_optimum_equals_a_generic_solver():
    X, y = data(15, 2)
    Q, t = zip(*((conic.svec(np.outer(z, z)), t) for z, t in loops.terms(X, y, a=0.0, b=3.0)), strict=True)
    Q, t = np.stack(Q), np.array(t)
    unit = t.max()
    Q, t = Q / unit, t / unit
    x = conic.solve(2 * Q.T @ Q, -2 * Q.T @ t, [(-np.eye(3), np.zeros(3), "psd", 2)])
    learner = fit(MDSMetric(a=0.0, b=3.0, tol=1e-10), X, y)
    assert_allclose(learner.get_mahalanobis_matrix(), conic.smat(x), atol=1e-4)
    best = loops.objective(conic.smat(x), X, y, a=0.0, b=3.0)
    assert learner.objective_ <= best * (1 + 1e-7)
    assert learner.objective_ - learner.duality_gap_ <= best


def test_gap_bounds_the_distance_to_the_optimum():
    X, y = data()
    best = fit(MDSMetric(tol=1e-10), X, y).objective_
    for steps in (1, 3, 10):
        learner = fit(MDSMetric(max_iter=steps), X, y)
        assert learner.objective_ - learner.duality_gap_ <= best * (1 + 1e-9)


@pytest.mark.parametrize("weighting", ["equal", "relative"])
@pytest.mark.parametrize("n_components", [None, 2])
def test_stress_falls_in_every_step(weighting, n_components):
    X, y = data()
    learner = fit(MDSMetric(loss="stress", weighting=weighting, n_components=n_components), X, y)
    assert (np.diff(learner.history_) <= 1e-9 * learner.history_[0]).all()
    assert learner.history_[-1] < learner.history_[0]
    assert not hasattr(learner, "duality_gap_")
    M, f, t = learner.get_mahalanobis_matrix(), 0.0, np.array([t for _, t in loops.terms(X, y)])
    for (z, target), w in zip(loops.terms(X, y), 1 / np.maximum(t, np.quantile(t, 0.05)), strict=True):
        f += (1.0 if weighting == "equal" else w) * (np.sqrt(target) - np.sqrt(max(z @ M @ z, 0.0))) ** 2
    assert_allclose(f, learner.objective_, rtol=1e-8)
    cut = fit(MDSMetric(loss="stress", weighting=weighting, n_components=n_components, max_iter=3, tol=1e-15), X, y)
    assert (cut.n_iter_, cut.converged_, len(cut.history_)) == (3, False, 4)


def test_relative_weights_of_sstress():
    X, y = data()
    learner = fit(MDSMetric(weighting="relative"), X, y)
    t = np.array([t for _, t in loops.terms(X, y)])
    M, bound = learner.get_mahalanobis_matrix(), np.quantile(t, 0.05)
    f = sum((t - z @ M @ z) ** 2 / max(t, bound) ** 2 for z, t in loops.terms(X, y))
    assert_allclose(f, learner.objective_, rtol=1e-8)
    assert learner.converged_


def test_distances_kept_in_fewer_dimensions():
    X, y = data()
    X = X * np.array([3.0, 2.0, 0.01, 0.01])
    learner = fit(MDSMetric("euclidean", n_components=2), X, y)
    assert learner.components_.shape == (2, 4)
    assert_allclose(distances(learner, X), np.linalg.norm(X[:, None] - X, axis=2)[np.triu_indices(60, 1)], atol=0.05)
    for n_components in (None, 4):
        with pytest.raises(ValueError, match=r"^MDSMetric: n_components must be below .* with targets=.euclidean."):
            MDSMetric("euclidean", n_components=n_components).fit(X, y)


def test_every_kind_of_target_says_the_same():
    X, y = data()
    M = fit(MDSMetric(), X, y).get_mahalanobis_matrix()
    same = y[:, None] == y
    table = np.linalg.norm(X[:, None] - X, axis=2) * np.where(same, 0.5, 1.5)
    i, j = np.triu_indices(60, 1)
    given = {
        "table": fit(MDSMetric(table), X, y),
        "function": fit(MDSMetric(lambda square, alike: square * np.where(alike, 0.25, 2.25)), X, y),
        "pairs": fit(MDSMetric(), X, pairs=np.stack([i, j], axis=1), distances=table[i, j]),
        "drawn": fit(MDSMetric(n_pairs=60 * 59 // 2), X, y),
    }
    for learner in given.values():
        assert_allclose(learner.get_mahalanobis_matrix(), M, atol=2e-4 * np.abs(M).max())


@pytest.mark.parametrize("settings", [{"targets": "euclidean", "n_components": 2}, {"targets": "table"}])
def test_targets_that_no_class_decides_need_no_labels(settings):
    X, y = data()
    table = np.linalg.norm((X[:, None] - X) * [1.0, 2.0, 0.5, 1.0], axis=2)
    settings = settings | ({"targets": table} if settings["targets"] == "table" else {})
    M = fit(MDSMetric(**settings), X).get_mahalanobis_matrix()
    for labels in (y, np.zeros(60)):
        assert_allclose(fit(MDSMetric(**settings), X, labels).get_mahalanobis_matrix(), M)
    with pytest.raises(ValueError, match=r"^MDSMetric: requires y"):
        MDSMetric(lambda square, alike: square).fit(X)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3])
def test_targets_that_a_metric_meets_end_the_search(noise):
    X, y = data()
    A = np.diag([1.0, 2.0, 0.5, 3.0])
    Z = (X[:, None] - X) @ A
    error = np.random.default_rng(0).normal(size=(60, 60))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = MDSMetric(np.linalg.norm(Z, axis=2) * (1 + noise * (error + error.T))).fit(X, y)
    assert_allclose(learner.get_mahalanobis_matrix(), A @ A, atol=max(1e-4, 100 * noise))
    assert learner.n_iter_ < 200


@pytest.mark.parametrize("loss", ["sstress", "stress"])
def test_targets_that_are_all_0_end_the_search(loss):
    X, y = data()
    pairs = np.arange(6).reshape(3, 2)
    learner = fit(MDSMetric(loss=loss), X, pairs=pairs, distances=np.zeros(3))
    assert learner.converged_
    assert_allclose(learner.pair_distance(pairs, X), 0.0, atol=0.1)
    nothing = fit(MDSMetric(a=0.0, b=0.0, loss=loss), X, y)
    assert nothing.converged_
    assert_allclose(nothing.transform(X), 0.0, atol=1e-6)


def test_unknown_rows_have_no_targets():
    X, y = data()
    hidden = np.where(np.arange(60) < 20, -1, y)
    M = fit(MDSMetric(), X, hidden, unlabeled=-1).get_mahalanobis_matrix()
    assert_allclose(M, fit(MDSMetric(), X[20:], y[20:]).get_mahalanobis_matrix(), atol=1e-4 * np.abs(M).max())


def test_rotation_turns_the_metric():
    X, y = data()
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    M, N = (fit(MDSMetric(), rows, y).get_mahalanobis_matrix() for rows in (X, X @ Q.T))
    assert_allclose(N, Q @ M @ Q.T, atol=1e-4 * np.abs(M).max())


def test_warm_start_goes_on():
    X, y = data()
    learner = fit(MDSMetric(warm_start=True), X, y)
    first = learner.n_iter_
    assert fit(learner, X, y).n_iter_ <= max(1, first // 2)


@pytest.mark.parametrize(
    ("settings", "told", "word"),
    [
        ({"a": -1.0}, {}, "a must"),
        ({"loss": "strain"}, {}, "loss"),
        ({"weighting": "none"}, {}, "weighting"),
        ({"targets": "far"}, {}, "targets"),
        ({"targets": -np.ones((60, 60))}, {}, "targets"),
        ({"targets": np.ones((61, 61))}, {}, "targets must be a table of 60 x 60"),
        ({"targets": np.triu(np.ones((60, 60)))}, {}, "targets must be a symmetric"),
        ({"targets": lambda square, same: -square}, {}, "targets"),
        ({"n_pairs": 0}, {}, "n_pairs"),
        ({}, {"pairs": [[0, 1]], "distances": [-1.0]}, "distances"),
        ({}, {"pairs": [[0, 1]]}, "pairs and distances must be given together"),
        ({}, {"y": np.arange(60) % 3, "distances": [1.0]}, "pairs and distances must be given together"),
        ({}, {"pairs": [[0, 1], [1, 2]], "distances": [1.0], "rows": np.arange(60)}, "distances must be 2 finite"),
        ({}, {"pairs": [[0, 60]], "distances": [1.0]}, "pairs"),
    ],
)
def test_bad_input_is_named(settings, told, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^MDSMetric: {word}"):
        fit(MDSMetric(**settings), X, **(told or {"y": y}))


@pytest.mark.parametrize("d", [4, 40])
def test_dependent_features_do_not_hold_the_search_up(d):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, d)), np.arange(30) % 3
    X[:, 2:4] = X[:, :2] @ [[1.0, 2.0], [3.0, -1.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = MDSMetric().fit(X, y)
    assert learner.converged_
    assert learner.duality_gap_ <= 1e-8 * learner.objective_
    assert learner.n_iter_ < 500
    Z, same = learner.transform(X), y[:, None] == y
    square = np.sum((X[:, None] - X) ** 2, axis=2)
    error = np.where(same, 0.25, 2.25) * square - np.sum((Z[:, None] - Z) ** 2, axis=2)
    assert_allclose(np.sum(error**2) / 2, learner.objective_, rtol=1e-8)
    assert MDSMetric(n_components=d).fit(X, y).components_.shape == (d, d)


def test_stretching_back_leaves_a_matrix_as_it_was():
    A = np.random.default_rng(0).normal(size=(4, 4))
    far = target_fit.stretched(A, 3.0)
    assert_allclose(np.trace(far), 3 * np.trace(A))
    assert_allclose(target_fit.stretched(far, 1 / 3), A, atol=1e-14)
