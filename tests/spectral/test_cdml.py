"""What curvilinear distances promise beyond the laws of all learners."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import nearfar
from nearfar.numerics.constraints import Pairs, pairs_from_labels
from nearfar.spectral.geometric.cdml import curves, objective, real_roots
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import accuracy, data, distances, fit, toy
from tests.references import cdml as loops

X, Y = data()
R = (X - X.mean(axis=0)) / np.sqrt(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
PAIRS = pairs_from_labels(Y, 20, 0)


def bent(m=3, d=4, c=3, seed=0):
    return np.random.default_rng(seed).normal(size=(m, d, c)) * 0.6 ** np.arange(c)


@pytest.mark.parametrize("c", [1, 2, 3, 4, 5])
def test_nearest_points_are_those_of_a_fine_grid(c):
    grid = np.linspace(-8, 8, 160001)
    for C, T in zip(bent(c=c), curves.Curves(bent(c=c), R[:8]).T, strict=True):
        points = curves.powers(grid, c) @ C.T
        for x, t in zip(R[:8], T, strict=True):
            best = np.sum((points - x) ** 2, axis=1).min()
            mine = np.sum((loops.theta(C, t) - x) ** 2)
            assert mine <= best + 1e-12
            assert abs((loops.theta(C, t) - x) @ loops.theta_slope(C, t)) <= 1e-9


@pytest.mark.parametrize("degree", range(1, 8))
def test_real_roots_against_a_root_finder(degree):
    rng = np.random.default_rng(degree)
    a = rng.normal(size=(degree + 1, 300)) * 3
    a[-1] = np.abs(a[-1]) * 10.0 ** rng.integers(-8, 1, 300)
    found = real_roots.real_roots(a)
    assert found.shape == (degree, 300)
    assert (np.diff(found, axis=0) >= 0).all()
    for k in range(300):
        roots = np.roots(a[::-1, k])
        for root in roots[np.abs(np.imag(roots)) < 1e-9 * np.abs(roots)].real:
            assert np.abs(found[:, k] - root).min() <= 3e-6 * np.abs(root)


def test_real_roots_that_are_simple_multiple_and_absent():
    assert_allclose(real_roots.real_roots(np.array([[-6.0], [11.0], [-6.0], [1.0]]))[:, 0], [1, 2, 3], rtol=1e-6)
    assert_allclose(real_roots.real_roots(np.array([[0.0], [0.0], [0.0], [2.0]])), 0.0)
    assert np.abs(real_roots.real_roots(np.array([[-1.0], [3.0], [-3.0], [1.0]])) - 1).min() <= 1e-4
    assert np.isfinite(real_roots.real_roots(np.array([[1.0], [0.0], [1.0]]))).all()


def test_real_roots_from_those_of_a_derivative():
    a = np.random.default_rng(0).normal(size=(6, 300))
    second = a[2:] * np.array([2.0, 6.0, 12.0, 20.0])[:, None]
    assert_allclose(real_roots.real_roots(a, real_roots.real_roots(second)), real_roots.real_roots(a))


@pytest.mark.parametrize("c", [2, 3, 4])
def test_one_derivative_has_the_same_roots_for_all_points_of_a_curve(c, monkeypatch):
    C = bent(c=c)
    with_them = curves.Curves(C, R).T
    monkeypatch.setattr(curves, "common_roots", lambda half, n: None)
    assert_allclose(with_them, curves.Curves(C, R).T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("c", [1, 2, 3, 4])
@pytest.mark.parametrize("guess", ["near", "far", "zero", "other curves"])
def test_guesses_of_nearest_points_do_not_matter(c, guess):
    C = bent(m=8, c=c)
    rng = np.random.default_rng(5)
    right = curves.Curves(C, R).T
    guesses = {
        "near": right + 1e-3 * rng.normal(size=right.shape),
        "far": right + 3 * rng.normal(size=right.shape),
        "zero": np.zeros_like(right),
        "other curves": curves.Curves(bent(m=8, c=c, seed=1), R).T,
    }
    assert_allclose(curves.Curves(C, R, guesses[guess]).T, right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", [2, 4])
def test_polynomials_said_to_have_no_real_root_have_none(degree):
    rng = np.random.default_rng(degree)
    a = rng.normal(size=(degree + 1, 500)) * 10.0 ** rng.integers(-3, 4, size=(degree + 1, 1))
    a = np.concatenate([a, rng.normal(size=(degree + 1, 500))], axis=1)
    a[0] = np.abs(a[0])
    a[-1] = np.abs(a[-1])
    said = curves.nowhere_negative(a)
    lowest = np.empty(a.shape[1])
    for k in range(a.shape[1]):
        bottoms = np.roots(np.polyder(a[::-1, k]))
        lowest[k] = np.polyval(a[::-1, k], bottoms.real).min()
    assert not said[lowest < 0].any()
    assert said[lowest > 1e-3 * a[0]].all()
    assert 0.1 < said.mean() < 0.9


def test_a_double_root_is_not_said_to_be_none():
    squares = np.polynomial.polynomial.polymul([1.0, -2.0, 1.0], [3.0, 1.0, 1.0])  # (u - 1)^2 (u^2 + u + 3)
    assert not curves.nowhere_negative(np.stack([squares, squares * 7.3], axis=1)).any()
    assert not curves.nowhere_negative(np.array([[1.0], [-2.0], [1.0]])).any()


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_a_loss_does_not_depend_on_where_it_was_evaluated_before(c):
    loss = objective.PairLoss(R, PAIRS, (0.5, 3.0), 0.1)
    for seed in range(3):
        C = 0.8 * bent(c=c, seed=seed)
        fresh = objective.PairLoss(R, PAIRS, (0.5, 3.0), 0.1)(C)
        again = loss(C)
        assert_allclose(again[0], fresh[0], rtol=1e-12)
        assert_allclose(again[1], fresh[1], rtol=1e-9, atol=1e-9 * np.abs(fresh[1]).max())


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_distances_equal_roots_and_quadrature(c):
    C = bent(c=c)
    y = curves.embed(C, R[:6])
    for i in range(6):
        for j in range(i):
            d = loops.squared_distance(C, R[i], R[j])
            assert_allclose(np.sum((y[i] - y[j]) ** 2), d, rtol=1e-8)


def test_distances_are_those_of_a_metric():
    learner = fit(nearfar.CDML(3, random_state=0, max_iter=20), X, Y)
    pairs = np.stack(np.meshgrid(np.arange(12), np.arange(12)), axis=-1)[~np.eye(12, dtype=bool)]
    d = np.zeros((12, 12))
    d[pairs[:, 0], pairs[:, 1]] = learner.pair_distance(pairs, X)
    assert (d == d.T).all()
    assert (d[:, :, None] <= d[:, None, :] + d.T[None, :, :] + 1e-12).all()
    metric = learner.get_metric()
    assert metric(X[0], X[0]) == 0


def test_straight_curves_are_a_mahalanobis_distance():
    C = bent(c=1)
    assert_allclose(curves.embed(C, R), R @ C[:, :, 0].T, rtol=1e-12, atol=1e-12)
    learner = fit(nearfar.CDML(3, degree=1, random_state=0), X, Y)
    L = learner.components_[:, :, 0] / learner.scale_
    assert_allclose(learner.transform(X), (X - X.mean(axis=0)) @ L.T, rtol=1e-12, atol=1e-12)


def test_vanishing_higher_coefficients_lower_the_degree():
    C = bent(c=1)
    padded = np.concatenate([C, np.zeros((3, 4, 3))], axis=2)
    assert_allclose(curves.embed(padded, R), curves.embed(C, R), rtol=1e-12, atol=1e-12)
    assert_allclose(curves.embed(np.concatenate([C, np.full((3, 4, 2), 1e-9)], axis=2), R),
                    curves.embed(C, R), atol=1e-7)  # fmt: skip
    assert (curves.embed(np.zeros((2, 4, 3)), R) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_gradient_is_that_of_finite_differences(c):
    C = 0.8 * bent(c=c)
    loss = objective.PairLoss(R, PAIRS, (0.5, 3.0), 0.1)
    value, G = loss(C)
    assert_allclose(value, loops.objective(C, R, PAIRS, (0.5, 3.0), 0.1), rtol=1e-9)
    assert_allclose(G, numerical_gradient(lambda A: loss(A)[0], C), rtol=1e-7, atol=1e-7 * np.abs(G).max())


def test_batches_add_up():
    loss, C = objective.PairLoss(R, PAIRS, (2.0, 8.0), 0.1), bent()
    value, G = loss(C)
    parts = [loss(C, batch) for batch in np.array_split(np.random.default_rng(0).permutation(len(PAIRS.i)), 3)]
    assert_allclose(sum(part[0] for part in parts), value)
    assert_allclose(sum(part[1] for part in parts), G, rtol=1e-9, atol=1e-12)


def test_blocks_do_not_matter(monkeypatch):
    C = bent()
    whole, back = curves.embed(C, R), curves.Embedding(C, R).pull_back(R[:, :3])
    monkeypatch.setattr(curves, "CURVE_BLOCK_POINTS", 21)
    assert_allclose(curves.embed(C, R), whole)
    assert_allclose(curves.Embedding(C, R).pull_back(R[:, :3]), back, rtol=1e-10, atol=1e-12)


def test_weights_repeat_pairs():
    weight = np.random.default_rng(0).integers(1, 4, len(PAIRS.i))
    repeated = Pairs(*(np.repeat(part, weight) for part in PAIRS[:3]))
    a = objective.PairLoss(R, PAIRS._replace(weight=weight.astype(float)), (2.0, 8.0), 0.1)(bent())
    b = objective.PairLoss(R, repeated, (2.0, 8.0), 0.1)(bent())
    assert_allclose(a[0], b[0])
    assert_allclose(a[1], b[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("init", ["pca", "gmml"])
def test_start_has_the_level_of_the_margins(init):
    C = objective.start(R, PAIRS, init, 4, 3, 5.0, 0)
    Z = R @ C[:, :, 0].T
    assert_allclose(np.mean(np.sum((Z[PAIRS.i] - Z[PAIRS.j]) ** 2, axis=1)), 5.0)
    assert np.abs(C[:, :, 1:]).max() < 0.1 * np.abs(C[:, :, 0]).max()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"init": "gmml"},
        pytest.param({"degree": 2}, marks=pytest.mark.slow),
        {"solver": "adam", "batch_size": 64},
    ],
)
def test_learns_more_than_its_start(settings):
    A, a = toy()
    learner = fit(nearfar.CDML(random_state=0, **settings), A[:200], a[:200])
    plain = accuracy(A[:200], a[:200], A[200:], a[200:])
    assert accuracy(learner.transform(A[:200]), a[:200], learner.transform(A[200:]), a[200:]) >= plain + 0.05
    assert learner.curvature_ > 0
    assert learner.objective_ < learner.history_[0]


@pytest.mark.slow
def test_jumps_do_not_end_the_search():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 80)
    A = rng.normal(size=(80, 5)) + 2 * np.eye(3, 5)[a]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bent = nearfar.CDML(random_state=0).fit(A, a)
        straight = nearfar.CDML(degree=1, random_state=0).fit(A, a)
    assert bent.objective_ < 0.8 * straight.objective_
    batches = fit(nearfar.CDML(solver="adam", random_state=0, max_iter=10), A, a)
    assert batches.objective_ <= 1.05 * straight.objective_


def test_value_never_rises():
    learner = fit(nearfar.CDML(random_state=0, max_iter=30), X, Y)
    assert (np.diff(learner.history_) <= 1e-12).all()


def test_turns_with_the_space_where_the_start_does():
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    start = 0.7 * bent()
    told = {"pairs": np.stack([PAIRS.i, PAIRS.j], axis=1), "pair_labels": np.where(PAIRS.similar, 1, -1)}
    a = fit(nearfar.CDML(3, init=start, max_iter=5), X, **told)
    b = fit(nearfar.CDML(3, init=np.einsum("mdc,de->mec", start, Q), max_iter=5), X @ Q, **told)
    assert_allclose(distances(b, X @ Q), distances(a, X), rtol=1e-6)


def test_units_and_place_of_the_data_do_not_matter():
    a = fit(nearfar.CDML(random_state=0, max_iter=5), X, Y)
    b = fit(nearfar.CDML(random_state=0, max_iter=5), 100 * X + 7, Y)
    assert_allclose(distances(b, 100 * X + 7), distances(a, X), rtol=1e-6)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_message_counts_all_iterations(solver):
    learner = nearfar.CDML(random_state=0, max_iter=5, solver=solver)
    with pytest.warns(ConvergenceWarning, match=r"after 3 iterations .*, after 2 iterations on straight lines$"):
        learner.fit(X, Y)
    assert learner.n_iter_ == 5


def test_warm_start_goes_on():
    learner = nearfar.CDML(random_state=0, max_iter=3, warm_start=True)
    with pytest.warns(ConvergenceWarning, match=r"^CDML: "):
        learner.fit(X, Y)
    first = learner.objective_
    assert fit(learner.set_params(max_iter=10), X, Y).history_[0] <= first * (1 + 1e-9)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"degree": 0}, "degree must be"),
        ({"margins": (8.0, 2.0)}, "margins must be"),
        ({"margins": (2.0, 5.0, 8.0)}, "margins must be"),
        ({"margins": (2.0, np.inf)}, "margins must be"),
        ({"lam": -1.0}, "lam must be"),
        ({"solver": "sgd"}, "solver must be one of"),
        ({"init": "random"}, "init must be one of"),
        ({"init": np.ones((2, 4))}, "init must be a finite array of shape"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^CDML: {word}"):
        nearfar.CDML(**settings).fit(X, Y)
