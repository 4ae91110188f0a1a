"""Every optimizer reaches a known optimum and says when it did not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import OptimizeResult

from nearfar.numerics import gradient_descent, optimize

rng = np.random.default_rng(0)
A = rng.normal(size=(30, 6))
B = rng.normal(size=30)
Q, R = A.T @ A, A.T @ B


def quadratic(x):
    return float(0.5 * x @ Q @ x - R @ x), Q @ x - R


def test_lbfgs():
    seen = []
    found = optimize.lbfgs(quadratic, np.zeros(6), max_iter=200, tol=1e-9, report=lambda *now: seen.append(now))
    assert found.converged
    assert_allclose(found.x, np.linalg.solve(Q, R), atol=1e-7)
    assert len(seen) == found.n_iter == len(found.history)
    assert found.message == ""


def test_lbfgs_keeps_shapes_and_bounds():
    def fun(X):
        value, gradient = quadratic(X.ravel())
        return value, gradient.reshape(2, 3)

    found = optimize.lbfgs(fun, np.zeros((2, 3)), tol=1e-9, max_iter=200, bounds=(0.0, np.full((2, 3), 0.1)))
    assert found.x.shape == (2, 3)
    assert found.x.min() >= 0
    assert found.x.max() <= 0.1
    step = found.x - np.clip(found.x - fun(found.x)[1], 0, 0.1)
    assert np.abs(step).max() < 1e-6


def test_stopping_short_is_told():
    found = optimize.lbfgs(quadratic, np.zeros(6), max_iter=2, tol=1e-12)
    assert not found.converged
    assert found.n_iter == 2
    assert "2 iterations" in found.message
    assert "tol 1e-12" in found.message


def on_simplex(w, step):
    """The nearest point of the simplex."""
    u = np.sort(w)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, len(u) + 1)
    return np.maximum(w - excess[np.flatnonzero(u > excess)[-1]], 0.0)


def simplex_gap(x, value, g):
    return float(g @ x - g.min())


def test_fista_with_certificate_on_the_simplex():
    found = optimize.fista(quadratic, on_simplex, np.full(6, 1 / 6), gap=simplex_gap, tol=1e-9, max_iter=5000)
    assert found.converged
    assert found.duality_gap <= 1e-9 * max(1, abs(found.objective))
    assert (np.diff(found.history) <= 1e-12).all()
    for _ in range(100):
        x = rng.dirichlet(np.ones(6))
        assert quadratic(x)[0] >= found.objective - found.duality_gap


def test_fista_stops_at_once_at_the_optimum_and_when_cut_short_says_so():
    start = np.eye(6)[0]
    stay = optimize.fista(lambda x: (0.0, np.zeros(6)), lambda x, _: x, start, gap=simplex_gap)
    assert stay.converged
    assert stay.n_iter == 1
    cut = optimize.fista(quadratic, on_simplex, start, gap=simplex_gap, max_iter=1, tol=1e-14)
    assert not cut.converged
    assert "gap" in cut.message


def rosenbrock(x):
    a, b = x
    return (1 - a) ** 2 + 100 * (b - a * a) ** 2, np.array([2 * (a - 1) - 400 * a * (b - a * a), 200 * (b - a * a)])


def test_lbfgs_ends_where_its_stop_says():
    asked = []

    def stop(before, now):
        asked.append((before, now))
        return now < 0.1

    found = optimize.lbfgs(rosenbrock, np.array([-1.0, 2.0]), stop=stop, tol=0.0)
    assert found.converged
    assert found.objective < 0.1 <= found.history[-2]
    assert rosenbrock(found.x)[0] == found.objective
    assert found.n_iter == len(found.history) == len(asked)
    assert asked[0][0] == np.inf
    assert [before for before, _ in asked[1:]] == [now for _, now in asked[:-1]]


def test_a_tolerance_that_did_not_decide_is_not_told():
    start = np.array([-1.0, 2.0])
    assert optimize.lbfgs(rosenbrock, start, tol=1e-9, max_iter=2).message.endswith(", tol 1e-09")
    cut_short = optimize.lbfgs(rosenbrock, start, tol=1e-12, max_iter=2, stop=lambda before, value: False)
    assert cut_short.message
    assert "tol" not in cut_short.message


def test_lbfgs_ends_where_values_hardly_fall():
    loose = optimize.lbfgs(rosenbrock, np.array([-1.0, 2.0]), tol=0.0, ftol=1e-1)
    tight = optimize.lbfgs(rosenbrock, np.array([-1.0, 2.0]), tol=0.0, ftol=1e-12)
    assert loose.n_iter < tight.n_iter
    assert tight.objective < 1e-10


@pytest.mark.parametrize(("slope", "flat"), [(7e-9, True), (1e-5, False)])
def test_lbfgs_has_converged_where_its_line_search_fails_for_rounding(monkeypatch, slope, flat):
    ended = OptimizeResult(x=np.ones(6), fun=0.99, jac=np.full(6, slope), success=False, status=2, nit=20)
    monkeypatch.setattr(optimize, "minimize", lambda *_, **__: ended)
    found = optimize.lbfgs(quadratic, np.zeros(6), tol=1e-10)
    assert found.converged == flat
    assert ("gradient" in found.message) != flat
    ended.status = 1
    assert not optimize.lbfgs(quadratic, np.zeros(6), tol=1e-10).converged


def test_lbfgs_has_not_converged_where_its_line_search_fails_along_a_steep_gradient():
    found = optimize.lbfgs(lambda x: (quadratic(x)[0], -quadratic(x)[1]), np.zeros(6), tol=1e-9)
    assert not found.converged
    assert "gradient" in found.message


def test_fista_ends_below_the_noise_of_values():
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(60, 8)), 100 + rng.normal(size=60)
    A /= np.linspace(1, 20, 8)
    exact = np.linalg.lstsq(A, b, rcond=None)[0]

    def fun(x):
        r = A @ x - b
        return float(r @ r), 2 * A.T @ r

    def distance(x, value, gradient):
        return float(np.abs(x - exact).max() / np.abs(exact).max()) * value

    found = optimize.fista(fun, lambda x, step: x, np.zeros(8), gap=distance, tol=1e-9, max_iter=5000)
    assert found.converged


def test_steps_on_batches_that_only_rise_are_not_called_converged():
    """A value that rises whatever the step does: the mean of three epochs never falls, yet nothing has converged."""
    seen = iter(range(1, 100))
    rising = gradient_descent.descend(
        lambda x, batch: (float(next(seen)), np.ones(2)), lambda: [None], np.zeros(2), step=0.1, max_iter=50, tol=1e-3
    )
    assert rising.n_iter == 6
    assert not rising.converged
    assert "increased the value from 1 to 6 in 6 epochs" in rising.message
    settled = gradient_descent.descend(
        lambda x, batch: (float(x @ x), 2 * x), lambda: [None], np.ones(2), step=0.1, max_iter=200, tol=1e-3
    )
    assert settled.converged
    assert settled.n_iter < 200


def test_steps_on_batches_fall_along_a_cosine_and_are_reported():
    told, seen = [], []

    def slope(x, batch):  # of a plane: each step of Adam has its full length
        seen.append((x[0], batch))
        return 1.0, np.ones(1)

    found = gradient_descent.descend(
        slope, lambda: "ab", np.zeros(1), step=0.5, max_iter=5, tol=0.0, report=lambda *n: told.append(n)
    )
    shares = 0.01 + 0.99 * (1 + np.cos(np.pi * np.arange(5) / 5)) / 2
    assert_allclose(-np.diff([x for x, _ in seen] + [found.x[0]]), 0.5 * np.repeat(shares, 2))
    assert "".join(batch for _, batch in seen) == "ab" * 5
    assert_allclose(told, np.c_[np.arange(1, 6), np.full(5, 2.0), 0.5 * shares])
    assert found.history.tolist() == [2.0] * 5
    assert not found.converged


def test_steps_on_batches_end_where_three_epochs_are_no_better_than_the_three_before():
    values = iter([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 4.9, 5.0, 5.2, 0.0])
    found = gradient_descent.descend(
        lambda x, _: (next(values), x), lambda: [0], np.ones(2), step=0.1, max_iter=10, tol=1e-3
    )
    assert found.converged
    assert found.n_iter == 9
    assert found.objective == 5.2
    assert gradient_descent.step_length(np.array([3.0, 0.0, -4.0])) == pytest.approx(0.05 * 12.5**0.5)


def test_a_value_that_hardly_changes_is_judged_by_its_size():
    settled = gradient_descent.hardly_changes(1e-3)
    assert settled(1000.5, 1000.0)
    assert not settled(1002.0, 1000.0)
    assert settled(0.0005, 0.0)
    assert not settled(0.002, 0.0)
    assert settled(-1000.0, -1000.5)


def test_rounds_put_right_what_the_function_does_not_see():
    S = np.diag([1.0, 2.0, 5.0, 9.0])

    def fun(K):
        # minus the trace of S on the span of the rows of K
        P = np.linalg.inv(K @ K.T)
        return -np.trace(P @ K @ S @ K.T), 2 * P @ K @ S @ K.T @ P @ K - 2 * P @ K @ S

    seen = []
    start = np.array([[1.0, 1e-3, 0.1, 1e-3], [1.0, 1e-3, 0.1 + 1e-5, 0.0]])
    found = optimize.lbfgs_in_rounds(
        fun,
        start,
        lambda K: np.linalg.qr(K.T)[0].T,
        max_iter=300,
        tol=1e-8,
        report=lambda k, value, rest: seen.append((k, value)),
    )
    assert found.converged
    assert found.objective == pytest.approx(-14.0)
    assert_allclose(found.x @ found.x.T, np.eye(2), atol=1e-12)
    assert [k for k, _ in seen] == list(range(1, found.n_iter + 1))
    assert_allclose([value for _, value in seen], found.history)
    few = optimize.lbfgs_in_rounds(fun, start, lambda K: np.linalg.qr(K.T)[0].T, max_iter=3, tol=1e-12)
    assert not few.converged
    assert few.n_iter == 3
    assert "stopped after 3 iterations with gradient" in few.message
