"""What the metric on Stiefel x SPD promises beyond the laws of all learners, and its kernel form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import nearfar
from nearfar.numerics import manifolds
from nearfar.numerics.constraints import LabelPairs, written_out
from nearfar.spectral import stiefel
from tests.finite_differences import gradient as numerical_gradient
from tests.learners import accuracy, all_pairs, data, distances, fit, toy
from tests.references import stiefel_spd as loops

X, Y = data()
UNIT = loops.unit(X)
PAIRS = written_out(LabelPairs(Y))
PRIOR = np.array([[2.0, 0.5], [0.5, 1.0]])


def learn(p=2, **settings):
    told = {"lam": 0.1, "n_pairs": "all", "max_iter": 3000, "tol": 1e-9, "random_state": 0, **settings}
    return fit(nearfar.StiefelSPDMetric(p, **told), X, Y)


@pytest.mark.parametrize("prior", [None, PRIOR])
def test_gradient_is_that_of_finite_differences(prior):
    loss = stiefel.pair_loss(UNIT, PAIRS, 0.3)
    rng = np.random.default_rng(0)
    if prior is None:
        fun, x = stiefel.without_prior(loss, 0.1), rng.normal(size=(2, 4))
    else:
        fun, x = stiefel.with_prior(loss, 0.1, np.linalg.cholesky(prior).T), rng.normal(size=(2, 6))
    assert_allclose(fun(x)[1], numerical_gradient(lambda z: fun(z)[0], x), rtol=1e-6, atol=1e-8)


def test_gradient_through_the_qr_factorization():
    rng = np.random.default_rng(1)
    A, C = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    U, pullback = manifolds.orthonormal(A)
    assert_allclose(U.T @ U, np.eye(3), atol=1e-14)
    expected = numerical_gradient(lambda B: np.sum(C * manifolds.orthonormal(B)[0]), A)
    assert_allclose(pullback(C), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("prior", "bias"), [(None, 0.0), (None, 0.5), (PRIOR, 0.0), (PRIOR, 0.5)])
def test_objective_is_the_papers(prior, bias):
    learner = learn(prior=prior, bias=bias)
    assert learner.converged_
    V, Lam = learner.stiefel_, learner.spd_ * learner.scale_**2
    assert_allclose(V.T @ V, np.eye(2), atol=1e-12)
    assert np.linalg.eigvalsh(Lam)[0] > 0
    assert_allclose(V @ learner.spd_ @ V.T, learner.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-12)
    assert_allclose(learner.objective_, loops.value(V, Lam, UNIT, Y, 0.1, prior, bias), rtol=1e-8)


def test_scale_goes_by_weight():
    pairs, labels = all_pairs(Y)
    few = np.arange(len(pairs)) % 2 == 0
    some = fit_pairs(pairs[few], labels[few], None)
    for weights in (np.where(few, 1.0, 1e-12), np.where(few, 3.0, 0.0)):
        learner = fit_pairs(pairs, labels, weights)
        assert_allclose(learner.scale_, some.scale_, rtol=1e-9)
        assert_allclose(distances(learner, X), distances(some, X), rtol=1e-6)


def fit_pairs(pairs, labels, weights):
    learner = nearfar.StiefelSPDMetric(2, tol=1e-9)
    return learner.fit(X, pairs=pairs, pair_labels=labels, pair_weights=weights)


@pytest.mark.parametrize("prior", [None, pytest.param(PRIOR, marks=pytest.mark.slow)])
def test_equals_descent_on_the_product_of_both_manifolds(prior):
    V, Lam, lowest = loops.descend(UNIT, Y, 2, 0.1, prior)
    learner = learn(prior=prior)
    assert_allclose(learner.objective_, lowest, rtol=1e-6)
    M = learner.get_mahalanobis_matrix() * learner.scale_**2
    assert_allclose(M, V @ Lam @ V.T, atol=1e-3 * np.abs(M).max())


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_with_a_prior_the_search_ends_where_no_step_is_left(tol):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [20, 13, 7])
    rows = rng.normal(size=(40, 5))
    rows[:, 0] += 1.2 * y
    rows[:, 1] += y == 1
    rows[:, 2] *= 3
    learner = nearfar.StiefelSPDMetric(2, prior=np.diag([1.0, 2.0]), n_pairs="all", tol=tol).fit(rows, y)
    other = learner.set_params(init="random", random_state=0).objective_, learner.fit(rows, y).objective_
    assert_allclose(*other, rtol=1e-8)
    assert len(learner.history_) == learner.n_iter_
    with pytest.warns(ConvergenceWarning, match="stopped after 60 iterations with gradient"):
        assert learner.set_params(max_iter=60, init="pca", tol=1e-15).fit(rows, y).n_iter_ == 60


def test_every_start_ends_at_one_value():
    found = [learn(init=init).objective_ for init in ("discriminant", "pca", "random")]
    found += [learn(init="random", random_state=seed).objective_ for seed in (1, 2)]
    assert_allclose(found, found[0], rtol=1e-7)


def test_value_never_rises_and_longer_is_not_worse():
    learner = learn(max_iter=15)
    assert (np.diff(learner.history_) <= 1e-12).all()
    assert learn().objective_ <= learner.objective_


@pytest.mark.parametrize("prior", [None, PRIOR])
def test_heavy_prior_is_kept(prior):
    learner = learn(prior=prior, lam=1e6)
    Lam = learner.spd_ * learner.scale_**2
    P = np.eye(2) if prior is None else PRIOR
    assert_allclose(np.linalg.eigvalsh(Lam), np.linalg.eigvalsh(P), rtol=1e-4)


def test_value_depends_on_the_metric_alone():
    rng = np.random.default_rng(0)
    L, Q = rng.normal(size=(2, 4)), np.linalg.qr(rng.normal(size=(2, 2)))[0]
    fun = stiefel.without_prior(stiefel.pair_loss(UNIT, PAIRS, 0.3), 0.1)
    assert_allclose(fun(Q @ L)[0], fun(L)[0], rtol=1e-12)
    assert_allclose(fun(Q @ L)[1], Q @ fun(L)[1], rtol=1e-9)


def test_identity_prior_is_no_prior():
    assert_allclose(learn(prior=np.eye(2)).objective_, learn().objective_, rtol=1e-8)


def test_only_rows_in_pairs_enter_the_search():
    chosen = PAIRS._replace(i=PAIRS.i[::40], j=PAIRS.j[::40], similar=PAIRS.similar[::40])
    rows, among = stiefel.paired(X, chosen)
    assert len(rows) < len(X)
    assert_allclose(rows[among.i], X[chosen.i])
    assert_allclose(rows[among.j], X[chosen.j])
    assert (among.similar == chosen.similar).all()


def test_units_of_the_data_do_not_matter():
    learner = learn()
    other = fit(nearfar.StiefelSPDMetric(2, lam=0.1, n_pairs="all", max_iter=3000, tol=1e-9), 100 * X, Y)
    assert_allclose(distances(other, 100 * X), distances(learner, X), rtol=1e-5)


def test_two_directions_are_enough_for_the_toy():
    A, a = toy()
    learner = fit(nearfar.StiefelSPDMetric(2, random_state=0), A[:200], a[:200])
    plain = accuracy(A[:200], a[:200], A[200:], a[200:])
    assert accuracy(learner.transform(A[:200]), a[:200], learner.transform(A[200:]), a[200:]) >= plain + 0.1


def test_warm_start_goes_on():
    learner = nearfar.StiefelSPDMetric(2, n_pairs="all", lam=0.1, max_iter=3, warm_start=True, tol=1e-8)
    with pytest.warns(ConvergenceWarning, match=r"^StiefelSPDMetric: L-BFGS"):
        learner.fit(X, Y)
    first = learner.objective_
    learner.set_params(max_iter=1000).fit(X, Y)
    assert learner.history_[0] <= first + 1e-9
    assert_allclose(learner.objective_, learn().objective_, rtol=1e-7)


def test_one_feature():
    # the first step of the search ends at 0, where the divergence is infinite
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    x = rng.normal(size=(3, 4))[y] * 1.5 + rng.normal(size=(40, 4))
    learner = nearfar.StiefelSPDMetric(random_state=0).fit(x[:, :1], y)
    assert learner.converged_
    assert learner.components_[0, 0] > 0


def test_data_of_low_rank():
    flat = np.c_[X, X[:, 0]]
    learner = fit(nearfar.StiefelSPDMetric(), flat, Y)
    assert learner.components_.shape == (4, 5)
    with pytest.raises(ValueError, match=r"^StiefelSPDMetric: n_components must be at most 4, the rank"):
        nearfar.StiefelSPDMetric(5).fit(flat, Y)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"lam": 0.0}, "lam must be"),
        ({"prior": np.eye(3)}, "prior must have shape"),
        ({"prior": -np.eye(2)}, "prior must be positive definite"),
        ({"init": "best"}, "init must be one of"),
        ({"init": np.ones((2, 4))}, "init must be 2 independent rows"),
        ({"tol": -1.0}, "tol must be"),
    ],
)
def test_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^StiefelSPDMetric: {word}"):
        nearfar.StiefelSPDMetric(2, **settings).fit(X, Y)


# --- Kernel form


def test_linear_kernel_is_the_linear_method():
    pairs, labels = all_pairs(Y)
    told = {"pairs": pairs, "pair_labels": labels}
    linear = fit(nearfar.StiefelSPDMetric(2, max_iter=3000, tol=1e-10), X, **told)
    kernel = fit(nearfar.KernelStiefelSPDMetric(2, kernel="linear", max_iter=3000, tol=1e-10), X, **told)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-8)
    d = distances(linear, X)
    assert_allclose(distances(kernel, X), d, rtol=1e-8)


def test_every_row_as_landmark_is_no_landmarks():
    settings = {"random_state": 0, "n_pairs": "all", "tol": 1e-9, "max_iter": 3000}
    a = fit(nearfar.KernelStiefelSPDMetric(2, landmarks=None, **settings), X, Y)
    b = fit(nearfar.KernelStiefelSPDMetric(2, landmarks=60, **settings), X, Y)
    assert_allclose(b.objective_, a.objective_, rtol=1e-8)
    few = fit(nearfar.KernelStiefelSPDMetric(2, landmarks=10, **settings), X, Y)
    assert few.dual_coef_.shape == (10, 2)


def test_kernel_separates_rings():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    angle = rng.uniform(0, 2 * np.pi, 120)
    A = np.c_[(1 + 2 * y + 0.2 * rng.normal(size=120)) * np.array([np.cos(angle), np.sin(angle)])].T
    linear, kernel = (fit(kind(1, random_state=0), A[:60], y[:60])
                      for kind in (nearfar.StiefelSPDMetric, nearfar.KernelStiefelSPDMetric))  # fmt: skip

    def score(learner):
        return accuracy(learner.transform(A[:60]), y[:60], learner.transform(A[60:]), y[60:])

    assert score(kernel) >= score(linear) + 0.1
