"""Neighborhood components: invariants of the softmax kernel and of the methods on it."""

import itertools
import re
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler

from nearfar import NCA, FastNCA, KernelFastNCA, KernelNCA
from nearfar.numerics import gradient_descent
from nearfar.probabilistic import neighbor_softmax
from nearfar.probabilistic.neighborhood import fast_search, listed_softmax, search
from nearfar.probabilistic.neighborhood.search import Ridge
from tests.finite_differences import derivative_along
from tests.learners import accuracy, data, distances, fit, toy
from tests.references import fast_nca as fast_loops
from tests.references import nca as loops


def problem(n=40, d=4, k=3, seed=0, scale=0.3):
    """Rows, labels with one class of a single row, and a random map."""
    X, y = data(n, d, seed=seed)
    y = np.append(y[:-1], 3)
    return X - X.mean(axis=0), y, scale * np.random.default_rng(seed).normal(size=(k, d))


def value_and_gradient(X, y, L, kind="accuracy", height=None, dtype="float64"):
    rows = neighbor_softmax.sorted_rows(X, y).astype(dtype)
    blocks = None if height is None else neighbor_softmax.cut(rows.sizes, height)
    F, U = neighbor_softmax.neighbor_sums(rows.X @ L.T.astype(dtype), rows.sizes, kind, rows.weight, blocks=blocks)
    return F, 2 * U.T @ rows.X


@pytest.mark.parametrize("kind", ["accuracy", "log"])
def test_sums_equal_loops(kind):
    X, y, L = problem()
    F, G = value_and_gradient(X, y, L, kind)
    assert_allclose(F, loops.objective(L, X, y, kind), rtol=1e-12)
    assert_allclose(G, loops.gradient(L, X, y, kind), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["accuracy", "log", "normalizer"])
def test_gradient_equals_differences(kind):
    X, y, L = problem(20)
    G = value_and_gradient(X, y, L, kind)[1]
    direction = np.random.default_rng(1).normal(size=L.shape)
    expected = derivative_along(lambda A: value_and_gradient(X, y, A, kind)[0], L, direction)
    assert_allclose(np.vdot(G, direction), expected, rtol=1e-6)


def test_normalizer_equals_loops():
    X, y, L = problem(20)
    D = [[float(np.sum((L @ (a - b)) ** 2)) for b in X] for a in X]
    expected = -sum(np.log(sum(np.exp(-D[i][j]) for j in range(20) if j != i)) for i in range(20) if y[i] != 3)
    assert_allclose(value_and_gradient(X, y, L, "normalizer")[0], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["accuracy", "log", "normalizer"])
