"""The local distance metric: gradients, bounds, and what it has in common with NCA."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar import LDM
from nearfar.numerics.constraints import LabelPairs, Pairs
from nearfar.probabilistic import neighbor_softmax
from nearfar.probabilistic.neighborhood.ldm import diagonal
from tests.finite_differences import derivative_along
from tests.learners import all_pairs, data, distances, fit
from tests.references import ldm as loops


def problem(n=30):
    X, y = data(n, 3)
    y = np.append(y[:-1], 3)
    X = X - X.mean(axis=0)
    return X, y, np.array([0.3, 0.0, 0.1])


def test_value_and_gradient_equal_loops():
    X, y, gamma = problem()
    F, G = diagonal.likelihood(X, LabelPairs(y)).sums(gamma, "log")
    w = loops.features(X, np.eye(3))
    assert_allclose(F, loops.objective(gamma, w, y), rtol=1e-10)
    assert_allclose(G, loops.gradient(gamma, w, y), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("neighbors", [None, 4])
def test_gradient_equals_differences(neighbors):
    X, y, _ = problem()
    gamma = np.array([0.3, 0.2, 0.1])
    F = diagonal.likelihood(X, LabelPairs(y), neighbors)
    direction = np.random.default_rng(0).normal(size=3)
    expected = derivative_along(lambda g: F.sums(g, "log")[0], gamma, direction)
    assert_allclose(F.sums(gamma, "log")[1] @ direction, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:LDM. L-BFGS stopped after 2")
def test_too_many_neighbors_are_told_by_the_name_of_the_setting():
    X, y, _ = problem()
    with pytest.warns(UserWarning, match="neighbors=50 is more than there are; each row has at most"):
        LDM(neighbors=50, max_iter=2).fit(X, y)


def test_it_is_the_log_objective_of_nca_on_a_diagonal_metric():
    X, y, _ = problem()
    gamma = np.array([0.3, 0.2, 0.1])
    rows = neighbor_softmax.sorted_rows(X, y)
    L = np.diag(np.sqrt(gamma))
    value, U = neighbor_softmax.neighbor_sums(rows.X @ L, rows.sizes, "log", rows.weight)
    F, G = diagonal.likelihood(X, LabelPairs(y)).sums(gamma, "log")
    assert_allclose(F, value, rtol=1e-12)
    assert_allclose(G, np.diag(rows.X.T @ U) / np.sqrt(gamma), rtol=1e-10)


def test_listed_pairs_equal_labels():
    X, y, gamma = problem()
    j, i = np.tril_indices(len(y), -1)
    by_pair = diagonal.likelihood(X, Pairs(i, j, y[i] == y[j])).sums(gamma, "log")
    by_label = diagonal.likelihood(X, LabelPairs(y)).sums(gamma, "log")
    assert_allclose(by_pair[0], by_label[0], rtol=1e-12)
    assert_allclose(by_pair[1], by_label[1], rtol=1e-9)


def test_bound_touches_and_stays_below():
    X, y, _ = problem()
    F = diagonal.likelihood(X, LabelPairs(y))
    now = np.array([0.3, 0.2, 0.1])
    pull = F.sums(now, "normalizer")[1] - F.sums(now, "log")[1]
    lower = diagonal.bound(F, pull)
    constant = F.sums(now, "log")[0] + F.n * lower(now)[0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        gamma = now * np.exp(rng.normal(size=3))
        assert constant - F.n * lower(gamma)[0] <= F.sums(gamma, "log")[0] + 1e-9
    assert_allclose(-F.n * lower(now)[1], F.sums(now, "log")[1], rtol=1e-9)


def test_bounds_rise_to_the_direct_solution():
    X, y = data()
    mm = fit(LDM(solver="mm", max_iter=30), X, y)
    assert (np.diff(mm.history_) >= -1e-9).all()
    direct = fit(LDM(), X, y)
    assert direct.objective_ >= mm.objective_ - 1e-3
    assert mm.objective_ > mm.history_[0] + 0.5 * (direct.objective_ - mm.history_[0])


def test_weights_leave_and_come_back_from_zero():
    X, y, _ = problem()
    F = diagonal.likelihood(X, LabelPairs(y))
    found = diagonal.directly(F, np.array([0.0, 0.0, 1.0]), max_iter=100, tol=1e-9)
    other = diagonal.directly(F, np.array([0.1, 0.1, 0.1]), max_iter=100, tol=1e-9)
    assert_allclose(found.objective, other.objective, rtol=1e-4)
    assert (found.x >= 0).all()


def test_a_direction_of_noise_gets_no_weight():
    X, y = data()
    X[:, 3] = 5 * np.random.default_rng(2).normal(size=60)
    assert fit(LDM(), X, y).gamma_.min() == 0.0


def test_bounds_rise_until_a_round_adds_too_little():
    X, y = data()
    mm = fit(LDM(solver="mm", tol=1e-4, max_iter=300), X, y)
    rises = np.diff(mm.history_) / 60
    assert mm.converged_
    assert rises[-1] <= 1e-4 < rises[:-1].min()


def test_more_starts_are_never_worse():
    X, y = data()
    one, many = (fit(LDM(n_init=n, random_state=0), X, y) for n in (1, 4))
    assert many.objective_ >= one.objective_


def test_components_are_weighted_directions():
    X, y = data()
    learner = fit(LDM(2), X, y)
    assert_allclose(learner.components_, np.sqrt(learner.gamma_)[:, None] * learner.basis_.T)
    assert_allclose(learner.basis_.T @ learner.basis_, np.eye(2), atol=1e-12)


def test_few_neighbors_give_another_metric():
    X, y = data()
    near = fit(LDM(neighbors=5), X, y)
    assert np.abs(distances(near, X) - distances(fit(LDM(), X, y), X)).max() > 1e-3
    pairs, labels = all_pairs(y)
    with pytest.raises(ValueError, match=r"^LDM: neighbors"):
        LDM(neighbors=5).fit(X, pairs=pairs, pair_labels=labels)


def test_neighbors_are_the_nearest_rows_of_x():
    X, y = data()
    X = X * np.array([9.0, 1.0, 1.0, 0.1])
    learner = fit(LDM(2, neighbors=5), X, y)
    D, E = (np.sum((Z[:, None] - Z) ** 2, axis=2) for Z in (learner.transform(X), X))
    np.fill_diagonal(E, np.inf)
    value = 0.0
    for i in range(len(X)):
        hits, misses = (
            rows[np.argsort(E[i, rows])[:5]] for rows in (np.flatnonzero(y == y[i]), np.flatnonzero(y != y[i]))
        )
        value += np.logaddexp.reduce(-D[i, hits]) - np.logaddexp.reduce(-D[i, np.r_[hits, misses]])
    assert_allclose(learner.objective_, value, rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"solver": "em"}, "solver"), ({"n_init": 0}, "n_init"), ({"neighbors": 0}, "neighbors"), ({"tol": -1}, "tol")],
)
def test_bad_settings(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^LDM: {word}"):
        LDM(**settings).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"solver": "mm"}, {"n_init": 3, "random_state": 0}])
def test_warm_start_goes_on(settings):
    X, y = data()
    learner = fit(LDM(warm_start=True, max_iter=3, **settings), X, y)
    short = learner.objective_
    fit(learner.set_params(max_iter=200), X, y)
    assert learner.objective_ > short
    assert learner.history_[0] > short - 1e-9
    before, steps = learner.objective_, learner.n_iter_
    assert fit(learner, X, y).n_iter_ < steps
    assert learner.objective_ >= before - 1e-9
