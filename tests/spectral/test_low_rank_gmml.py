"""What low-rank geometric means promise beyond the laws of all learners."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearfar
from nearfar.numerics import manifolds
from nearfar.spectral.geometric.low_rank_gmml import subspaces
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import accuracy, data, fit, toy
from tests.references import low_rank_gmml as loops

X, Y = data()
S, D = loops.scatters(X, Y)
SEARCHES = ["riemannian", "trace"]


def random_basis(seed, p=2, d=4):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0]


def learn(**settings):
    return fit(nearfar.LowRankGMML(2, **{"random_state": 0, "tol": 1e-10, "max_iter": 2000, **settings}), X, Y)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_full_rank_is_the_geometric_mean(t):
    a = nearfar.LowRankGMML(4, t=t).fit(X, Y).get_mahalanobis_matrix()
    assert_allclose(a, nearfar.GMML(t).fit(X, Y).get_mahalanobis_matrix(), rtol=1e-8, atol=1e-8 * np.abs(a).max())


@pytest.mark.parametrize("reg", [0.0, 0.1])
@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_units_only_scale_the_metric(t, reg):
    # S and D go with the square of the unit, and with them their mean: (c^2)^(t-1) (c^2)^t
    for learner in (nearfar.GMML(t, reg=reg), nearfar.LowRankGMML(2, t=t, reg=reg)):
        a, b = (learner.fit(c * X, Y).get_mahalanobis_matrix() for c in (1.0, 10.0))
        assert_allclose(b, 10.0 ** (4 * t - 2) * a, rtol=1e-7, atol=1e-8 * np.abs(b).max())


@pytest.mark.parametrize("kind", ["discriminant", *SEARCHES])
def test_inner_metric_solves_the_riccati_equation(kind):
    learner = learn(subspace=kind)
    U, B = learner.subspace_, learner.inner_
    inner_S, inner_D = U.T @ S @ U, U.T @ D @ U
    assert_allclose(U.T @ U, np.eye(2), atol=1e-10)
    assert np.abs(B @ inner_S @ B - inner_D).max() <= 1e-8 * np.abs(inner_D).max()
    assert_allclose(learner.get_mahalanobis_matrix(), U @ B @ U.T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", SEARCHES)
def test_costs_are_the_published_objectives(kind):
    for seed in range(5):
        U = random_basis(seed)
        value = subspaces.cost(U, S, D, kind)[0]
        paper = 4 * loops.riemannian(U, S, D) if kind == "riemannian" else loops.trace(U, S, D)
        assert_allclose(value, paper, rtol=1e-8)


@pytest.mark.parametrize("kind", SEARCHES)
def test_gradient_is_that_of_finite_differences(kind):
    A = np.random.default_rng(3).normal(size=(4, 2))

    def value(A):
        return subspaces.cost(manifolds.orthonormal(A)[0], S, D, kind)[0]

    U, pullback = manifolds.orthonormal(A)
    G = pullback(subspaces.cost(U, S, D, kind)[1])
    assert_allclose(G, numerical_gradient(value, A), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", SEARCHES)
def test_costs_are_those_of_the_span(kind):
    U, O = random_basis(0), np.linalg.qr(np.random.default_rng(1).normal(size=(2, 2)))[0]
    assert_allclose(subspaces.cost(U @ O, S, D, kind)[0], subspaces.cost(U, S, D, kind)[0], rtol=1e-10)


@pytest.mark.parametrize("kind", SEARCHES)
def test_search_never_rises_and_ends_where_nothing_is_better(kind):
    learner = learn(subspace=kind, restarts=5)
    assert learner.converged_
    assert (np.diff(learner.history_) <= 1e-12).all()
    lowest = subspaces.cost(learner.subspace_, S, D, "trace")[0]
    if kind == "trace":
        assert_allclose(lowest, learner.objective_)
        for seed in range(300):
            assert subspaces.cost(random_basis(seed), S, D, "trace")[0] >= lowest - 1e-8


def test_trace_chooses_the_directions_that_vary_least():
    learner = learn(subspace="trace")
    V = np.linalg.eigh(S + D)[1]
    overlap = np.linalg.svd(V[:, :2].T @ learner.subspace_)[1]
    assert overlap.min() > 0.9


@pytest.mark.parametrize("kind", ["discriminant", *SEARCHES])
def test_subspace_does_not_depend_on_t(kind):
    a, b = (learn(subspace=kind, t=t) for t in (0.1, 0.9))
    assert_allclose(a.subspace_ @ a.subspace_.T, b.subspace_ @ b.subspace_.T, atol=1e-10)
    assert np.abs(a.inner_ - b.inner_).max() > 1e-3


@pytest.mark.parametrize("init", ["discriminant", "pca", "random"])
def test_riemannian_objective_is_the_published_one(init):
    learner = learn(subspace="riemannian", init=init)
    assert_allclose(learner.objective_, loops.riemannian(learner.subspace_, S, D), rtol=1e-6, atol=1e-12)


def test_discriminant_subspace_tells_more_than_the_published_ones():
    A, a = toy()
    A[:, :2] *= 10
    scores = {}
    for kind in ("discriminant", *SEARCHES):
        learner = fit(nearfar.LowRankGMML(2, subspace=kind, random_state=0), A[:200], a[:200])
        scores[kind] = accuracy(learner.transform(A[:200]), a[:200], learner.transform(A[200:]), a[200:])
    assert scores["discriminant"] == max(scores.values())
    assert scores["discriminant"] >= scores["trace"] + 0.2


def test_default_rank_follows_what_tells():
    A, a = toy()
    assert nearfar.LowRankGMML().fit(A, a).components_.shape == (2, 8)


def test_wide_data_are_solved_in_their_span():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(12, 300)), np.arange(12) % 3
    learner = nearfar.LowRankGMML(2).fit(Z, y)
    L, U = learner.components_, learner.subspace_
    span = np.linalg.svd(Z - Z.mean(axis=0))[2][:11]
    assert_allclose(L @ span.T @ span, L, atol=1e-8)
    assert_allclose(U.T @ U, np.eye(2), atol=1e-10)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"t": 1.5}, r"t must be in \[0, 1\]"),
        ({"subspace": "best"}, "subspace must be one of"),
        ({"init": "zeros"}, "init must be one of"),
        ({"restarts": 0}, "restarts must be"),
        ({"reg": -1.0}, "reg must be"),
    ],
)
def test_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^LowRankGMML: .*{word}"):
        nearfar.LowRankGMML(**settings).fit(X, Y)


def test_refuses_more_directions_than_the_dissimilar_scatter_has():
    pairs = np.array([[i, i + 1] for i in range(12)])
    labels = np.where(np.arange(12) < 10, 1, -1)
    with pytest.raises(ValueError, match=r"^LowRankGMML: n_components must be at most 2, the rank"):
        nearfar.LowRankGMML(3, reg=0.0).fit(X, pairs=pairs, pair_labels=labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearfar.LowRankGMML(2, reg=0.0).fit(X, pairs=pairs, pair_labels=labels)


@pytest.mark.parametrize("wide", [np.c_[X[:, :2], X[:, :2]], np.eye(4)[:3] @ X[:4]])
def test_refuses_more_directions_than_the_data_have(wide):
    # regularization would make room for others, in which no two rows differ
    with pytest.raises(ValueError, match=r"^LowRankGMML: n_components must be at most 2, the rank of the data; got 3"):
        nearfar.LowRankGMML(3).fit(wide, Y[: len(wide)] if len(wide) > 3 else [0, 0, 1])


@pytest.mark.parametrize("subspace", ["riemannian", "trace"])
def test_warm_start_goes_on(subspace):
    rows, y = data(200, 12)
    learner = fit(nearfar.LowRankGMML(3, subspace=subspace, restarts=1, max_iter=2, warm_start=True), rows, y)
    early = learner.history_[-1]
    fit(learner.set_params(max_iter=3000, restarts=3), rows, y)
    assert learner.history_[0] <= early
    L, steps = learner.get_mahalanobis_matrix(), learner.n_iter_
    assert fit(learner, rows, y).n_iter_ < steps
    assert_allclose(learner.get_mahalanobis_matrix(), L, rtol=1e-2, atol=1e-2 * L.max())
    cold = fit(nearfar.LowRankGMML(2, subspace=subspace, random_state=0), rows, y)
    again = fit(learner.set_params(n_components=2, random_state=0), rows, y)
    assert_allclose(again.components_, cold.components_)


def test_the_riemannian_search_minimizes_its_own_objective():
    learner = learn(subspace="riemannian", restarts=5, max_iter=3000, random_state=0)
    for seed in range(20):
        U = random_basis(seed)
        if U.shape == learner.subspace_.shape:
            for t in (0.1, 0.3, 1.0):
                near = np.linalg.qr(learner.subspace_ + t * U)[0]
                assert loops.riemannian(near, S, D) >= learner.objective_ - 1e-6