@pytest.mark.parametrize("height", [1, 3, 7, 25])
def test_blocks_do_not_matter(kind, height):
    X, y, L = problem()
    y = np.where(y == 2, np.arange(40) // 4 + 4, y)
    y = np.unique(y, return_inverse=True)[1]
    F, G = value_and_gradient(X, y, L, kind)
    F_cut, G_cut = value_and_gradient(X, y, L, kind, height)
    assert_allclose(F_cut, F, rtol=1e-12)
    assert_allclose(G_cut, G, rtol=1e-10, atol=1e-12)


def test_blocks_cover_every_row_once():
    sizes = np.array([1, 2, 30, 1, 1, 5, 9])
    blocks = list(neighbor_softmax.cut(sizes, 8))
    assert_array_equal(np.concatenate([np.arange(b.start, b.stop) for b in blocks]), np.arange(49))
    assert all(b.stop - b.start <= 8 for b in blocks)
    assert any(b.same is not None for b in blocks)
    assert any(b.same is None for b in blocks)


def test_log_does_not_underflow_on_far_rows():
    X, y, L = problem()
    F, G = value_and_gradient(1e4 * X, y, L, "log")
    expected = 0.0
    for i in range(40):
        d = 1e8 * np.sum((L @ (X - X[i]).T) ** 2, axis=0)
        others = [j for j in range(40) if j != i]
        mates = [j for j in others if y[j] == y[i]]
        if mates:
            expected += np.logaddexp.reduce(-d[mates]) - np.logaddexp.reduce(-d[others])
    assert F < -1e6
    assert_allclose(F, expected, rtol=1e-9)
    assert np.isfinite(G).all()


@pytest.mark.parametrize("kind", ["accuracy", "log"])
def test_float32_is_close(kind):
    X, y, L = problem()
    F, G = value_and_gradient(X, y, L, kind)
    F32, G32 = value_and_gradient(X, y, L, kind, dtype="float32")
    assert_allclose(F32, F, rtol=1e-5)
    assert_allclose(G32, G, rtol=1e-3, atol=1e-4 * np.abs(G).max())


def test_bounds_and_invariances():
    X, y, L = problem()
    F = value_and_gradient(X, y, L)[0]
    assert 0 <= F <= 40
    assert value_and_gradient(X, y, L, "log")[0] <= 0
    R = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    assert_allclose(value_and_gradient(X, y, R @ L)[0], F, rtol=1e-12)
    assert_allclose(value_and_gradient(X + 5, y, L)[0], F, rtol=1e-10)


@pytest.mark.parametrize("kind", ["accuracy", "log"])
def test_duplicates_and_huge_scales_stay_finite(kind):
    X, y, L = problem()
    X = np.repeat(X[:20], 2, axis=0)
    for scale in (0.0, 1.0, 1e6):
        for dtype in ("float32", "float64"):
            F, G = value_and_gradient(X, y, scale * L, kind, dtype=dtype)
            assert np.isfinite(F)
            assert np.isfinite(G).all()


@pytest.mark.parametrize("kind", ["accuracy", "log", "normalizer"])
@pytest.mark.parametrize("height", [3, 25])
def test_both_ways_to_the_gradient_agree(kind, height):
    X, y, L = problem()
    rows = neighbor_softmax.sorted_rows(X, y)
    blocks = neighbor_softmax.cut(rows.sizes, height)
    F, G = neighbor_softmax.neighbor_metric(rows.X @ L.T, rows.X, rows.sizes, kind, rows.weight, blocks=blocks)
    expected = value_and_gradient(X, y, L, kind)
    assert_allclose(F, expected[0], rtol=1e-12)
    assert_allclose(2 * L @ G, expected[1], rtol=1e-9, atol=1e-11)
    many = search.dense(rows, kind, rows.weight)(L)
    few = search.dense(rows, kind, rows.weight)(L[:1])
    assert_allclose(many[1], expected[1], rtol=1e-9, atol=1e-11)
    assert_allclose(few[1], value_and_gradient(X, y, L[:1], kind)[1], rtol=1e-9, atol=1e-11)


def test_scikit_learns_solution_has_scikit_learns_value():
    X, y = data()
    peer = NeighborhoodComponentsAnalysis(max_iter=20, random_state=0).fit(X, y)
    peer_value = peer._loss_grad_lbfgs(peer.components_.ravel(), X, y[:, None] == y, 1.0)[0]
    assert_allclose(value_and_gradient(X, y, peer.components_)[0], peer_value, rtol=1e-10)
    assert fit(NCA(), X, y).objective_ >= peer_value - 1e-3


def test_no_ridge_is_the_same_to_the_last_bit():
    X, y, L = problem()
    rows = neighbor_softmax.sorted_rows(X, y)
    terms = search.dense(rows, "accuracy", rows.weight)
    plain, none = (search.negative(L, terms, ridge, 40) for ridge in (Ridge(), Ridge(0.0)))
    assert plain[0] == none[0]
    assert_array_equal(plain[1], none[1])
    some = search.negative(L, terms, Ridge(2.0), 40)
    assert_allclose(some[0], -loops.objective(L, rows.X, y[rows.order], reg=2.0) / 40, rtol=1e-12)
    assert_allclose(some[1], -loops.gradient(L, rows.X, y[rows.order], reg=2.0) / 40, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", ["accuracy", "log"])
def test_norm_falls_with_the_ridge(objective):
    X, y = data(30, 2)
    norms = []
    for reg in (0.01, 0.1, 1.0, 5.0):
        tries = [
            fit(NCA(objective=objective, reg=reg, init="random", max_iter=300, random_state=seed), X, y)
            for seed in range(4)
        ]
        norms.append(np.linalg.norm(max(tries, key=lambda found: found.objective_).components_))
    assert (np.diff(norms) <= 1e-3 * norms[0]).all()


@pytest.mark.parametrize("reg", [1e3, 1e6])
@pytest.mark.parametrize("learner", [NCA, FastNCA])
def test_an_overwhelming_ridge_is_told(learner, reg):
    X, y = data()
    with pytest.warns(UserWarning, match="reg is so large that all components become 0"):
        assert np.linalg.norm(learner(reg=reg, max_iter=200).fit(X, y).components_) < 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner(reg=1.0).fit(X, y)


def test_history_rises_to_the_objective():
    X, y = data()
    learner = fit(NCA(objective="log", reg=0.1), X, y)
    assert (np.diff(learner.history_) >= -1e-9).all()
    assert_allclose(learner.history_[-1], learner.objective_)


def test_float32_search_ends_as_well():
    X, y = toy()
    wide, narrow = (fit(NCA(dtype=dtype, tol=1e-5), X, y).objective_ for dtype in ("float64", "float32"))
    assert narrow >= wide - 0.01 * len(y)


@pytest.mark.parametrize("max_iter", [2, 3, 7])
def test_float32_search_keeps_to_its_iterations_and_tells_when_they_are_too_few(max_iter):
    X, y = data()
    learner = NCA(dtype="float32", init="random", max_iter=max_iter, random_state=1)
    told = r"NCA: L-BFGS stopped after (\d+) iterations with gradient .*, after (\d+) in float32$"
    with pytest.warns(ConvergenceWarning, match=told) as caught:
        learner.fit(X, y)
    assert learner.n_iter_ == len(learner.history_) == max_iter
    assert sum(map(int, re.search(told, str(caught[0].message)).groups())) == max_iter
    assert not learner.converged_


def test_a_start_that_cannot_be_left_is_scaled_to_the_distances_of_the_rows():
    X, y = toy()
    far = 1e3 * X
    assert_allclose(fit(NCA(init_scale="median"), far, y).components_, fit(NCA(), far, y).components_)


@pytest.mark.parametrize("init", ["pca", "lda", "identity", "random", "auto"])
def test_every_start_works(init):
    X, y = data()
    learner = fit(NCA(2, init=init, max_iter=10, random_state=0), X, y)
    assert learner.components_.shape == (2, 4)
    again = fit(NCA(2, init=learner.components_, max_iter=10), X, y)
    assert again.objective_ >= learner.objective_ - 1e-9


def test_warm_start_goes_on():
    X, y = data()
    learner = fit(NCA(max_iter=3, warm_start=True), X, y)
    first = learner.objective_
    assert fit(learner, X, y).objective_ >= first


def test_anchors_in_batches_sum_to_all():
    X, y, L = problem()
    rows = neighbor_softmax.sorted_rows(X, y)
    blocks = list(neighbor_softmax.cut(rows.sizes, 4))
    F, G = value_and_gradient(X, y, L)
    parts = [
        neighbor_softmax.neighbor_sums(rows.X @ L.T, rows.sizes, "accuracy", rows.weight, blocks=batch)
        for batch in neighbor_softmax.batches(blocks, 10, np.random.default_rng(0))
    ]
    assert len(parts) >= 3
    assert_allclose(sum(part[0] for part in parts), F, rtol=1e-12)
    assert_allclose(2 * sum(part[1] for part in parts).T @ rows.X, G, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", ["accuracy", "log"])
def test_batches_agree_with_all_rows(objective):
    X, y = toy()
    X = X / X.std(axis=0)
    whole = fit(NCA(objective=objective, reg=1.0), X, y)
    parts = fit(NCA(objective=objective, reg=1.0, batch_size=60, max_iter=150, random_state=0), X, y)
    assert parts.objective_ >= whole.objective_ - 0.02 * abs(whole.objective_)
    assert_array_equal(
        fit(NCA(batch_size=len(y), max_iter=5), X, y).components_, fit(NCA(max_iter=5), X, y).components_
    )


def test_partial_fit_goes_down_the_same_slope():
    X, y = toy()
    learner = NCA(2, init="pca")
    for _ in range(60):
        learner.partial_fit(X, y)
    first = fit(NCA(2, init="pca", max_iter=1), X, y).objective_
    assert learner.objective_ > first
    assert learner.n_iter_ == 60
    rng = np.random.default_rng(0)
    stream = NCA(2, init="pca")
    for _ in range(80):
        rows = rng.permutation(len(y))[:80]
        stream.partial_fit(X[rows], y[rows])
    assert value_and_gradient(X, y, stream.components_)[0] > first
    with pytest.raises(ValueError, match=r"NCA.* 3 features"):
        stream.partial_fit(X[:, :3], y)


def test_few_neighbors_of_either_kind_are_told():
    X, _ = data(30)
    y = np.arange(30) // 15
    for k, kinds in ((14, ()), (15, ("its class",)), (16, ("its class", "other classes"))):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            FastNCA(k=k).fit(X, y)
        texts = [str(one.message) for one in told if "is more than there are" in str(one.message)]
        assert [kind for kind in ("its class", "other classes") if any(kind in text for text in texts)] == list(kinds)


@pytest.mark.slow
def test_memory_stays_in_blocks():
    X, y = data(4000, 16, 10)
    tracemalloc.start()
    fit(NCA(max_iter=1), X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * 256 * 4000


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"objective": "logarithm"}, "objective"),
        ({"reg": -1.0}, "reg"),
        ({"reg": np.inf}, "reg"),
        ({"init": "middle"}, "init"),
        ({"init": np.eye(3)}, "init"),
        ({"init_scale": "mean"}, "init_scale"),
        ({"dtype": "float16"}, "dtype"),
        ({"max_iter": 0}, "max_iter"),
        ({"batch_size": -5}, "batch_size"),
        ({"n_components": 9}, "n_components"),
    ],
)
def test_bad_settings(settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^NCA: {word}"):
        NCA(**settings).fit(X, y)


def test_every_row_alone_or_one_class_is_refused():
    X, _ = data(20)
    for y in (np.arange(20), np.zeros(20)):
        with pytest.raises(ValueError, match=r"^NCA: .*class"):
            fit(NCA(), X, y)


def lists_of(X, y, k):
    """Nearest hits and misses, and the same for loops."""
    return listed_softmax.nearest_lists(X, y, k), fast_loops.neighbors(X, y, k)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_fast_sums_equal_loops(k):
    X, y, L = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lists, loop_lists = lists_of(X, y, k)
    F, U = listed_softmax.neighbor_sums(X @ L.T, lists, "accuracy")
    assert_allclose(F, fast_loops.objective(L, X, loop_lists), rtol=1e-12)
    assert_allclose(2 * U.T @ X, fast_loops.gradient(L, X, loop_lists), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("kind", "far"), [("accuracy", 1.0), ("log", 1.0), ("normalizer", 1.0), ("log", 1e4)])
def test_all_neighbors_listed_are_all_pairs(kind, far):
    X, y, L = problem()
    X = far * X
    with pytest.warns(UserWarning, match="k=39 is more"):
        lists = listed_softmax.nearest_lists(X, y, 39)
    F, U = listed_softmax.neighbor_sums(X @ L.T, lists, kind)
    F_all, G_all = value_and_gradient(X, y, L, kind)
    assert_allclose(F, F_all, rtol=1e-12)
    assert_allclose(2 * U.T @ X, G_all, rtol=1e-9, atol=1e-11 * far**2)


def test_fast_search_with_all_neighbors_is_the_full_search():
    X, y = data()
    full, fast = fit(NCA(max_iter=10), X, y), fit(FastNCA(k=59, max_iter=10), X, y)
    assert_allclose(fast.objective_, full.objective_, rtol=1e-9)
    assert_allclose(fast.components_, full.components_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [FastNCA, lambda k: KernelFastNCA(k=k, kernel="linear")])
def test_fast_search_tells_its_hits_and_misses_in_the_numbers_of_the_rows_given(make):
    X, y = data()
    y = np.where(np.arange(60) % 7 == 0, -1, y)
    found = fit(make(k=3), X, y, unlabeled=-1).neighbors_
    assert found.shape == (60, 6)
    assert (found[y == -1] == -1).all()
    d = np.linalg.norm(X[:, None] - X, axis=2)
    for i in np.flatnonzero(y != -1):
        for columns, kind in (
            (found[i, :3], (y == y[i]) & (np.arange(60) != i)),
            (found[i, 3:], (y != y[i]) & (y != -1)),
        ):
            near = np.flatnonzero(kind)
            assert_allclose(d[i, columns], np.sort(d[i, near])[:3])
            assert kind[columns].all()


def test_a_refresh_finds_the_neighbors_under_the_learned_metric():
    X, y = data()
    first = fit(FastNCA(k=4, max_iter=20), X, y)
    again = fit(FastNCA(k=4, max_iter=20, refresh=1), X, y)
    Z = first.transform(X)
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)
    np.fill_diagonal(D, np.inf)
    for i in range(60):
        for found, kind in ((again.neighbors_[i, :4], y == y[i]), (again.neighbors_[i, 4:], y != y[i])):
            rows = np.flatnonzero(kind)
            assert set(found) == set(rows[np.argsort(D[i, rows])[:4]])
    assert (again.neighbors_ != first.neighbors_).any()


