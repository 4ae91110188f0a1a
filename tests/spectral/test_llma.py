"""Locally linear metric adaptation: monotone steps, stationarity, limits, equivariance, new rows, stages."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar import LLMA
from nearfar.spectral.embedding.llma import smooth_shift
from tests.finite_differences import derivative_along
from tests.learners import data, fit
from tests.references import llma as loops


def problem(n_neighbors=None, lam=0.3):
    X, y = data(40, 3)
    i, j = np.nonzero(np.triu(y[:, None] == y, 1))
    centers = smooth_shift.far_rows(X, 12)
    near = smooth_shift.held(X, n_neighbors, None)
    return X, y, smooth_shift.Shift(X, i, j, np.ones(len(i)), centers, lam, 2.0, near, 1e-3), centers


def test_value_equals_loops():
    X, y, shift, centers = problem()
    B = np.random.default_rng(0).normal(size=(3, 12))
    f = loops.objective(X, loops.moved(X, centers, B, 2.0), y, 0.3)
    assert_allclose(shift.rho, 1e-3 * loops.curvature(X, y, centers, 2.0, 0.3), rtol=1e-9)
    assert_allclose(shift.value(B)[0], f + shift.rho * np.sum(B * B), rtol=1e-9)


@pytest.mark.parametrize("n_neighbors", [None, 5])
def test_gradient_equals_differences(n_neighbors):
    *_, shift, _ = problem(n_neighbors)
    rng = np.random.default_rng(1)
    B = rng.normal(size=(3, 12))
    direction = rng.normal(size=(3, 12))
    expected = derivative_along(lambda A: shift.value(A)[0], B, direction)
    assert_allclose(np.vdot(shift.gradient(B), direction), expected, rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", [None, 5])
def test_every_step_lowers_the_objective_until_it_is_flat(n_neighbors):
    *_, shift, _ = problem(n_neighbors)
    B = np.zeros((3, 12))
    found = smooth_shift.majorize(shift, B, max_iter=20_000, tol=1e-14)
    assert (np.diff(found.history) < 1e-9 * found.history[0]).all()
    assert found.objective < 0.9 * found.history[0]
    assert np.abs(shift.gradient(found.x)).max() < 1e-4 * np.abs(shift.gradient(B)).max()


@pytest.mark.slow
def test_defaults_find_what_many_plain_steps_find():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    X = rng.normal(size=(120, 6)) + 2 * np.eye(3, 6)[y]
    learner = fit(LLMA(random_state=0), X, y)
    assert learner.converged_
    i, j = np.nonzero(np.triu(y[:, None] == y, 1))
    near = smooth_shift.held(X, 50, None)
    omega = np.sqrt(np.mean(np.sum((X[:, None] - X) ** 2, axis=2))) / 3
    shift = smooth_shift.Shift(X, i, j, np.ones(len(i)), smooth_shift.far_rows(X, 200), 0.1, omega, near, 1e-2)
    B = np.zeros((6, 120))
    for _ in range(1000):
        f, Y, q = shift.value(B)
        B = shift.step(Y, q)
    learner = fit(LLMA(n_pairs="all", random_state=0), X, y)
    assert learner.objective_ <= f * (1 + 1e-4)


def test_near_pairs_are_those_of_the_graph():
    X, _ = data(40, 3)
    i, j, w = smooth_shift.held(X, 5, 2.0)
    square = np.sum((X[:, None] - X) ** 2, axis=2)
    near = np.argsort(square + np.diag(np.full(40, np.inf)), axis=1)[:, :5]
    expected = {(min(a, b), max(a, b)) for a in range(40) for b in near[a]}
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == expected
    assert_allclose(w, np.exp(-square[i, j] / 4))


def test_strong_holding_leaves_rows_where_they_are():
    X, y = data()
    learner = fit(LLMA(1e9, n_neighbors=None, sigma=1e3), X, y)
    D = np.linalg.norm(X[:, None] - X, axis=2)
    Z = learner.transform(X)
    assert_allclose(np.linalg.norm(Z[:, None] - Z, axis=2), D, atol=1e-3 * D.max())


def test_shift_of_rows_turns_and_moves_with_them():
    X, y = data()
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    pairs = np.argwhere(np.triu(y[:, None] == y, 1))
    moved = fit(LLMA(max_iter=30), X, pairs=pairs).transform(X) - X
    rows = X @ Q.T + 5.0
    turned = fit(LLMA(max_iter=30), rows, pairs=pairs).transform(rows) - rows
    assert_allclose(turned, moved @ Q.T, atol=1e-4 * np.abs(moved).max())


def test_similar_rows_get_nearer_and_new_rows_move_along():
    X, y = data(80, 3)
    learner = fit(LLMA(), X[:60], y[:60])
    for rows, labels in ((X[:60], y[:60]), (X[60:], y[60:])):
        same = np.triu(labels[:, None] == labels, 1)
        before, after = (np.linalg.norm(Z[:, None] - Z, axis=2)[same].mean() for Z in (rows, learner.transform(rows)))
        assert after < before
    assert_allclose(learner.transform(X[:3]), learner.transform(X)[:3])


def test_centers_are_rows_of_similar_pairs_and_few():
    X, _ = data()
    pairs = np.array([[3, 8], [8, 20], [41, 5]])
    learner = fit(LLMA(), X, pairs=pairs)
    assert_array_equal(learner.centers_[0], np.unique(X[[3, 5, 8, 20, 41]], axis=0))
    assert fit(LLMA(n_centers=2), X, pairs=pairs).centers_[0].shape == (2, 4)
    spread = smooth_shift.far_rows(X, 10)
    gaps = np.linalg.norm(spread[:, None] - spread, axis=2) + np.diag(np.full(10, np.inf))
    rest = np.array([np.linalg.norm(spread - x, axis=1).min() for x in X])
    assert gaps.min() >= rest.max() - 1e-12


def test_stages_halve_the_width_and_follow_one_another():
    X, y = data()
    one, two = fit(LLMA(random_state=0), X, y), fit(LLMA(n_stages=2, random_state=0), X, y)
    assert_array_equal(one.coef_[0], two.coef_[0])
    assert_allclose(two.widths_[1], two.widths_[0] / 2)
    Y = one.transform(X)
    assert_allclose(two.transform(X), loops.moved(Y, two.centers_[1], two.coef_[1], two.widths_[1]), rtol=1e-6)


def test_warm_start_goes_on():
    X, y = data()
    learner = fit(LLMA(warm_start=True, max_iter=5, random_state=0), X, y)
    first = learner.objective_
    assert fit(learner, X, y).objective_ < first


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"omega": 0.0}, "omega"), ({"sigma": -1.0}, "sigma"), ({"lam": -1.0}, "lam"), ({"ridge": 0.0}, "ridge")],
)
def test_bad_settings_are_named(settings, word):
    with pytest.raises(ValueError, match=f"^LLMA: {word} must be"):
        LLMA(**settings).fit(*data())


def test_no_similar_pair_is_refused():
    X, _ = data()
    with pytest.raises(ValueError, match=r"^LLMA: pairs must hold at least one similar pair"):
        LLMA().fit(X, pairs=[[0, 1]], pair_labels=[-1])


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_fields_reach_a_third_of_the_rows_spread_and_half_as_far_each_time(scale):
    X, y = data()
    learner = fit(LLMA(n_stages=2, n_centers=7, max_iter=2, random_state=0), scale * X, y)
    first, second = learner.centers_[0], learner.centers_[1]
    d2 = ((scale * X[:, None] - first) ** 2).sum(-1)
    assert_allclose(learner.widths_, np.sqrt(d2.mean()) / 3 / np.array([1.0, 2.0]))
    assert first.shape == second.shape == (7, 4)
