"""What adversarial metric learning promises beyond the laws of all learners."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import nearfar
from nearfar.spectral.adversarial.aml import adversary, aml
from tests.finite_differences import derivative_along
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import all_pairs, data, distances, fit
from tests.references import aml as loops
from tests.references import low_rank_gmml

X, Y = data()
S, D = low_rank_gmml.scatters(X, Y)
GMML = nearfar.GMML().fit(X, Y).get_mahalanobis_matrix()


def metric(**settings):
    return fit(nearfar.AML(**{"max_iter": 2000, "tol": 1e-10, **settings}), X, Y).get_mahalanobis_matrix()


def random_metric(seed, d=4):
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A @ A.T + 0.1 * np.eye(d)


@pytest.mark.parametrize("beta", [0.1, 1.0, 5.0])
def test_gradient_is_that_of_finite_differences(beta):
    M = random_metric(0)
    G = adversary.value(np.linalg.cholesky(M).T, S, D, 2.0, beta)[1]

    def value(A):
        return adversary.value(np.linalg.cholesky((A + A.T) / 2).T, S, D, 2.0, beta)[0]

    assert_allclose(G, numerical_gradient(value, M), rtol=1e-6, atol=1e-6)


def test_gradient_holds_where_eigenvalues_meet():
    # differences are exact along a direction that splits the equal eigenvalues
    step = np.diag([1.0, -1.0, 0.5, 0.0]) + np.eye(4)[::-1] / 3
    G = adversary.value(np.eye(4), S, D, 2.0, 1.0)[1]

    def value(A):
        return adversary.value(np.linalg.cholesky(A).T, S, D, 2.0, 1.0)[0]

    assert_allclose(np.sum(G * step), derivative_along(value, np.eye(4), step), rtol=1e-7)


@pytest.mark.parametrize("seed", [0, 1])
def test_value_is_the_objective_with_adversaries_written_out(seed):
    M, (A, B) = random_metric(seed), low_rank_gmml.scatters(X, Y, 0.0)
    F = adversary.value(np.linalg.cholesky(M).T, A, B, 3.0, 0.7)[0]
    assert_allclose(F, loops.objective(M, X, Y, 3.0, 0.7, 0.0), rtol=1e-9)


def test_adversaries_minimize_their_objective():
    learner = fit(nearfar.AML(beta=0.7), X, Y)
    pairs, labels = all_pairs(Y)
    found = learner.adversarial_pairs(X, pairs[:30], labels[:30])
    M = learner.get_mahalanobis_matrix()
    for (i, j), label, points in zip(pairs[:30], labels[:30], found, strict=True):
        p, q = loops.adversaries(X[i], X[j], label > 0, M, 0.7)
        assert_allclose(points, [p, q], rtol=1e-8, atol=1e-8)
        assert_allclose(points.mean(axis=0), (X[i] + X[j]) / 2, atol=1e-10)


@pytest.mark.parametrize("solver", ["bilevel", "alternate"])
def test_without_an_adversary_it_is_the_geometric_mean(solver):
    assert_allclose(metric(alpha=0.0, solver=solver), GMML, rtol=1e-10)


def test_more_features_than_rows():
    wide, y = np.random.default_rng(0).normal(size=(12, 40)), np.arange(12) % 3
    d = distances(nearfar.GMML().fit(wide, y), wide)
    assert_allclose(distances(fit(nearfar.AML(0.0, tol=1e-10), wide, y), wide), d, rtol=1e-6)
    assert np.isfinite(fit(nearfar.AML(), wide, y).components_).all()


@pytest.mark.parametrize("solver", ["bilevel", "alternate"])
@pytest.mark.parametrize("beta", [1e-8, 1e8])
def test_free_and_bound_adversaries_leave_the_geometric_mean(solver, beta):
    assert_allclose(metric(beta=beta, alpha=3.0, solver=solver), GMML, rtol=1e-7, atol=3e-8 * np.abs(GMML).max())


@pytest.mark.parametrize("alpha", [0.5, 10.0])
def test_bilevel_is_the_lowest_and_alternation_is_a_fixed_point(alpha):
    low, fixed = (fit(nearfar.AML(alpha, solver=s, max_iter=2000, tol=1e-10), X, Y) for s in ("bilevel", "alternate"))
    assert low.converged_
    assert fixed.converged_
    assert low.objective_ <= fixed.objective_ + 1e-9
    assert low.objective_ < low.gmml_objective_
    M = fixed.get_mahalanobis_matrix()
    P = adversary.confusion(M, 1.0)
    A, B = S + alpha * P @ S @ P, (1 + alpha / 9) * D
    assert np.abs(M @ A @ M - B).max() <= 1e-8 * np.abs(B).max()
    G = adversary.value(low.components_, S, D, alpha, 1.0)[1]
    assert np.abs(G).max() <= 1e-6 * np.abs(S).max()
    assert np.linalg.eigvalsh(low.get_mahalanobis_matrix())[0] > 0


def test_every_start_ends_at_one_metric():
    found = [aml(S, D, 5.0, start=np.linalg.cholesky(random_metric(k)).T, max_iter=5000, tol=1e-10) for k in range(3)]
    for solution in found:
        assert_allclose(solution.objective, found[0].objective, rtol=1e-9)
        assert_allclose(solution.x.T @ solution.x, found[0].x.T @ found[0].x, rtol=1e-4, atol=1e-5)


def test_value_never_rises():
    learner = fit(nearfar.AML(10.0), X, Y)
    assert (np.diff(learner.history_) <= 1e-12 * learner.history_[0]).all()
    assert learner.history_[0] <= learner.gmml_objective_ * (1 + 1e-12)


def test_cut_short_and_warm():
    learner = nearfar.AML(10.0, max_iter=2, tol=1e-6, warm_start=True)
    with pytest.warns(ConvergenceWarning, match=r"^AML: "):
        learner.fit(X, Y)
    first = learner.objective_
    learner.set_params(max_iter=1000).fit(X, Y)
    assert learner.objective_ <= first
    with pytest.warns(ConvergenceWarning, match=r"^AML: the alternation"):
        nearfar.AML(10.0, solver="alternate", max_iter=2).fit(X, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_single_feature_is_learned_in_silence():
    for column in range(4):
        x = X[:, [column]]
        learner = nearfar.AML().fit(x, Y)
        within, between = low_rank_gmml.scatters(x, Y)
        scales = np.geomspace(1e-3, 1e3, 1001) * learner.components_[0, 0]
        least = min(adversary.value(L * np.eye(1), within, between, 1.0, 1.0)[0] for L in scales)
        assert learner.objective_ <= least * (1 + 1e-6)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"alpha": -1.0}, "alpha must be"),
        ({"beta": 0.0}, "beta must be"),
        ({"solver": "both"}, "solver must be one of"),
        ({"reg": -1.0}, "reg must be"),
    ],
)
def test_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^AML: {word}"):
        nearfar.AML(**settings).fit(X, Y)
