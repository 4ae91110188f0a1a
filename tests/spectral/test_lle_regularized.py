"""The LLE-regularized metric: limits, unlabeled rows, its two solvers, optimality of the ratio."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar import HighDimensionalDCA, LLERegularizedMetric
from nearfar.neighbors import graphs
from nearfar.spectral import locality
from tests.learners import all_pairs, data, distances, fit
from tests.references import lle_regularized as loops


def test_without_neighborhoods_it_is_the_plain_trace_ratio():
    X, y = data()
    for n_components in (None, 1):
        learner = fit(LLERegularizedMetric(n_components, lam=0.0), X, y)
        plain = fit(HighDimensionalDCA(n_components), X, y)
        assert_allclose(distances(learner, X), distances(plain, X), rtol=1e-6)


def test_rebuilding_weights_sum_to_one():
    X, _ = data()
    assert_allclose(np.asarray(graphs.lle_weights(X, 7).sum(axis=1)).ravel(), 1)


def test_ratio_is_optimal():
    X, y = data()
    learner = fit(LLERegularizedMetric(2, lam=0.5), X, y)
    S_w, S_b = loops.scatters(X, y)
    U = learner.components_.T
    assert_allclose(U.T @ U, np.eye(2), atol=1e-10)
    ratio = np.trace(U.T @ S_b @ U) / np.trace(U.T @ S_w @ U)
    assert_allclose(learner.objective_, ratio, rtol=1e-8)
    assert abs(np.linalg.eigvalsh(S_b - ratio * S_w)[-2:].sum()) < 1e-7 * np.trace(S_b)


def test_generalized_eigenvectors_have_their_own_constraint():
    X, y = data()
    U = fit(LLERegularizedMetric(2, lam=0.5, solver="gevd"), X, y).components_.T
    S_w, S_b = loops.scatters(X, y)
    assert_allclose(U.T @ S_w @ U, np.eye(2), atol=1e-7)
    assert_allclose(S_b @ U, S_w @ U @ np.diag(np.diag(U.T @ S_b @ U)), atol=1e-7 * np.abs(S_b).max())


@pytest.mark.parametrize("solver", ["ratio", "gevd"])
def test_labels_ask_for_one_direction_less_than_their_classes_below_the_rank_or_half_of_the_scatter(solver):
    X, y = data()
    S_w, S_b = loops.scatters(X, y)
    kept = locality.ratio_directions(S_b, S_w, 2).x
    half = 2 + (np.sum((kept @ S_b) * kept) < np.trace(S_b) / 2)
    for labels, found in ((y, half if solver == "ratio" else 2), (np.arange(len(y)) % 9, 3)):
        assert fit(LLERegularizedMetric(solver=solver), X, labels).components_.shape == (found, 4)


def test_pairs_leave_one_generalized_eigenvector_out():
    X, y = data()
    told, labels = all_pairs(y)
    assert fit(LLERegularizedMetric(solver="gevd"), X, pairs=told, pair_labels=labels).components_.shape == (3, 4)


def test_unlabeled_rows_count():
    X, y = data()
    hidden = np.where(np.arange(60) % 2, y, -1)
    learner = fit(LLERegularizedMetric(2, lam=5.0), X, hidden, unlabeled=-1)
    alone = fit(LLERegularizedMetric(2, lam=5.0), X[hidden >= 0], y[hidden >= 0])
    assert np.abs(distances(learner, X) - distances(alone, X)).max() > 1e-3
    pairs = np.array([[1, 3], [3, 5], [1, 5], [7, 9]])
    labels = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    if len(set(labels)) > 1:
        assert np.isfinite(fit(LLERegularizedMetric(1), X, pairs=pairs, pair_labels=labels).components_).all()


@pytest.mark.parametrize("n_neighbors", [60, 100])
def test_more_neighbors_than_rows_are_all_of_them(n_neighbors):
    X, y = data()
    with pytest.warns(UserWarning, match=rf"^LLERegularizedMetric: n_neighbors={n_neighbors}, but there are 60 rows"):
        learner = LLERegularizedMetric(n_neighbors=n_neighbors).fit(X, y)
    assert_allclose(learner.components_, fit(LLERegularizedMetric(n_neighbors=59), X, y).components_)
    assert fit(LLERegularizedMetric(lam=0.0, n_neighbors=n_neighbors), *data()).converged_, "none are looked for"


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"^LLERegularizedMetric: lam must be"):
        LLERegularizedMetric(lam=-1.0).fit(*data())
    with pytest.raises(ValueError, match=r"^LLERegularizedMetric: solver must be"):
        LLERegularizedMetric(solver="svd").fit(*data())
    with pytest.raises(ValueError, match=r"^LLERegularizedMetric: n_components must be below 4, the dimension"):
        LLERegularizedMetric(4).fit(*data())


def test_more_features_than_rows():
    rng = np.random.default_rng(0)
    learner = fit(LLERegularizedMetric(1, n_neighbors=4), rng.normal(size=(12, 30)), np.arange(12) % 2)
    assert learner.components_.shape == (1, 30)
    assert_allclose(np.linalg.norm(learner.components_), 1)
