"""Privileged information: gradients, one optimum from every start, the views' roles."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from sklearn import config_context

from nearfar import PrivilegedMetric
from nearfar.numerics import constraints
from nearfar.numerics.constraints import Pairs
from nearfar.numerics.pair_differences import PairList
from nearfar.probabilistic.risk.privileged import privileged
from nearfar.probabilistic.risk.privileged.two_views import TwoViews, strong_gap, unit_scale
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import all_pairs, data, fit
from tests.references import privileged as loops


def views(n=30):
    X, y = data(n)
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, 3))
    # what blurs the main view is seen in the other one
    X = X + 3 * Z[:, :1] * np.array([2.0, -1.0, 1.0, 0.5])
    pairs, labels = all_pairs(y)
    return X, Z, Pairs(pairs[:, 0], pairs[:, 1], labels > 0), y


def problem(penalty="trace"):
    X, Z, told, _ = views()
    listed = PairList(told.i, told.j, len(X))
    w = np.full(len(told.i), 1 / len(told.i))
    return TwoViews(X / unit_scale(X), Z / unit_scale(Z), listed, told.sign[listed.order], w, (0.01, 0.02), penalty)


def test_value_equals_the_loops():
    told = problem()
    L = np.random.default_rng(0).normal(size=(7, 7))
    pairs = list(zip(told.pairs.i, told.pairs.j, strict=True))
    M, P = L[:, :4].T @ L[:, :4], L[:, 4:].T @ L[:, 4:]
    f, G = told(L)
    assert_allclose(f, loops.objective(M, P, told.X, told.Z, pairs, told.s, 0.01, 0.02), rtol=1e-12)
    assert_allclose(
        G, block_diag(*loops.gradient(M, P, told.X, told.Z, pairs, told.s, 0.01, 0.02)), rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_gradient_by_the_factor(penalty):
    told = problem(penalty)
    L = 0.5 * np.random.default_rng(0).normal(size=(7, 7))
    expected = numerical_gradient(lambda A: told(A)[0], L)
    assert_allclose(2 * L @ told(L)[1], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_every_start_ends_at_one_certified_optimum(penalty):
    X, Z, told, _ = views()
    found = [
        privileged(
            X,
            Z,
            told,
            0.01,
            0.02,
            penalty=penalty,
            tol=1e-9,
            max_iter=400,
            start=None if seed is None else np.random.default_rng(seed).normal(size=(7, 7)),
        )
        for seed in (None, 0, 1)
    ]
    for each in found:
        assert each.converged
        assert each.duality_gap <= 1e-7
        assert_allclose(each.objective, found[0].objective, atol=1e-7)
        assert_allclose(
            each.x.T @ each.x, found[0].x.T @ found[0].x, rtol=1e-2, atol=1e-3 * np.abs(found[0].x).max() ** 2
        )
        assert np.abs(found[0].attributes["privileged"]).max() > 0.1
        Q, Q0 = each.attributes["privileged"], found[0].attributes["privileged"]
        assert_allclose(Q.T @ Q, Q0.T @ Q0, rtol=1e-2, atol=1e-3 * np.abs(Q0).max() ** 2)


def test_the_gap_bounds_what_is_missing():
    X, Z, told, _ = views()
    for penalty in ("trace", "frobenius"):
        best = privileged(X, Z, told, 0.01, 0.02, penalty=penalty, tol=1e-8, max_iter=400)
        for steps in (1, 3, 10, 30):
            early = privileged(X, Z, told, 0.01, 0.02, penalty=penalty, tol=1e-8, max_iter=steps)
            assert early.objective - best.objective <= early.duality_gap + 1e-9


def test_without_a_penalty_the_gap_tells_how_far_the_conditions_are_from_met():
    problem_, rng = problem()._replace(reg=(0.0, 0.0)), np.random.default_rng(0)
    for scale in (0.01, 0.1, 1.0):
        L = scale * rng.normal(size=(7, 7))
        f, G = problem_(L)
        assert problem_.gap(L, f, G) >= max(float(np.vdot(L, L @ G)), 0.0)


def test_the_gap_of_a_strongly_convex_objective_is_tight():
    for m, g in ((4.0, 1.0), (4.0, -1.0), (0.5, 6.0)):  # of (M' - M)^2 + g (M' - M) over M' >= 0, at M = m
        M = max(m - g / 2, 0.0)
        gap = strong_gap(2.0, np.array([[m**0.5]]), np.array([[g]]))
        assert_allclose(gap, g * (m - M) - (m - M) ** 2, rtol=1e-12)


def test_swapping_views_and_signs_swaps_the_metrics():
    X, Z, told, _ = views()
    a = privileged(X, Z, told, 0.01, 0.02, tol=1e-7, max_iter=400)
    b = privileged(Z, X, told._replace(similar=~told.similar), 0.02, 0.01, tol=1e-7, max_iter=400)
    assert_allclose(a.objective, b.objective, atol=1e-6)
    M, P = a.x.T @ a.x, b.attributes["privileged"].T @ b.attributes["privileged"]
    assert_allclose(M, P, rtol=1e-2, atol=1e-3 * np.abs(M).max())


def test_no_privileged_view_is_the_logistic_loss_with_threshold_0():
    X, _, told, y = views()
    a = privileged(X, np.zeros((30, 0)), told, 0.01, max_iter=400)
    b = privileged(X, np.zeros((30, 2)), told, 0.01, max_iter=400)
    assert_allclose(a.objective, b.objective, atol=1e-6)
    L = a.x * unit_scale(X)
    pairs = list(zip(told.i, told.j, strict=True))
    M = L.T @ L
    expected = 0.01 * np.trace(M)
    for (i, j), s in zip(pairs, told.sign, strict=True):
        z = (X[i] - X[j]) / unit_scale(X)
        expected += np.logaddexp(0, s * (z @ M @ z)) / len(pairs)
    assert_allclose(a.objective, expected)
    learner = PrivilegedMetric(reg_x=0.01, random_state=0).fit(X, y)
    assert learner.privileged_components_.shape[1] == 0


def test_labels_with_a_view_do_not_depend_on_row_order():
    X, Z, _, y = views()
    order = np.random.default_rng(0).permutation(30)
    a = fit(PrivilegedMetric(random_state=0), X, y, privileged=Z).get_mahalanobis_matrix()
    b = fit(PrivilegedMetric(random_state=0), X[order], y[order], privileged=Z[order]).get_mahalanobis_matrix()
    assert_allclose(a, b, rtol=1e-6, atol=1e-9 * a.max())
    c = fit(PrivilegedMetric(random_state=0), X, y, privileged=Z[order]).get_mahalanobis_matrix()
    assert np.abs(a - c).max() > 1e-3 * a.max()


def test_units_of_both_views_do_not_matter():
    X, Z, _, y = views()
    a = fit(PrivilegedMetric(random_state=0), X, y, privileged=Z).get_mahalanobis_matrix()
    b = fit(PrivilegedMetric(random_state=0), 10 * X, y, privileged=Z / 7).get_mahalanobis_matrix()
    assert_allclose(b, a / 100, rtol=1e-4, atol=1e-6 * a.max() / 100)


def test_one_feature_is_not_lost_on_the_way():
    # the first step of the search over factors ends at 0, where their gradient vanishes
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    x = (rng.normal(size=(3, 4))[y] * 1.5 + rng.normal(size=(40, 4)))[:, :1]
    learner = PrivilegedMetric(random_state=0).fit(x, y)
    assert learner.converged_
    told = constraints.pairs_from_labels(y, None, 0)
    d = (x[told.i, 0] - x[told.j, 0]) ** 2 / (2 * x.var() * 40 / 39)
    scan = [np.mean(np.logaddexp(0, m * told.sign * d)) + 1e-3 * m for m in np.linspace(0, 1, 201)]
    assert min(scan) < np.log(2) - 1e-3  # other pairs than the learner's, but as many
    assert learner.objective_ < np.log(2) - 1e-3


def test_balanced_pairs_weigh_a_half():
    X, Z, told, _ = views()
    many = Pairs(*(np.concatenate([field, field[told.similar]]) for field in told[:3]))
    a = privileged(X, Z, told, 0.01, 0.01, pair_weight="balanced", max_iter=400)
    b = privileged(X, Z, many, 0.01, 0.01, pair_weight="balanced", max_iter=400)
    assert_allclose(a.objective, b.objective, atol=2e-6)


def test_a_view_of_the_blur_is_a_threshold_and_lowers_the_risk():
    X, Z, told, _ = views(60)
    alone = privileged(X, np.zeros((60, 0)), told)
    helped = privileged(X, Z, told)
    assert helped.objective < alone.objective - 0.01
    P = helped.attributes["privileged"].T @ helped.attributes["privileged"]
    assert P.trace() > 0.01


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"reg_x": -1.0}, "reg_x"),
        ({"reg_z": -1.0}, "reg_z"),
        ({"penalty": "l1"}, "penalty"),
        ({"pair_weight": 3}, "pair_weight"),
    ],
)
def test_bad_settings(settings, word):
    X, Z, _, y = views()
    with pytest.raises(ValueError, match=f"^PrivilegedMetric: {word}"):
        PrivilegedMetric(**settings).fit(X, y, privileged=Z)


def test_the_threshold_has_the_least_balanced_error():
    X, Z, told, _ = views()
    few = np.flatnonzero(told.similar)[:20]
    keep = np.sort(np.r_[few, np.flatnonzero(~told.similar)])
    pairs, similar = np.stack([told.i, told.j], axis=1)[keep], told.similar[keep]
    learner = PrivilegedMetric().fit(X, pairs=pairs, pair_labels=np.where(similar, 1, -1), privileged=Z)

    def error(said):
        return np.mean(~said[similar]) + np.mean(said[~similar])

    d = learner.pair_distance(pairs, X)
    assert error(d <= learner.threshold_) == min(error(d <= t) for t in np.r_[0, d]) < 0.9


def test_what_fit_takes_can_be_routed():
    with config_context(enable_metadata_routing=True):
        PrivilegedMetric().set_fit_request(privileged=True, pairs=True, pair_labels=True, pair_weights=True, rows=True)


def test_a_hole_in_the_second_view_is_named():
    X, Z, _, y = views()
    Z[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^PrivilegedMetric: privileged .* NaN"):
        PrivilegedMetric().fit(X, y, privileged=Z)


def test_views_of_different_length():
    X, Z, _, y = views()
    with pytest.raises(ValueError, match=r"^PrivilegedMetric: privileged must have the 30 rows of X; got 29"):
        PrivilegedMetric().fit(X, y, privileged=Z[:-1])


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_a_warm_start_leads_to_the_same_optimum(penalty):
    X, y = data(120)
    Z = X[:, 2:] ** 2
    settings = {"random_state": 0, "reg_x": 0.01, "penalty": penalty, "n_pairs": 2000}
    cold = PrivilegedMetric(**settings).fit(X, y, privileged=Z)
    learner = PrivilegedMetric(warm_start=True, **settings).fit(10 * X[:110], y[:110], privileged=Z[:110] / 7)
    learner.fit(X, y, privileged=Z)
    M = cold.get_mahalanobis_matrix()
    assert_allclose(learner.objective_, cold.objective_, rtol=1e-5)
    assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-2, atol=1e-2 * M.max())
    assert learner.fit(X, y, privileged=Z).n_iter_ < cold.n_iter_
    other = learner.fit(X, y, privileged=X[:, :1])  # another privileged view
    assert_allclose(other.objective_, PrivilegedMetric(**settings).fit(X, y, privileged=X[:, :1]).objective_, rtol=1e-5)
