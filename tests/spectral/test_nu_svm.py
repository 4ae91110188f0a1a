"""The nu-margin metric: optimum, constraints of the dual, units, the share of margin errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from nearfar import KernelNuSVMMetric, NuSVMMetric
from tests import conic
from tests.learners import all_pairs, data, fit
from tests.references import nu_svm as loops

SETTINGS = {"n_pairs": "all", "l2": 50.0, "nu": 0.5, "tol": 1e-8}


def told(X, y):
    """Squared distances and differences of dissimilar pairs, mean scatter of similar ones, in the method's units."""
    pairs, s = all_pairs(y)
    Z = X[pairs[:, 0]] - X[pairs[:, 1]]
    unit = np.mean(np.sum(Z[s < 0] ** 2, axis=1))
    S = Z[s > 0].T @ Z[s > 0] / (s > 0).sum() / unit
    return Z[s < 0] / np.sqrt(unit), S, unit


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("l2", [5.0, 50.0])
def test_optimum_equals_a_generic_solver(definite, l2):
    X, y = data(18, 2)
    Z, S, unit = told(X, y)
    m, k, nu = len(Z), 3, 0.5
    Q = np.stack([conic.svec(np.outer(z, z)) for z in Z])
    P = np.diag(np.r_[np.ones(k), np.zeros(1 + m)])
    q = np.r_[conic.svec(S), -l2 * nu, np.full(m, l2 / m)]
    rows = [
        (np.hstack([-Q, np.ones((m, 1)), -np.eye(m)]), -np.sum(Z**2, axis=1), "positive", m),
        (np.hstack([np.zeros((m + 1, k)), -np.eye(m + 1)]), np.zeros(m + 1), "positive", m + 1),
    ]
    if definite:
        rows.append((np.hstack([-np.eye(k), np.zeros((k, m + 1))]), np.zeros(k), "psd", 2))
    x = conic.solve(P, q, rows)
    learner = fit(NuSVMMetric(n_pairs="all", l2=l2, nu=nu, definite=definite, tol=1e-8), X, y)
    assert_allclose(learner.objective_, 0.5 * x @ P @ x + q @ x, atol=1e-6 * max(1, abs(learner.objective_)))
    assert_allclose(learner.margin_, x[k], atol=1e-3)
    if definite:
        assert_allclose(learner.get_mahalanobis_matrix() * unit, conic.smat(x[:k]), atol=1e-3)


def test_dual_constraints_and_slackness():
    X, y = data(40, 3)
    learner = fit(NuSVMMetric(**SETTINGS), X, y)
    Z, _, unit = told(X, y)
    a, high = learner.dual_, 50.0 / len(Z)
    assert (a >= -1e-12).all()
    assert (a <= high * (1 + 1e-9)).all()
    assert a.sum() >= 25.0 * (1 - 1e-9)
    M = learner.get_mahalanobis_matrix() * unit
    gain = np.sort(np.einsum("pd,pd->p", Z @ M, Z) - np.sum(Z**2, axis=1))
    missed = learner.margin_ - gain
    assert learner.margin_ > 0
    assert (missed > 1e-8).mean() <= 0.5 + 1e-9
    assert (missed > -1e-8).mean() >= 0.5 - 1e-9
    # multipliers below their bound belong to pairs that meet the margin: as many miss it as are at the bound
    assert (missed > 1e-8).sum() <= (a > high * (1 - 1e-6)).sum() + 1


@pytest.mark.parametrize("nu", [0.1, 0.4, 0.9, 1.0])
def test_nu_bounds_the_share_of_errors(nu):
    X, y = data(40, 3)
    learner = fit(NuSVMMetric(**{**SETTINGS, "nu": nu}), X, y)
    Z, _, unit = told(X, y)
    M = learner.get_mahalanobis_matrix() * unit
    gain = np.einsum("pd,pd->p", Z @ M, Z) - np.sum(Z**2, axis=1)
    assert (learner.margin_ > 0) == (nu > 0.1)
    assert learner.margin_ == 0 or (gain < learner.margin_ - 1e-8).mean() <= nu + 1e-9


def test_units_do_not_matter():
    X, y = data()
    M = fit(NuSVMMetric(**SETTINGS), X, y).get_mahalanobis_matrix()
    assert_allclose(fit(NuSVMMetric(**SETTINGS), 7 * X, y).get_mahalanobis_matrix() * 49, M, rtol=1e-8, atol=1e-10)


def test_gap_and_weights():
    X, y = data()
    pairs, s = all_pairs(y)
    learner = fit(
        NuSVMMetric(l2=50.0, nu=0.5, tol=1e-8), X, pairs=pairs, pair_labels=s, pair_weights=np.full(len(s), 2.0)
    )
    assert learner.duality_gap_ <= 1e-8 * max(1, abs(learner.objective_))
    assert_allclose(learner.objective_, fit(NuSVMMetric(**SETTINGS), X, y).objective_, rtol=1e-6)
    assert_allclose(loops.primal(learner.get_mahalanobis_matrix(), X, y), learner.objective_, rtol=1e-6)


