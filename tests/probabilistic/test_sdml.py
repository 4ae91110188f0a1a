"""SDML: its optimum, also for a matrix that is not definite; problems without one; sparsity; pairs of all kinds."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.covariance import graphical_lasso
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from nearfar import SDML
from nearfar.probabilistic.information import sdml
from nearfar.probabilistic.information.sdml.graphical_lasso import UnboundedError, sparse_inverse
from tests.conic import svec
from tests.learners import all_pairs, data, fit
from tests.references import sdml as loops

X, Y = data(40, 5)
PAIRS, SIGNS = (values[::5] for values in all_pairs(Y))


def matrix(d=5, ratio=0.5, seed=0):
    """I plus a symmetric matrix; indefinite where the ratio is above 1."""
    B = np.random.default_rng(seed).normal(size=(d, d))
    P = B + B.T
    return np.eye(d) - ratio * P / np.linalg.eigvalsh(P)[0]


def solve(S, lam, **settings):
    return sparse_inverse(S, lam, **{"max_iter": 100, "tol": 1e-6, **settings})


def conic_dual(S, lam):
    """max log det W + d over |W_ij - S_ij| <= lam off the diagonal; None where no W is positive definite."""
    clarabel = pytest.importorskip("clarabel")
    d = len(S)
    (i, j), (a, b) = np.triu_indices(d, 1), np.tril_indices(d)
    p, k = len(i), len(a)
    n = p + k + d  # W - S, lower triangle Z, t <= log diag(Z)
    basis = np.zeros((d * (2 * d + 1), n))
    for q in range(p + k):
        E = np.zeros((2 * d, 2 * d))
        if q < p:
            E[i[q], j[q]] = E[j[q], i[q]] = 1.0
        else:
            r, c = a[q - p], b[q - p]
            E[r, d + c] = E[d + c, r] = 1.0
            E[d + r, d + r] += float(r == c)
        basis[:, q] = svec(E)
    whole = np.zeros((2 * d, 2 * d))
    whole[:d, :d] = S
    box = np.eye(p, n)
    rows, rhs = [-basis, box, -box], [svec(whole), np.full(p, lam), np.full(p, lam)]
    kinds = [clarabel.PSDTriangleConeT(2 * d), clarabel.NonnegativeConeT(2 * p)]
    for r in range(d):
        cone = np.zeros((3, n))
        cone[0, p + k + r] = -1.0
        cone[2, p + int(np.flatnonzero((a == r) & (b == r))[0])] = -1.0  # exp(t) <= Z_rr
        rows.append(cone), rhs.append(np.array([0.0, 1.0, 0.0])), kinds.append(clarabel.ExponentialConeT())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cost = np.r_[np.zeros(p + k), -np.ones(d)]
    A = sparse.csc_matrix(np.vstack(rows))
    found = clarabel.DefaultSolver(sparse.csc_matrix((n, n)), cost, A, np.concatenate(rhs), kinds, settings).solve()
    return d - found.obj_val if str(found.status) == "Solved" else None


@pytest.mark.parametrize("ratio", [0.5, 0.99, 1.0, 1.02])
@pytest.mark.parametrize("lam", [0.02, 0.2])
def test_a_generic_solver_finds_the_same_optimum_also_where_the_matrix_is_not_definite(ratio, lam):
    S = matrix(4, ratio)
    found = solve(S, lam)
    assert found.converged
    assert found.objective == pytest.approx(loops.objective(found.x, S, lam), rel=1e-10)
    assert found.objective == pytest.approx(conic_dual(S, lam), abs=5e-6)
    assert loops.violation(found.x, S, lam) <= 1e-6
    assert_array_equal(found.x, found.x.T)


@pytest.mark.parametrize("lam", [0.02, 0.2])
@pytest.mark.parametrize("ratio", [1.5, 4.0, 100.0])
def test_where_there_is_no_minimum_a_direction_proves_it(ratio, lam):
    S = matrix(4, ratio, 3)
    assert conic_dual(S, lam) is None
    with pytest.raises(UnboundedError) as error:
        solve(S, lam)
    D = error.value.direction
    assert np.linalg.eigvalsh(D)[0] >= 0
    assert np.trace(D) > 0
    assert np.vdot(S, D) + lam * (np.abs(D).sum() - np.trace(D)) <= 0


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "lam"), [(60, 10, 0.1), (60, 30, 0.3), (15, 30, 0.3), (100, 40, 0.02)])
def test_agrees_with_the_graphical_lasso_of_scikit_learn(n, d, lam):
    rng = np.random.default_rng(d)
    C = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    C /= C.std(axis=0)
    S = C.T @ C / n
    found = solve(S, lam)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        M = graphical_lasso(S, lam, tol=1e-6, max_iter=500)[1]
    assert found.converged
    assert found.objective <= loops.objective(M, S, lam) + 1e-9
    assert_allclose(found.x, M, atol=1e-2 * np.abs(M).max())
    assert loops.violation(found.x, S, lam) <= 1e-5


def test_random_matrices_of_many_kinds_are_solved():
    rng = np.random.default_rng(0)
    for k in range(60):
        d = int(rng.integers(1, 25))
        C = rng.normal(size=(int(rng.integers(1, 2 * d + 2)), d)) * 10 ** rng.uniform(-2, 2, d)
        S = C.T @ C + 10 ** rng.uniform(-3, 0) * np.eye(d)
        lam = 10 ** rng.uniform(-3, 0) * np.abs(S).max()
        found = solve(S, lam, tol=1e-4)
        assert found.converged, k
        assert found.duality_gap <= 1e-8


def test_the_gap_bounds_the_distance_from_the_minimum():
    S = matrix(12, 0.95, 2)
    best = solve(S, 0.05).objective
    for steps in (1, 2, 3):
        early = solve(S, 0.05, max_iter=steps)
        assert not early.converged
        assert 0 < early.objective - best <= early.duality_gap
    with pytest.warns(ConvergenceWarning, match="^SDML: Newton's method stopped after 1 iterations with duality gap"):
        SDML(max_iter=1, random_state=0).fit(X, Y)


def test_closed_forms_without_a_penalty_and_with_a_large_one():
    S = matrix(6, 0.9)
    assert_allclose(solve(S, 0.0).x, np.linalg.inv(S), rtol=1e-7, atol=1e-9)
    assert_allclose(solve(S, 100.0).x, np.diag(1 / S.diagonal()), rtol=1e-14)
    blocks = np.kron(np.eye(2), S)
    assert_allclose(solve(blocks, 0.05).x, np.kron(np.eye(2), solve(S, 0.05).x), atol=1e-6)


def test_order_and_signs_of_features_do_not_matter():
    order, signs = np.random.default_rng(0).permutation(5), np.array([1, -1, 1, -1, -1])
    M = SDML(random_state=0).fit(X, pairs=PAIRS, pair_labels=SIGNS).metric_
    assert_allclose(SDML().fit(X[:, order], pairs=PAIRS, pair_labels=SIGNS).metric_, M[np.ix_(order, order)], atol=1e-4)
    assert_allclose(
        SDML().fit(X * signs, pairs=PAIRS, pair_labels=SIGNS).metric_, M * np.outer(signs, signs), atol=1e-9
    )


def test_a_heavier_penalty_leaves_fewer_entries():
    counts = [
        np.count_nonzero(SDML(sparsity=lam).fit(X, pairs=PAIRS, pair_labels=SIGNS).metric_)
        for lam in (0.0, 0.01, 0.1, 0.3, 10.0)
    ]
    assert counts[0] == 25
    assert counts[-1] == 5
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 2


@pytest.mark.parametrize("prior", ["identity", "covariance", np.diag([1.0, 2, 3, 4, 5]) + 0.1])
def test_the_prior_and_the_weights_of_pairs(prior):
    weights = np.arange(len(PAIRS)) % 3
    told = {"pairs": PAIRS, "pair_labels": SIGNS, "pair_weights": weights}
    learner = SDML(2e-5, prior=prior).fit(X, **told)
    M0 = {"identity": np.eye(5), "covariance": np.linalg.inv(np.cov(X.T))}[prior] if isinstance(prior, str) else prior
    S = loops.matrix(X, PAIRS, weights * SIGNS, 2e-5, M0)
    assert learner.balance_ == 2e-5
    assert learner.objective_ == pytest.approx(loops.objective(learner.metric_, S, 0.01), rel=1e-9)
    assert loops.violation(learner.metric_, S, 0.01) <= 1e-5 * np.abs(S).max()
    assert_allclose(fit(SDML(1e-12, prior=M0, sparsity=0.0), X, Y).metric_, M0, rtol=1e-4)


@pytest.mark.parametrize("name", [load_iris, load_wine])
@pytest.mark.parametrize("sparsity", [0.0, 0.01, 0.5])
def test_too_large_a_balance_becomes_nine_tenths_of_the_largest_with_one_warning(name, sparsity):
    A, a = name(return_X_y=True)
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        learner = SDML(0.5, sparsity=sparsity, random_state=0).fit(A, a)
    assert len(told) == 1
    assert str(told[0].message).startswith(
        "SDML: the objective has no minimum for balance=0.5, which must be below about"
    )
    assert learner.converged_
    given = SDML(learner.balance_, sparsity=sparsity, random_state=0).fit(A, a)
    assert_allclose(given.metric_, learner.metric_)
    # at what 0.9 is taken of there is a minimum, a little above there is none
    most = learner.balance_ / sdml.BALANCE_SHARE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SDML(0.999 * most, sparsity=sparsity, random_state=0).fit(A, a)
        with pytest.raises(UserWarning, match="the objective has no minimum"):
            SDML(1.011 * most, sparsity=sparsity, random_state=0).fit(A, a)


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_the_scale_of_the_features_is_the_default_balances(scale):
    one, other = (SDML(random_state=0).fit(X * s, Y) for s in (1.0, scale))
    assert other.balance_ == pytest.approx(one.balance_ / scale**2)
    assert_allclose(other.metric_, one.metric_, rtol=1e-6)


def test_both_kinds_of_pairs_from_labels_weigh_alike_and_given_ones_as_they_are_given():
    pairs, signs = all_pairs(Y)
    weights = np.where(signs > 0, 1.0, (signs > 0).sum() / (signs < 0).sum())
    alike = SDML(1e-5).fit(X, pairs=pairs, pair_labels=signs, pair_weights=weights).metric_
    assert_allclose(SDML(1e-5, n_pairs="all").fit(X, Y).metric_, alike, rtol=1e-6, atol=1e-9)
    assert_allclose(SDML(1e-5, n_pairs=10_000).fit(X, Y).metric_, alike, rtol=1e-6, atol=1e-9)
    plain = SDML(1e-5).fit(X, pairs=pairs, pair_labels=signs)
    S = loops.matrix(X, pairs, signs, 1e-5, np.eye(5))
    assert loops.violation(plain.metric_, S, 0.01) <= 1e-6 * np.abs(S).max()


def test_rows_all_alike_leave_the_prior():
    with pytest.warns(UserWarning, match="all similar pairs coincide"):
        learner = SDML(prior=2 * np.eye(3)).fit(np.ones((6, 3)), np.arange(6) % 2)
    assert_allclose(learner.metric_, 2 * np.eye(3))


def test_bad_settings_are_named():
    for settings in ({"balance": 0.0}, {"balance": np.inf}, {"sparsity": -0.1}, {"sparsity": np.inf}):
        with pytest.raises(ValueError, match=f"^SDML: {next(iter(settings))} must be"):
            SDML(**settings).fit(X, Y)


@pytest.mark.parametrize("settings", [{}, {"sparsity": 1.0, "prior": "covariance"}])
def test_a_warm_start_leads_to_the_same_optimum(settings):
    X, y = data(200, 6)
    settings = {"random_state": 0, **settings}
    cold = SDML(**settings).fit(X, y)
    learner = SDML(warm_start=True, **settings).fit(X[:190], y[:190]).fit(X, y)
    assert learner.n_iter_ <= cold.n_iter_
    assert_allclose(learner.metric_, cold.metric_, rtol=1e-4, atol=1e-4 * np.abs(cold.metric_).max())
    assert learner.fit(X, y).n_iter_ == 1
    fewer = learner.set_params(n_components=2).fit(X, y)  # which only leaves out directions of the same metric
    assert fewer.fit(X, y).n_iter_ == 1
