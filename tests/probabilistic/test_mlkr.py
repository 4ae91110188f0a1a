"""Metric learning for kernel regression: its error and gradient, blocks, units, targets of several columns."""

import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar.probabilistic.neighborhood.mlkr import regression
from nearfar.probabilistic.neighborhood.mlkr.regression import leave_one_out_error
from tests.finite_differences import derivative_along
from tests.learners import fit
from tests.references import mlkr as loops

MLKR = partial(nearfar.MLKR, reg=0.0)  # as in the paper


def problem(n=40, d=4, k=3, m=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[5] = X[6]  # a row whose nearest one is a copy
    X[7] += 60  # and one whose weights underflow
    return X, rng.normal(size=(n, m)), rng.normal(size=(k, d)) / 2


def curved(n=300, seed=0):
    """Two of eight features, the quieter ones, make the target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8)) * np.r_[1, 1, np.full(6, 2)]
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("values", [1 << 16, 40 * 16])
def test_error_and_gradient_equal_loops(m, values, monkeypatch):
    monkeypatch.setattr(regression, "REGRESSION_BLOCK_PAIRS", values)  # one block, or three
    X, Y, L = problem(m=m)
    f, G = leave_one_out_error(L, X, Y)
    assert_allclose(f, loops.objective(L, X, Y), rtol=1e-10)
    assert_allclose(G, loops.gradient(L, X, Y), rtol=1e-8, atol=1e-9)


def test_gradient_equals_differences():
    X, Y, L = problem()
    direction = np.random.default_rng(1).normal(size=L.shape)
    expected = derivative_along(lambda A: leave_one_out_error(A, X, Y)[0], L, direction)
    assert_allclose(np.vdot(leave_one_out_error(L, X, Y)[1], direction), expected, rtol=1e-6)


def test_no_table_of_all_pairs_is_held():
    X, Y, L = problem(3000)
    leave_one_out_error(L, X, Y)
    tracemalloc.start()
    leave_one_out_error(L, X, Y)
    assert tracemalloc.get_traced_memory()[1] < 6e6  # of all pairs: 72 MB
    tracemalloc.stop()


def test_neighbors_predict_better():
    X, y = curved()
    plain = cross_val_score(KNeighborsRegressor(5), X, y, cv=3).mean()
    for settings in ({}, {"n_components": 2}, {"n_components": 2, "init": "random", "random_state": 0}):
        model = make_pipeline(MLKR(tol=1e-4, **settings), KNeighborsRegressor(5))
        least = plain + 0.2 if "init" in settings else 0.9
        assert cross_val_score(model, X, y, cv=3).mean() > least


def test_two_of_all_directions_are_a_better_start_than_loud_ones():
    X, y = curved()
    best, loud = (MLKR(n_components=2, init=init, tol=1e-4).fit(X, y).objective_ for init in ("auto", "pca"))
    assert best < loud / 3


def test_the_prediction_of_the_notes_is_that_of_the_paper():
    X, y = curved(60)
    model = MLKR(max_iter=5)
    fit(model, X, y)
    Z = model.transform(X)
    rest = KNeighborsRegressor(59, weights=lambda d: np.exp(d.min(1, keepdims=True) ** 2 - d**2)).fit(Z[1:], y[1:])
    assert_allclose(rest.predict(Z[:1])[0], loops.prediction(X, y, model.components_, 0)[1], rtol=1e-9)


def test_units_and_zero_of_the_targets_do_not_matter():
    X, y = curved(80)
    first = fit(MLKR(max_iter=8), X, y)
    for unit, zero in ((1e-9, 0.0), (1e100, 0.0), (1.0, 1e6), (-1.0, 0.0)):
        other = fit(MLKR(max_iter=8), X, unit * y + zero)
        assert_allclose(other.objective_, first.objective_ * unit**2, rtol=1e-6)
        assert_allclose(other.components_, first.components_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-150, 1e-6, 1e6, 1e150])
def test_units_of_the_rows_do_not_matter_where_the_start_is_scaled(unit):
    X, y = curved(80)
    first, other = (fit(MLKR(init_scale="median", max_iter=8), rows, y) for rows in (X, unit * X))
    assert_allclose(unit * other.components_, first.components_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_components", [None, 2])
@pytest.mark.parametrize("unit", [1e-150, 10.0, 30.0, 1e5])
def test_a_search_that_cannot_leave_its_start_begins_as_with_a_median_scale(n_components, unit):
    X, y = curved(80)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stays at its start")
        found = MLKR(n_components, tol=1e-5).fit(unit * X, y)
    expected = MLKR(n_components, tol=1e-5, init_scale="median").fit(X, y)
    assert found.converged_
    assert found.objective_ < 1.1 * expected.objective_


@pytest.mark.parametrize(
    ("unit", "cause"), [(1e-150, "too close together"), (30.0, "too far apart"), (1e5, "too far apart")]
)
def test_a_search_that_stays_at_its_start_says_so_and_has_not_converged(unit, cause, monkeypatch):
    X, y = curved(80)
    monkeypatch.setattr("nearfar.numerics.initialization.median_scaled", lambda X, L: L)  # no start can be left
    with pytest.warns(
        ConvergenceWarning, match=f"stays at its start, because rows are {cause}.* scale the feat"
    ) as said:
        model = MLKR().fit(unit * X, y)
    assert [warning.filename for warning in said] == [__file__]
    assert not model.converged_


def test_few_components_start_well_where_rows_lie_near_each_other():
    X, y = curved(200)  # of fewer rows, searches from two starts end in different optima
    assert MLKR(2, tol=1e-6).fit(1e-9 * X, y).objective_ < 1.2 * MLKR(2, tol=1e-6).fit(X, y).objective_


def test_of_two_rows_or_one_place_there_is_nothing_to_learn(recwarn):
    assert MLKR().fit([[0.0], [3.0]], [1.0, 2.0]).objective_ == 2
    assert np.array_equal(MLKR().fit(np.ones((6, 2)), np.arange(6)).components_, np.eye(2))
    assert not recwarn


def test_progress_shows_the_objective(capsys):
    X, y = curved(80)
    model = fit(MLKR(max_iter=3, verbose=True), X, y)
    assert f"iteration 3, objective {model.objective_:.6g}" in capsys.readouterr().out


def test_columns_of_targets_add():
    X, y = curved(80)
    Y = np.column_stack([y, X[:, 2] ** 2])
    model = fit(MLKR(max_iter=8), X, Y)
    assert_allclose(model.objective_, loops.objective(model.components_, X, Y), rtol=1e-8)
    assert model.__sklearn_tags__().target_tags.multi_output
    one, same = (fit(MLKR(max_iter=8), X, target) for target in (y, y[:, None]))
    assert np.array_equal(one.components_, same.components_)


def test_minus_one_is_a_number():
    X, y = curved(80)
    y = np.where(y < 0, -1.0, 1.0)
    assert MLKR().fit(X, y).objective_ == pytest.approx(MLKR().fit(X, y + 7).objective_, rel=1e-6)


def test_the_search_goes_on_from_the_last_components():
    X, y = curved(80)
    model = fit(MLKR(max_iter=5, warm_start=True), X, y)
    before = model.objective_
    assert fit(model, X, y).objective_ < before
    assert fit(model.set_params(n_components=3), X, y).components_.shape == (3, 8)
    assert fit(model, X[:, :5], y).components_.shape == (3, 5)


@pytest.mark.parametrize("settings", [{"n_components": 8}, {"n_components": 2}, {"init": "pca"}])
def test_the_search_keeps_to_the_span_of_few_rows(settings):
    X, y = curved(40)
    wide = X @ np.linalg.qr(np.random.default_rng(0).normal(size=(3000, 8)))[0].T
    tracemalloc.start()
    found = fit(MLKR(max_iter=8, **settings), wide, y)
    assert tracemalloc.get_traced_memory()[1] < 20e6  # a matrix of all features: 72 MB
    tracemalloc.stop()
    narrow = fit(MLKR(max_iter=8, **settings), X, y)
    assert_allclose(pdist(found.transform(wide)), pdist(narrow.transform(X)), rtol=1e-6)
    again = fit(MLKR(max_iter=3, warm_start=True, **settings), wide, y)
    before = again.objective_
    assert fit(again, wide, y).objective_ < before


def test_a_random_start_follows_the_seed():
    X, y = curved(80)
    one, same, other = (fit(MLKR(2, init="random", max_iter=2, random_state=seed), X, y) for seed in (1, 1, 2))
    assert np.array_equal(one.components_, same.components_)
    assert not np.allclose(one.components_, other.components_)


def test_no_metric_of_tiny_targets_is_lost():
    X, y = curved(80)
    tiny, plain = (fit(MLKR(2, max_iter=8), X, target) for target in (1e-200 * y, y))
    assert_allclose(tiny.components_, plain.components_, rtol=1e-6, atol=1e-6)


def test_history_is_of_the_objective():
    X, y = curved(80)
    model = fit(MLKR(max_iter=5), X, y)
    assert model.history_[-1] == model.objective_ < model.history_[0]


@pytest.mark.parametrize(
    ("y", "word"),
    [
        (["1.5"] * 20, "finite real numbers"),
        ([[1.0, 2.0], [3.0]] * 10, r"real numbers, shape .*; got \[\["),
        ([None] * 20, "NaN, infinite"),
        (np.zeros((20, 0)), "shape"),
        (np.arange(20.0)[:, None, None], "shape"),
        (np.arange(20) * 1e150, "18 of 20 are NaN, infinite or above 1e150"),
        (np.full(20, 2.5), "all 20 are"),
        (np.arange(20) + 1j, "finite real numbers"),
    ],
)
def test_targets_that_are_none(y, word):
    with pytest.raises(ValueError, match=f"^MLKR: y must hold .*{word}"):
        MLKR().fit(np.random.default_rng(0).normal(size=(20, 3)), y)


def test_score_is_the_share_of_the_variance_that_is_explained():
    X, y = curved(40)
    learner = fit(MLKR(max_iter=20), X, y)
    L = learner.components_
    error = sum((loops.prediction(X, y, L, i)[1] - y[i]) ** 2 for i in range(40))
    assert learner.score(X, y) == pytest.approx(1 - error / np.sum((y - y.mean()) ** 2))
    assert fit(MLKR(max_iter=20), X, y).score(X, y) > 0


@pytest.mark.parametrize("settings", [{}, {"n_components": 2, "init": "pca"}])
def test_regularization_widens_the_kernel_in_units_of_the_targets(settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y = X[:, 0] + rng.normal(size=60)
    C, spread = np.cov(X.T, ddof=0), 60 * np.var(y)
    learner = fit(nearfar.MLKR(reg=0.02, tol=1e-12, **settings), X, y)
    L = learner.components_

    def objective(L):
        return leave_one_out_error(L, X, (y - y.mean())[:, None])[0] + 0.02 * spread * np.trace(L @ C @ L.T)

    assert_allclose(learner.objective_, objective(L), rtol=1e-8)
    for direction in rng.normal(size=(3, *L.shape)):
        assert abs(derivative_along(objective, L, direction)) < 1e-3 * spread
    assert np.trace(L @ C @ L.T) < np.trace((K := fit(MLKR(**settings), X, y).components_) @ C @ K.T) / 2
    other = fit(nearfar.MLKR(reg=0.02, tol=1e-12, **settings), X, 100 * y + 7).components_
    assert_allclose(pdist(X @ other.T), pdist(X @ L.T), rtol=1e-2, atol=1e-2)