def test_prior_is_the_distance_before():
    X, y = data()
    plain = fit(NuSVMMetric(**SETTINGS), X, y)
    same = fit(NuSVMMetric(prior=np.eye(4), **SETTINGS), X, y)
    assert_allclose(same.components_, plain.components_)
    other = fit(NuSVMMetric(prior=np.diag([1.0, 2, 3, 4]), **SETTINGS), X, y)
    assert abs(other.objective_ - plain.objective_) > 1e-3
    with pytest.raises(ValueError, match=r"^NuSVMMetric: prior .*semi-definite"):
        NuSVMMetric(prior=-np.eye(4)).fit(X, y)
    with pytest.raises(ValueError, match=r"^NuSVMMetric: prior must have shape"):
        NuSVMMetric(prior=np.eye(3)).fit(X, y)


@pytest.mark.parametrize("method", [NuSVMMetric, KernelNuSVMMetric])
def test_a_search_cut_short_tells_its_gap(method):
    X, y = data()
    learner = method(l2=50.0, n_pairs="all", max_iter=5)
    with pytest.warns(ConvergenceWarning, match=rf"^{method.__name__}: .*stopped after 5 iterations with duality gap"):
        learner.fit(X, y)
    assert not learner.converged_
    assert learner.n_iter_ == 5
    best = fit(method(l2=50.0, n_pairs="all"), X, y)
    assert 1e-3 < learner.objective_ - best.objective_ <= learner.duality_gap_


@pytest.mark.parametrize("method", [NuSVMMetric, KernelNuSVMMetric])
@pytest.mark.parametrize("nu", [0.0, 1.5, -1.0])
def test_nu_out_of_range_is_refused(method, nu):
    with pytest.raises(ValueError, match=rf"^{method.__name__}: nu must be"):
        method(nu=nu).fit(*data())


@pytest.mark.parametrize(
    "learner", [NuSVMMetric(n_pairs=20), KernelNuSVMMetric(n_pairs=20), NuSVMMetric(n_pairs="all")]
)
def test_the_pairs_of_the_multipliers_are_kept(learner):
    X, y = data(30)
    found = fit(learner, X, y)
    assert_array_equal(found.pair_labels_, np.where(y[found.pairs_[:, 0]] == y[found.pairs_[:, 1]], 1, -1))
    assert len(found.dual_) == (found.pair_labels_ < 0).sum()
    if isinstance(found, NuSVMMetric):
        # only a pair that misses the margin, or just reaches it, has a multiplier
        far = found.pairs_[found.pair_labels_ < 0]
        before = np.sum((X[far[:, 0]] - X[far[:, 1]]) ** 2, axis=1)
        gain = found.pair_distance(far, X) ** 2 - before / before.mean()
        assert gain[found.dual_ > 1e-6 * found.dual_.max()].max() <= found.margin_ + 1e-4
        assert gain[found.dual_ <= 1e-6 * found.dual_.max()].min() >= found.margin_ - 1e-4


def test_warm_start_goes_on():
    X, y = data(120)
    learner = fit(NuSVMMetric(warm_start=True, max_iter=4, random_state=0), X, y)
    early, gap = learner.dual_, learner.duality_gap_
    fit(learner, X, y)
    assert learner.duality_gap_ < gap
    assert not np.array_equal(learner.dual_, early)
    fit(learner.set_params(max_iter=1000), X, y)
    L = learner.components_
    assert learner.converged_
    assert fit(learner, X, y).n_iter_ == 0  # from the optimum nothing is left to do
    assert_allclose(learner.components_, L, rtol=1e-10, atol=1e-12)
    cold = fit(NuSVMMetric(random_state=0), X[:60], y[:60])
    assert_allclose(fit(learner, X[:60], y[:60]).components_, cold.components_, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("error")
def test_defaults_have_a_margin_and_a_margin_of_0_is_told():
    X, y = data(60)
    learner = fit(NuSVMMetric(random_state=0), X, y)
    assert learner.margin_ > 0
    top = 300.0 / (learner.pair_labels_ == -1).sum()
    assert (learner.dual_ < top * (1 - 1e-6)).any(), "not every pair is at its bound"
    with pytest.warns(
        UserWarning, match=r"^NuSVMMetric: the margin is 0, so that all dissimilar pairs have the same weight"
    ):
        assert NuSVMMetric(l2=5.0, nu=0.5, random_state=0).fit(X, y).margin_ == 0


@pytest.mark.parametrize(
    ("learner", "classes", "rows", "most"),
    [
        (NuSVMMetric(random_state=0, max_iter=1), 32, 40, 20_000),
        (KernelNuSVMMetric(random_state=0, max_iter=1, landmarks=10), 16, 30, 5_000),
    ],
)
def test_many_classes_do_not_ask_for_more_pairs_than_the_dual_stands(learner, classes, rows, most):
    X = np.random.default_rng(0).normal(size=(classes * rows, 2))
    y = np.arange(len(X)) % classes  # 20 c^2 is a little more than the cap
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y)
    assert (learner.pair_labels_ > 0).sum() == (learner.pair_labels_ < 0).sum() == most
    with pytest.warns(ConvergenceWarning):
        learner.set_params(n_pairs=most + 1).fit(X, y)
    assert (learner.pair_labels_ < 0).sum() == most + 1  # a number that was asked for is kept