def test_rows_with_few_neighbors_have_gaps_in_the_table():
    X, y = data(30)
    y[:2] = 7
    y[y != 7] %= 2
    found = fit(FastNCA(k=4), X, y).neighbors_
    assert found[0].tolist()[:4] == [1, -1, -1, -1]
    assert (found[0, 4:] >= 0).all()


@pytest.mark.parametrize("kind", ["accuracy", "log"])
def test_fast_gradient_equals_differences(kind):
    X, y, L = problem()
    lists = listed_softmax.nearest_lists(X, y, 3)
    terms = fast_search.over(lists, X, kind)
    F, G = terms(L)
    assert_allclose(listed_softmax.neighbor_sums(X @ L.T, lists, kind)[0], F, rtol=1e-12)
    direction = np.random.default_rng(1).normal(size=L.shape)
    expected = derivative_along(lambda A: terms(A)[0], L, direction)
    assert_allclose(np.vdot(G, direction), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*L-BFGS stopped after 2")
@pytest.mark.parametrize("learner", [FastNCA, KernelFastNCA])
def test_more_neighbors_than_there_are_is_told(learner):
    X, y = data(30)
    with pytest.warns(UserWarning, match="k=50 is more than there are"):
        learner(k=50, max_iter=2).fit(X, y)


@pytest.mark.parametrize("learner", [KernelNCA, KernelFastNCA])
@pytest.mark.parametrize(
    ("change", "word"),
    [(lambda K: K[:, :-1], "square"), (np.triu, "symmetric"), (np.negative, "positive semi-definite")],
)
def test_what_is_no_kernel_is_refused(learner, change, word):
    X, y = data(30)
    with pytest.raises(ValueError, match=rf"^{learner.__name__}: .*{word}"):
        learner(kernel="precomputed", landmarks=None).fit(change(X @ X.T + np.eye(30)), y)


def test_fast_settings_matter_as_told():
    X, y = toy(150)
    plain = fit(FastNCA(k=5, max_iter=20), X, y)
    assert fit(FastNCA(k=5, max_iter=20, refresh=1), X, y).n_iter_ > plain.n_iter_
    small = fit(FastNCA(k=5, reg=5.0), X, y)
    assert np.linalg.norm(small.components_) < np.linalg.norm(plain.components_)
    again = fit(FastNCA(k=5, max_iter=3, warm_start=True), X, y)
    assert fit(again, X, y).objective_ > fit(FastNCA(k=5, max_iter=3), X, y).objective_


@pytest.mark.parametrize("fast", [False, True])
def test_linear_kernel_is_the_linear_method(fast):
    X, y, _ = problem()
    settings = {"reg": 0.5, "init": "pca", "max_iter": 30, **({"k": 4} if fast else {})}
    linear = fit((FastNCA if fast else NCA)(2, **settings), X, y)
    kernel = fit((KernelFastNCA if fast else KernelNCA)(2, kernel="linear", landmarks=None, **settings), X, y)
    L = kernel.dual_coef_.T @ kernel.X_fit_
    if fast:
        value = listed_softmax.neighbor_sums(X @ L.T, listed_softmax.nearest_lists(X, y, 4), "accuracy")[0]
    else:
        value = value_and_gradient(X, y, L)[0]
    assert_allclose(value - 0.5 * np.sum(L**2), kernel.objective_, rtol=1e-9)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-3)


