"""ITML, offline and online: optimum, invariants, bounds, streams."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from nearfar import ITML, OnlineITML
from nearfar.probabilistic.information import logdet, logdet_newton, priors
from nearfar.probabilistic.information.logdet import Bounded
from nearfar.probabilistic.information.online_itml import stream as logdet_stream
from tests.conic import smat, svec
from tests.learners import all_pairs, data, fit
from tests.references import itml as loops


def problem(c=24, d=4, seed=0, gamma=1.0):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(c, d)) @ np.diag(np.linspace(0.5, 2, d))
    sign = np.where(np.arange(c) % 2 == 0, 1.0, -1.0)
    return Bounded(V, sign, np.where(sign > 0, 1.5, 9.0), np.full(c, gamma))


def prior(d=4, seed=1):
    B = np.random.default_rng(seed).normal(size=(d, d))
    return np.linalg.cholesky(B @ B.T + np.eye(d)).T


@pytest.mark.parametrize("solver", ["newton", "projections"])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_finds_the_optimum_of_the_loops_and_its_invariants(solver, gamma):
    told, L0 = problem(gamma=gamma), prior()
    found = logdet.nearest(told, L0, solver, max_iter=5000, tol=1e-9)
    A, A0, dual, xi = found.x, L0.T @ L0, found.attributes["dual"], found.attributes["slacks"]
    assert found.converged
    assert_allclose(A, loops.project(told.V, told.sign, told.bound, gamma, A0)[0], rtol=1e-5, atol=1e-6 * A.max())
    assert_allclose(found.objective, loops.objective(A, told.V, told.sign, told.bound, gamma, A0), rtol=1e-9)
    assert_allclose(
        np.linalg.inv(A), np.linalg.inv(A0) + (told.V.T * (told.sign * dual)) @ told.V, rtol=1e-6, atol=1e-6
    )
    assert_allclose(1 / xi, 1 / told.bound - told.sign * dual / gamma, rtol=1e-9)
    p = np.einsum("cd,de,ce->c", told.V, A, told.V)
    assert (told.sign * (p - xi)).max() <= 1e-6 * told.bound.max()
    assert dual.min() >= 0
    assert found.duality_gap <= 1e-8
    scale = np.abs(np.linalg.inv(A)).max()
    assert np.abs(loops.gradient(A, told.V, told.sign, told.bound, gamma, A0)).max() <= 1e-5 * scale


def conic_optimum(told, d):
    """min tr A - log det A + sum gamma (xi / b - log xi): the volume through an exponential of a triangular factor."""
    clarabel = pytest.importorskip("clarabel")
    c, k, m = len(told.V), d * (d + 1) // 2, d * (d + 1) // 2
    n = k + m + d + c + c  # svec A, lower triangle Z, t <= log diag(Z), xi, r <= log xi
    low_i, low_j = np.tril_indices(d)
    at = {(i, j): k + q for q, (i, j) in enumerate(zip(low_i, low_j, strict=True))}
    t0, xi0, r0 = k + m, k + m + d, k + m + d + c
    cost = np.zeros(n)
    cost[:k], cost[t0:xi0] = svec(np.eye(d)), -1.0
    cost[xi0:r0], cost[r0:] = told.gamma / told.bound, -told.gamma
    rows, rhs, kinds = [], [], []
    line = np.zeros((c, n))
    line[:, :k] = told.sign[:, None] * np.stack([svec(np.outer(v, v)) for v in told.V])
    line[np.arange(c), xi0 + np.arange(c)] = -told.sign
    rows.append(line), rhs.append(np.zeros(c)), kinds.append(clarabel.NonnegativeConeT(c))
    # [[A, Z], [Z', diag(Z)]] is PSD
    basis = np.zeros((2 * d * (2 * d + 1) // 2, n))
    for q in range(k + m):
        W = np.zeros((2 * d, 2 * d))
        if q < k:
            W[:d, :d] = smat(np.eye(k)[q])
        else:
            i, j = low_i[q - k], low_j[q - k]
            W[i, d + j] = W[d + j, i] = 1.0
            W[d + i, d + j] += float(i == j)
        basis[:, q] = svec(W)
    rows.append(-basis), rhs.append(np.zeros(len(basis))), kinds.append(clarabel.PSDTriangleConeT(2 * d))
    for low, high in [(t0 + i, at[i, i]) for i in range(d)] + [(r0 + i, xi0 + i) for i in range(c)]:
        cone = np.zeros((3, n))
        cone[0, low], cone[2, high] = -1.0, -1.0  # exp(low) <= high
        rows.append(cone), rhs.append(np.array([0.0, 1.0, 0.0])), kinds.append(clarabel.ExponentialConeT())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    A = sparse.csc_matrix(np.vstack(rows))
    found = clarabel.DefaultSolver(sparse.csc_matrix((n, n)), cost, A, np.concatenate(rhs), kinds, settings).solve()
    assert str(found.status) in ("Solved", "AlmostSolved")
    x = np.array(found.x)
    return smat(x[:k]), x[xi0:r0]


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_equals_a_generic_conic_solver(gamma):
    told = problem(c=20, d=3, gamma=gamma)
    found = logdet.nearest(told, np.eye(3), tol=1e-8)
    A, xi = conic_optimum(told, 3)
    assert_allclose(found.x, A, rtol=1e-4, atol=1e-4 * A.max())
    assert_allclose(found.attributes["slacks"], xi, rtol=2e-3)


def test_few_pairs_are_solved_like_many(monkeypatch):
    rng = np.random.default_rng(0)
    E, U, h = rng.normal(size=(6, 6)), rng.normal(size=(20, 6)), rng.exponential(size=20)
    E = 1e-8 * (E + E.T)
    dense = logdet.direction(E, U, h)
    assert_allclose(dense + (U.T * (h * np.einsum("cd,de,ce->c", U, dense, U))) @ U, -E, atol=1e-20)
    monkeypatch.setattr(logdet, "DENSE_PAIRS_PER_FEATURE", 0)
    assert_allclose(logdet.direction(E, U, h), dense, rtol=1e-6, atol=1e-14)


def test_the_first_sweep_is_one_of_the_loops_unless_the_prior_is_better(monkeypatch):
    told, one = problem(c=12), np.eye(4)
    mixed = np.random.default_rng(0).permutation(12)
    A = loops.project(told.V[mixed], told.sign[mixed], told.bound[mixed], 1.0, one, sweeps=1)[0]
    L = logdet.swept(told)
    assert_allclose(L.T @ L, A, rtol=1e-10, atol=1e-12)
    values = [loops.objective(M, told.V, told.sign, told.bound, 1.0, one) for M in (A, one)]
    assert values[0] < values[1]
    monkeypatch.setattr(logdet, "project_one", lambda A, *_: (1e6 * A, 0.0, 0.0))
    assert_array_equal(logdet.swept(told), one)


def test_a_sweep_over_some_pairs_leads_to_the_same_metric(monkeypatch):
    X, y = data()
    whole = ITML(n_pairs=200, random_state=0).fit(X, y)
    seen = []
    one = logdet.project_one

    def recorded(A, v, s, gamma, dual, slack):
        seen.append(gamma)
        return one(A, v, s, gamma, dual, slack)

    monkeypatch.setattr(logdet, "SWEPT_PAIRS", 30)
    monkeypatch.setattr(logdet, "project_one", recorded)
    part = ITML(n_pairs=200, random_state=0).fit(X, y)
    assert_allclose(part.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-5, atol=1e-7)
    assert_allclose(seen, part.gamma_ * 400 / 30)  # the total weight is that of all pairs


@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.049, 0.2])
def test_the_gap_is_bounded_closely(size):
    E = np.diag([size, -size / 2, 0.0])
    exact = float(np.sum(np.diag(E) - np.log1p(np.diag(E))))
    assert exact * (1 - 1e-6) <= logdet_newton.logdet_gap(E) <= 1.2 * exact
    assert logdet_newton.logdet_gap(np.diag([0.5, -1.5])) == np.inf


def test_history_falls_and_ends_at_the_objective():
    found = logdet.nearest(problem(gamma=100.0), prior())
    assert (np.diff(found.history) <= 1e-9 * found.history[0]).all()
    assert found.history[-1] == found.objective
    assert found.converged


def test_fewer_pairs_than_features_equals_the_full_space():
    told = problem(c=6, d=15)
    A = logdet.nearest(told, prior(15), tol=1e-9).x
    expected = loops.project(told.V, told.sign, told.bound, 1.0, prior(15).T @ prior(15))[0]
    assert_allclose(A, expected, rtol=1e-6, atol=1e-8 * A.max())


def test_satisfied_bounds_leave_the_prior():
    told, L0 = problem(), prior()
    p = np.sum((told.V @ L0.T) ** 2, axis=1)
    told = told._replace(bound=np.where(told.sign > 0, 2 * p, p / 2))
    for solver in ("newton", "projections"):
        assert_allclose(logdet.nearest(told, L0, solver).x, L0.T @ L0, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_the_covariance_of_few_rows_is_the_prior_where_no_two_rows_differ():
    X, y = data(20)
    X = np.c_[X, np.random.default_rng(0).normal(size=(20, 26))]
    M = fit(ITML(prior="covariance"), X, y).get_mahalanobis_matrix()
    V = np.linalg.svd(X - X.mean(axis=0))[2][19:].T  # rows do not differ along these
    L0 = priors.factor("covariance", X)
    assert_allclose(M @ V, L0.T @ L0 @ V, rtol=1e-6, atol=1e-6 * M.max())


def test_hard_bounds_hold():
    told = problem(c=4, gamma=np.inf)
    found = logdet.nearest(told, prior(), "projections", max_iter=20000, tol=1e-10)
    p = np.einsum("cd,de,ce->c", told.V, found.x, told.V)
    assert (told.sign * (p - told.bound)).max() <= 1e-6
    assert found.converged
    assert found.duality_gap is None
    soft = logdet.nearest(told._replace(gamma=np.full(4, 1e7)), prior(), tol=1e-8)
    assert_allclose(soft.x, found.x, rtol=1e-4, atol=1e-4 * found.x.max())


def test_contradicting_hard_bounds_are_a_warning():
    V = np.array([[1.0, 0.0], [1.0, 0.0]])
    told = Bounded(V, np.array([1.0, -1.0]), np.array([1.0, 4.0]), np.full(2, np.inf))
    found = logdet.nearest(told, np.eye(2), "projections", max_iter=30)
    assert not found.converged
    assert "30" in found.message


def test_weights_act_as_repeated_pairs():
    told = problem()
    twice = Bounded(*(np.concatenate([field, field[:5]]) for field in told))
    weight = np.where(np.arange(24) < 5, 2.0, 1.0)
    a = logdet.nearest(told._replace(gamma=weight), prior(), tol=1e-9).x
    assert_allclose(a, logdet.nearest(twice, prior(), tol=1e-9).x, rtol=1e-7)
    none = told._replace(gamma=np.where(np.arange(24) < 5, 0.0, 1.0))
    keep = np.arange(24) >= 5
    assert_allclose(logdet.nearest(none, prior()).x, logdet.nearest(told.part(keep), prior()).x)


def test_identical_points_are_left_out():
    told = problem()
    V = told.V.copy()
    V[:2] = 0
    with pytest.warns(UserWarning, match="1 dissimilar pairs join identical"):
        found = logdet.nearest(told._replace(V=V), np.eye(4), tol=1e-9)
    assert_allclose(found.x, logdet.nearest(told.part(np.arange(24) >= 2), np.eye(4), tol=1e-9).x, rtol=1e-8)
    assert_array_equal(found.attributes["dual"][:2], 0)


def test_units_of_the_features():
    X, y = data()
    bounds = ITML(random_state=0).fit(X, y).bounds_
    M = ITML(bounds=bounds, tol=1e-9, random_state=0).fit(X, y).get_mahalanobis_matrix()
    scaled = ITML(bounds=9 * bounds, tol=1e-9, random_state=0).fit(3 * X, y).get_mahalanobis_matrix()
    assert_allclose(scaled, M, rtol=1e-6, atol=1e-9 * M.max())
    moved = ITML(bounds=bounds, prior=np.eye(4) / 9, tol=1e-9, random_state=0).fit(3 * X, y).get_mahalanobis_matrix()
    assert_allclose(moved, M / 9, rtol=1e-6, atol=1e-9 * M.max())


def test_many_pairs_weigh_as_much_as_two_hundred_by_default():
    X, y = data()
    few, many = fit(ITML(n_pairs=100, random_state=0), X, y), fit(ITML(n_pairs=200, random_state=0), X, y)
    assert (len(few.dual_), few.gamma_) == (200, 1.0)
    assert (len(many.dual_), many.gamma_) == (400, 0.5)
    told = fit(ITML(0.5, n_pairs=200, random_state=0), X, y)
    assert_allclose(many.get_mahalanobis_matrix(), told.get_mahalanobis_matrix())


def test_bounds_are_percentiles_of_squared_distances_under_the_prior():
    X, y = data()
    d2 = [float((a - b) @ (a - b)) for k, a in enumerate(X) for b in X[:k]]
    assert_allclose(fit(ITML(percentiles=(10, 60)), X, y).bounds_, np.percentile(d2, [10, 60]))
    P = np.linalg.inv(np.cov(X.T))
    d2 = [float((a - b) @ P @ (a - b)) for k, a in enumerate(X) for b in X[:k]]
    learner = fit(ITML(prior="covariance"), X, y)
    assert_allclose(learner.bounds_, np.percentile(d2, [5, 95]))
    many = np.random.default_rng(0).normal(size=(400, 3))
    u, l = priors.distance_bounds(many, np.eye(3), None, (5, 95))
    every = [((a - b) ** 2).sum() for k, a in enumerate(many) for b in many[:k]]
    assert_allclose([u, l], np.percentile(every, [5, 95]), rtol=0.1)


def test_one_kind_of_pairs_is_a_warning():
    X, _ = data()
    with pytest.warns(UserWarning, match="one kind"):
        ITML().fit(X, pairs=[[0, 1], [2, 3]], pair_labels=[1, 1])


def test_the_pairs_of_the_multipliers_are_kept():
    X, y = data()
    learner = fit(ITML(n_pairs=25, gamma=2.0, random_state=0), X, y)
    i, j = learner.pairs_.T
    assert (i < j).all()
    assert learner.pairs_.shape == (50, 2)
    assert_array_equal(learner.pair_labels_, np.where(y[i] == y[j], 1, -1))
    V = X[i] - X[j]
    A = np.linalg.inv(np.eye(4) + (V.T * (learner.pair_labels_ * learner.dual_)) @ V)
    assert_allclose(learner.get_mahalanobis_matrix(), A, rtol=1e-6, atol=1e-9)
    again = fit(ITML(gamma=2.0, bounds=learner.bounds_), X, pairs=learner.pairs_, pair_labels=learner.pair_labels_)
    assert_array_equal(again.pairs_, learner.pairs_)
    assert_allclose(again.dual_, learner.dual_, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_projections_agree_with_newton_through_the_learner():
    X, y = data(30)
    a = ITML(0.3, random_state=0).fit(X, y).get_mahalanobis_matrix()
    b = ITML(0.3, tol=1e-6, random_state=0, solver="projections").fit(X, y).get_mahalanobis_matrix()
    assert_allclose(a, b, rtol=1e-4, atol=1e-5 * a.max())


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": np.nan}, "gamma"),
        ({"gamma": np.inf, "solver": "newton"}, "gamma"),
        ({"gamma": "big"}, "gamma must be a number or None; got 'big'"),
        ({"bounds": (2.0, 1.0)}, "bounds"),
        ({"bounds": (-1.0, 1.0)}, "bounds"),
        ({"bounds": (1.0, np.inf)}, "bounds"),
        ({"percentiles": (5, 105)}, "percentiles"),
        ({"prior": -np.eye(4)}, "prior"),
        ({"prior": np.triu(np.ones((4, 4)))}, "prior"),
        ({"prior": np.eye(3)}, "prior"),
        ({"prior": "random"}, "prior"),
        ({"solver": "magic"}, "solver"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
    ],
)
def test_bad_settings(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^ITML: {word}"):
        ITML(**settings).fit(X, y)


def test_few_steps_warn():
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="ITML: Newton's method stopped after 1"):
        ITML(max_iter=1).fit(X, y)


def stream(m=200, d=5, seed=0):
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], size=m)
    return rng.normal(size=(m, d)), sign, np.where(sign > 0, 2.0, 8.0)


@pytest.mark.parametrize("eta", [1e-6, 0.1, 0.5, 100.0])
def test_online_steps_are_exact(eta):
    Z, sign, target = stream(30)
    A = prior(5).T @ prior(5)
    for z, s, y in zip(Z, sign, target, strict=True):
        before, yh = A, z @ A @ z
        A, updates = logdet_stream.follow(A, z[None], np.array([s]), np.array([y]), eta)
        assert updates == int(s * (yh - y) > 0)
        yb = logdet_stream.implicit(yh, y, eta)
        if updates:
            assert_allclose(z @ A @ z, yb, rtol=1e-9)
            assert_allclose(
                np.linalg.inv(before) - np.linalg.inv(A) + eta * (yb - y) * np.outer(z, z), 0, atol=1e-8 * eta + 1e-9
            )
        else:
            assert_allclose(A, before, rtol=1e-12)


def test_online_limits_of_eta():
    A, z = prior(5).T @ prior(5), np.arange(1.0, 6.0)
    yh = z @ A @ z
    for y in (0.3 * yh, 3 * yh):
        far = logdet_stream.follow(A, z[None], np.zeros(1), np.array([y]), 1e12)[0]
        assert_allclose(z @ far @ z, y, rtol=1e-6)
        near = logdet_stream.follow(A, z[None], np.zeros(1), np.array([y]), 1e-14)[0]
        assert_allclose(near, A, rtol=1e-6)


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_online_stays_positive_definite(mode):
    Z, sign, target = stream(10_000)
    A, updates = logdet_stream.follow(np.eye(5), Z, sign, target, 5.0, mode)
    assert updates > 1000
    assert_array_equal(A, A.T)
    assert np.linalg.eigvalsh(A)[0] > 0


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_pair_of_equal_points_changes_nothing_in_a_stream(mode):
    A = prior().T @ prior()
    for sign in (-1.0, 0.0, 1.0):
        found, updates = logdet_stream.follow(A, np.zeros((1, 4)), np.array([sign]), np.ones(1), 0.5, mode)
        assert_allclose(found, A, rtol=1e-15)
        assert updates == 0


@pytest.mark.parametrize(("yh", "y", "eta"), [(1e-6, 1.0, 1e-3), (1.0, 1e-9, 1e-6), (1e8, 3.0, 10.0), (2.0, 5.0, 1e9)])
def test_no_form_of_the_new_distance_cancels(yh, y, eta):
    found = logdet_stream.implicit(yh, y, eta)
    assert found > 0
    # the root of eta yh yb^2 - (eta y yh - 1) yb - yh = 0 is passed between neighbors of what was found
    h, t, e = map(Fraction, (yh, y, eta))
    below, above = (
        e * h * x * x - (e * t * h - 1) * x - h for x in map(Fraction, (found * (1 - 1e-13), found * (1 + 1e-13)))
    )
    assert below < 0 < above


def test_explicit_steps_are_gradient_steps_on_the_inverse():
    A, z = prior(5).T @ prior(5), np.ones(5)
    yh = z @ A @ z
    moved = logdet_stream.follow(A, z[None], np.ones(1), np.array([yh / 2]), 0.01, "explicit")[0]
    assert_allclose(np.linalg.inv(moved), np.linalg.inv(A) + 0.02 * yh / 2 * np.outer(z, z), rtol=1e-9, atol=1e-12)
    moved = logdet_stream.follow(A, z[None], -np.ones(1), np.array([50 * yh]), 100.0, "explicit")[0]
    assert_allclose(z @ moved @ z, 2 * yh)


def test_batch_mode_on_one_pair_is_one_projection():
    X = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 1.0]])
    learner = OnlineITML(mode="batch", gamma=np.inf, bounds=(1.0, 5.0)).fit(X, pairs=[[0, 1]])
    z, A = X[1], learner.metric_
    assert_allclose(z @ A @ z, 1.0)
    expected = np.eye(2) + (1 / (z @ z) - 1) / (z @ z) * np.outer(z, z)
    assert_allclose(A, expected, atol=1e-12)


def test_a_stream_in_parts_is_the_whole_stream():
    X, y = data()
    pairs = np.random.default_rng(0).integers(60, size=(90, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    labels = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    whole = OnlineITML().fit(X, pairs=pairs, pair_labels=labels)
    parts = OnlineITML()
    for k in range(0, len(pairs), 10):
        parts.partial_fit(X, pairs=pairs[k : k + 10], pair_labels=labels[k : k + 10])
    assert_allclose(parts.metric_, whole.metric_, rtol=1e-9, atol=1e-12)
    assert parts.n_updates_ == whole.n_updates_ > 10
    assert parts.threshold_ == np.sqrt(parts.bounds_.mean())
    again = parts.fit(X, pairs=pairs, pair_labels=labels)
    assert_allclose(again.metric_, whole.metric_)


def test_units_of_features_do_not_matter_to_a_stream():
    X, y = data()
    A = OnlineITML(random_state=0).fit(X, y).metric_
    assert_allclose(OnlineITML(random_state=0).fit(7 * X, y).metric_, A, rtol=1e-9, atol=1e-12)


def test_targets_are_approached_from_both_sides():
    X = np.random.default_rng(0).normal(size=(30, 3))
    truth = np.diag([4.0, 1.0, 0.5])
    pairs = np.array([[i, j] for i in range(30) for j in range(i)])
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    y = np.einsum("cd,de,ce->c", D, truth, D)
    learner = OnlineITML(eta=5.0)
    for _ in range(3):
        learner.partial_fit(X, pairs=pairs, targets=y)
    assert_allclose(learner.metric_, truth, atol=0.02)
    with pytest.raises(ValueError, match=r"^OnlineITML: targets"):
        learner.partial_fit(X, pairs=pairs[:2], targets=[0.0, 1.0])


def test_targets_are_never_passed_over():
    X, y = data()
    pairs = [[0, 1], [2, 3]]
    for mode, told in (
        ("batch", {"pairs": pairs}),
        ("implicit", {"pairs": pairs, "pair_labels": [1, -1]}),
        ("implicit", {"y": y}),
    ):
        with pytest.raises(ValueError, match=r"^OnlineITML: targets"):
            OnlineITML(mode=mode).partial_fit(X, targets=[1.0, 2.0], **told)


def test_partial_fit_from_labels_and_its_errors():
    X, y = data()
    learner = OnlineITML(random_state=0).partial_fit(X[:30], y[:30])
    bounds, updates = learner.bounds_, learner.n_updates_
    learner.partial_fit(X[30:], y[30:])
    assert_array_equal(learner.bounds_, bounds)
    assert learner.n_updates_ > updates
    with pytest.raises(ValueError, match=r"^OnlineITML.*3 features"):
        learner.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match=r"^OnlineITML: requires y"):
        learner.partial_fit(X)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"eta": 0.0}, "eta"), ({"mode": "x"}, "mode"), ({"gamma": -1}, "gamma"), ({"prior": 3}, "prior")],
)
def test_bad_online_settings(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^OnlineITML: {word}"):
        OnlineITML(**settings).fit(X, y)


@pytest.mark.parametrize("settings", [{}, {"prior": "covariance", "gamma": 1.0}])
@pytest.mark.filterwarnings("ignore:ITML. the covariance is singular")
def test_a_warm_start_leads_to_the_same_optimum(settings):
    X, y = data(200, 6)
    settings = {"bounds": (2.0, 20.0), "random_state": 0, **settings}
    cold = ITML(**settings).fit(X, y)
    learner = ITML(warm_start=True, **settings).fit(X[:190], y[:190]).fit(X, y)
    assert learner.n_iter_ <= cold.n_iter_
    assert_allclose(learner.get_mahalanobis_matrix(), cold.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6)
    assert learner.fit(X, y).n_iter_ == 1
    wide = np.random.default_rng(0).normal(size=(12, 30))
    few = {"pairs": [[0, 1], [2, 3], [4, 5]], "pair_labels": [1, 1, -1]}
    again = learner.fit(wide, **few).fit(wide, **few)  # in the span of the differences
    assert_allclose(again.components_, ITML(**settings).fit(wide, **few).components_, rtol=1e-4, atol=1e-6)
    assert learner.set_params(n_components=2).fit(X, y).fit(X, y).converged_


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_stream_is_the_same_wherever_it_is_cut(mode):
    X, _ = data()
    rng = np.random.default_rng(4)
    pairs = rng.integers(0, 8, (40, 2))  # of 28 pairs, so that some come again
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    labels = rng.choice([-1, 1], len(pairs))  # and not always with the same label
    settings = {"mode": mode, "bounds": (0.5, 4.0)}
    whole = fit(OnlineITML(**settings), X, pairs=pairs, pair_labels=labels)
    for cuts in ([], [1], [7, 20], list(range(1, len(pairs)))):
        learner = OnlineITML(**settings)
        for some, told in zip(np.split(pairs, cuts), np.split(labels, cuts), strict=True):
            learner.partial_fit(X, pairs=some, pair_labels=told)
        assert_allclose(learner.metric_, whole.metric_, rtol=1e-9, atol=1e-12)
        assert learner.n_updates_ == whole.n_updates_


def test_a_pair_told_twice_pulls_twice():
    X, pair = np.array([[0.0, 0.0], [3.0, 0.0]]), [[0, 1]]
    settings = {"bounds": (1.0, 4.0), "eta": 0.1}
    once, twice = OnlineITML(**settings), OnlineITML(**settings)
    once.partial_fit(X, pairs=pair, pair_labels=[1])
    twice.partial_fit(X, pairs=pair * 2, pair_labels=[1, 1])
    assert twice.metric_[0, 0] < once.metric_[0, 0] < 1
    assert twice.n_updates_ == 2


def test_hard_bounds_that_no_metric_meets_end_early_and_say_so():
    X, y = data()
    pairs, signs = all_pairs(y)
    some = np.random.default_rng(0).permutation(len(signs))[:150]
    learner = ITML(np.inf, bounds=(1.0, 100.0), max_iter=20_000)
    with pytest.warns(ConvergenceWarning, match="the hard bounds may be infeasible: use a finite gamma"):
        learner.fit(X, pairs=pairs[some], pair_labels=signs[some])
    assert learner.n_iter_ < 3000
    assert not learner.converged_