@pytest.mark.parametrize("learner", [KernelNCA, KernelFastNCA])
def test_kernel_penalties(learner):
    X, y = data()
    rkhs, coef = (fit(learner(2, reg=0.5, reg_norm=norm, landmarks=None), X, y) for norm in ("rkhs", "coef"))
    K = np.exp(-rkhs.gamma_ * np.sum((rkhs.X_fit_[:, None] - rkhs.X_fit_) ** 2, axis=2))
    free = fit(learner(2, reg=0.0, landmarks=None), X, y)
    assert np.trace(rkhs.dual_coef_.T @ K @ rkhs.dual_coef_) < np.trace(free.dual_coef_.T @ K @ free.dual_coef_)
    assert np.sum(coef.dual_coef_**2) < np.sum(rkhs.dual_coef_**2)
    assert_allclose(np.sum(rkhs.components_**2), np.trace(rkhs.dual_coef_.T @ K @ rkhs.dual_coef_), rtol=1e-6)


def test_ridge_of_another_shape():
    L, B = np.random.default_rng(0).normal(size=(2, 3)), np.random.default_rng(1).normal(size=(5, 3))
    value, gradient = Ridge(0.7, B.T @ B)(L)
    assert_allclose(value, 0.7 * np.sum((B @ L.T) ** 2))
    assert_allclose(gradient, 1.4 * L @ B.T @ B)


def test_neighbors_of_input_or_feature_space():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) * [1.0, 5.0]
    y = np.arange(40) % 2
    settings = {"k": 3, "kernel": "cosine", "landmarks": None, "max_iter": 5}
    feature, given = (fit(KernelFastNCA(neighbors=name, **settings), X, y) for name in ("rkhs", "input"))
    assert abs(feature.history_[0] - given.history_[0]) > 1e-6
    with pytest.raises(ValueError, match=r"^KernelFastNCA: neighbors"):
        KernelFastNCA(neighbors="input", kernel="precomputed").fit(X @ X.T, y)


@pytest.mark.parametrize("learner", [KernelNCA, KernelFastNCA])
def test_kernel_tells_rings_apart(learner):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    angle = 2 * np.pi * rng.random(120)
    X = (1 + y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(120, 2))
    X = np.concatenate([X, rng.normal(size=(120, 4))], axis=1)
    found = fit(learner(2, reg=0.01, max_iter=50), X[:80], y[:80])
    learned = accuracy(found.transform(X[:80]), y[:80], found.transform(X[80:]), y[80:])
    assert learned >= accuracy(X[:80], y[:80], X[80:], y[80:]) + 0.05


@pytest.mark.parametrize(
    ("learner", "settings", "word"),
    [
        (FastNCA, {"k": 0}, "k "),
        (FastNCA, {"refresh": -1}, "refresh"),
        (FastNCA, {"objective": "all"}, "objective"),
        (KernelNCA, {"reg": -1.0}, "reg"),
        (KernelNCA, {"reg_norm": "max"}, "reg_norm"),
        (KernelFastNCA, {"k": 0}, "k "),
        (KernelFastNCA, {"neighbors": "output"}, "neighbors"),
    ],
)
def test_bad_settings_of_the_variants(learner, settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^{learner.__name__}: {word}"):
        learner(**settings).fit(X, y)


@pytest.mark.parametrize("learner", [NCA, FastNCA])
def test_more_features_than_rows_are_solved_in_their_span(learner):
    X, y = data(24, 4)
    X = np.concatenate([X, 0.1 * np.random.default_rng(0).normal(size=(24, 40))], axis=1)
    pairs = np.stack(np.triu_indices(24, 1), axis=1)
    found, whole = (fit(learner(init=init, max_iter=20), X, y) for init in ("auto", np.eye(44)))
    assert (found.components_.shape, whole.components_.shape) == ((44, 44), (44, 44))
    assert_allclose(found.objective_, whole.objective_, rtol=1e-9)
    assert_allclose(found.pair_distance(pairs, X), whole.pair_distance(pairs, X), rtol=1e-5)
    assert fit(learner(30, init="identity", max_iter=2), X, y).components_.shape == (30, 44)


def test_streamed_rows_are_not_held_to_the_span_of_the_first():
    X, y = data(24, 4)
    X = np.concatenate([X, np.random.default_rng(0).normal(size=(24, 40))], axis=1)
    learner = NCA().partial_fit(X[:12], y[:12]).partial_fit(X[12:], y[12:])
    assert learner.components_.shape == (44, 44)
    assert np.linalg.matrix_rank(learner.components_) == 44


STARTING = [
    NCA(),
    NCA(dtype="float32"),
    NCA(batch_size=60, max_iter=5),
    FastNCA(),
    KernelNCA(kernel="linear"),
    KernelFastNCA(kernel="linear"),
]


@pytest.mark.filterwarnings("ignore:NCA. Adam stopped after 5")
@pytest.mark.parametrize("learner", [*STARTING[:4], KernelNCA(kernel="linear", reg=0)], ids=repr)
@pytest.mark.parametrize("unit", [30.0, 1e4])
def test_a_search_leaves_a_start_where_rows_are_far_apart(learner, unit):
    A, a = load_wine(return_X_y=True)
    A = unit * (A - A.mean(axis=0)) / A.std(axis=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stays at its start")
        d = distances(clone(learner).fit(A, a), A)
    plain = pdist(A)
    assert np.abs(d / d.max() - plain / plain.max()).max() > 0.1


@pytest.mark.filterwarnings("ignore:NCA. Adam stopped after 5")
@pytest.mark.parametrize("learner", STARTING, ids=repr)
def test_a_search_that_stays_at_its_start_says_so_and_has_not_converged(learner, monkeypatch):
    A, a = load_wine(return_X_y=True)
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    with monkeypatch.context() as patch:
        patch.setattr("nearfar.numerics.initialization.median_scaled", lambda X, L: L)  # no start can be left
        with pytest.warns(
            ConvergenceWarning,
            match="NCA: the search stays at its start, because rows are too far apart.* scale the features",
        ) as said:
            learner.fit(1e4 * A, a)
        assert not learner.converged_
        said = [warning for warning in said if "stays at its start" in str(warning.message)]
        assert [warning.filename for warning in said] == [__file__]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stays at its start")
        learner.fit(A, a)
        clone(learner).set_params(warm_start=True).fit(A, a).fit(A, a)  # stays where it has been before
        # all is right at the start: nothing is left to learn
        clone(learner).fit(1e4 * np.c_[3.0 * a, A[:, :2] / 100], a)


def test_a_search_whose_gradient_is_lost_in_the_unit_of_a_kernel_has_not_converged():
    X, y = data()
    learner = KernelNCA(kernel="linear", reg=0)
    with pytest.warns(ConvergenceWarning, match="stays at its start, because .* scale the features"):
        learner.fit(1e-30 * X, y)
    assert not learner.converged_


@pytest.mark.parametrize("learner", [NCA(), NCA(objective="log"), NCA(dtype="float32"), FastNCA()])
def test_a_search_without_a_gradient_between_very_near_rows_leaves_its_start_or_says_so(learner, monkeypatch):
    X, y = data()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stays at its start")
        d = distances(clone(learner).fit(1e-30 * X, y), 1e-30 * X)
    plain = pdist(X)
    assert np.abs(d / d.max() - plain / plain.max()).max() > 0.1
    with monkeypatch.context() as patch:
        patch.setattr("nearfar.numerics.initialization.median_scaled", lambda X, L: L)
        with pytest.warns(ConvergenceWarning, match="stays at its start, because rows are too close together .* scale"):
            learner.fit(1e-30 * X, y)
        assert not learner.converged_
    fit(learner.set_params(warm_start=True), X, y)


def test_a_search_goes_on_over_a_plateau_and_stops_after_several_small_steps():
    stop = gradient_descent.Stalls(1e-3, 3)
    values = [10.0, 9.0, 8.9999, 8.9998, 8.0, 7.9999, 7.9998, 7.9997]  # little twice, then much, then little for good
    told = [stop(before, now) for before, now in itertools.pairwise(values)]
    assert told == [False, False, False, False, False, False, True]
    once = gradient_descent.Stalls(1e-3, 1)
    assert [once(before, now) for before, now in itertools.pairwise(values)][:2] == [False, True]


def test_nca_ends_soon_where_no_row_is_won():
    """One iteration had to add less than 1e-9 per row: some more that won nothing."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X[::2])
    y = y[::2]
    found = NCA(random_state=0).fit(X, y)
    further = NCA(random_state=0, tol=1e-12).fit(X, y)
    assert found.n_iter_ < further.n_iter_
    assert found.objective_ > further.objective_ - 0.5  # of a row
