"""Collapsing classes: the convex problem, its certificate, its kernel form."""

import tracemalloc
from time import process_time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from nearfar import MCML, KernelMCML
from nearfar.numerics import certified_psd
from nearfar.numerics.constraints import Pairs
from nearfar.probabilistic.collapsing.kernel_mcml import low_rank_search
from nearfar.probabilistic.collapsing.objective import Collapse
from tests.finite_differences import derivative_along
from tests.learners import all_pairs, data, distances, fit, toy
from tests.references import mcml as loops


def problem(**settings):
    X, y = data(30, 3)
    X = X - X.mean(axis=0)
    y = np.append(y[:-1], 3)
    L = 0.3 * np.random.default_rng(1).normal(size=(3, 3))
    return X, y, L, Collapse(X, y, **settings)


def test_value_and_gradient_equal_loops():
    X, y, L, collapse = problem()
    f, G = collapse(L)
    assert_allclose(f, loops.objective(L.T @ L, X, y), rtol=1e-12)
    assert_allclose(G, loops.gradient(L.T @ L, X, y), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "settings", [{}, {"trace": 2.0}, {"frobenius": 3.0}, {"weighting": "pair"}, {"weighting": "pair", "trace": 1.0}]
)
def test_gradient_equals_differences(settings):
    _, _, L, collapse = problem(**settings)
    direction = np.random.default_rng(2).normal(size=L.shape)
    expected = derivative_along(lambda A: collapse(A)[0], L, direction)
    assert_allclose(2 * np.vdot(L @ collapse(L)[1], direction), expected, rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"trace": 2.0, "weighting": "pair"}])
def test_a_factor_of_few_rows_has_the_same_value_and_gradient(settings):
    *_, L, collapse = problem(**settings)
    f, G = collapse(L[:2])
    value, gradient = collapse.on_factor(L[:2])
    assert_allclose(value, f, rtol=1e-12)
    assert_allclose(gradient, 2 * L[:2] @ G, rtol=1e-9, atol=1e-9)
    single = collapse.on_factor(L[:2], "float32")
    assert_allclose(single[0], f, rtol=1e-5)
    assert_allclose(single[1], gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("first", [1, 2, 80])
def test_few_rows_at_first_lead_to_the_optimum_of_all(first, monkeypatch):
    X, y = data(60, 6)
    collapse = Collapse(X, y, trace=0.1)
    best = certified_psd.minimize(collapse, collapse.gap, collapse.scaling(), tol=1e-9)
    monkeypatch.setattr(low_rank_search, "FIRST_ROWS", first)
    found = low_rank_search.minimize(collapse, tol=1e-6)
    assert found.converged
    assert best.objective * (1 - 1e-9) <= found.objective <= best.objective * (1 + 1e-6)
    assert found.objective - best.objective <= found.duality_gap


def test_a_search_of_few_rows_stops_at_max_iter():
    X, y = data(60, 6)
    seen = []
    found = low_rank_search.minimize(
        Collapse(X, y, trace=0.1), max_iter=7, report=lambda k, value, rest: seen.append(k)
    )
    assert seen == [*range(1, 8)]
    assert found.n_iter == 7
    assert not found.converged


def test_more_components_than_directions_in_use_are_zero():
    X, y = data(40)
    learner = fit(KernelMCML(30, landmarks=40, random_state=0), X, y)
    assert learner.dual_coef_.shape == (40, 30)
    assert 0 < np.linalg.matrix_rank(learner.dual_coef_) < 30


def test_weighting_pairs_weighs_rows_by_their_mates():
    X, y, L, collapse = problem(weighting="pair")
    M, total = L.T @ L, 0.0
    for i in range(30):
        d = [float((X[i] - x) @ M @ (X[i] - x)) for x in X]
        normalizer = np.logaddexp.reduce([-d[j] for j in range(30) if j != i])
        mates = [j for j in range(30) if j != i and y[j] == y[i]]
        total += sum(d[j] + normalizer - np.log(len(mates)) for j in mates)
    assert_allclose(collapse(L)[0], total, rtol=1e-10)


@pytest.mark.parametrize("settings", [{}, {"trace": 2.0}, {"frobenius": 3.0}, {"weighting": "pair"}])
def test_starts_agree_on_the_optimum(settings):
    *_, collapse = problem(**settings)
    A = collapse.scaling()
    rng = np.random.default_rng(0)
    starts = [None, np.eye(3), rng.normal(size=(3, 3)), 0.1 * rng.normal(size=(3, 3))]
    found = [
        certified_psd.minimize(collapse, collapse.gap, A, tol=1e-11, max_iter=150, start=start) for start in starts
    ]
    values = [one.objective for one in found]
    assert_allclose(values, values[0], rtol=1e-9)
    M = found[0].x.T @ found[0].x
    for one in found:
        assert_allclose(one.x.T @ one.x, M, atol=1e-5 * np.abs(M).max())
        assert one.duality_gap <= 1e-5 * values[0]
        assert (one.attributes["kkt"] <= 1e-5 * values[0]).all()


@pytest.mark.parametrize("settings", [{}, {"trace": 2.0}, {"frobenius": 3.0}])
def test_gap_bounds_the_distance_to_the_optimum(settings):
    *_, collapse = problem(**settings)
    A = collapse.scaling()
    best = certified_psd.minimize(collapse, collapse.gap, A, tol=1e-11).objective
    rng = np.random.default_rng(0)
    for scale in (0.3, 1.0, 3.0):
        L = scale * (A + 0.2 * np.abs(A).max() * rng.normal(size=A.shape))
        f, G = collapse(L)
        assert collapse.gap(L, f, G) >= f - best > 0


def test_few_rows_of_many_features_have_a_bound_too_looked_for_once(monkeypatch):
    collapse = Collapse(np.random.default_rng(0).normal(size=(60, 30)), np.arange(60) % 3)
    A = collapse.scaling()
    best = certified_psd.minimize(collapse, collapse.gap, A)
    assert best.converged
    f, G = collapse(A)
    monkeypatch.delattr(Collapse, "__call__")
    assert f - best.objective <= collapse.gap(A, f, G) < np.inf


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_one_feature_has_a_bound(scale):
    X, y = data()
    collapse = Collapse(scale * X[:, :1], y)
    assert certified_psd.minimize(collapse, collapse.gap, collapse.scaling()).converged


def test_gap_is_complementarity_where_the_gradient_is_semi_definite():
    *_, collapse = problem()
    L = 4.0 * collapse.scaling()
    f, G = collapse(L)
    assert np.linalg.eigvalsh(G)[0] > 0
    assert_allclose(collapse.gap(L, f, G), np.vdot(L, L @ G), rtol=1e-10)


def test_projected_gradient_reaches_the_same_optimum():
    *_, collapse = problem()
    A = collapse.scaling()
    best = certified_psd.minimize(collapse, collapse.gap, A, tol=1e-9)
    other = certified_psd.projected(collapse, collapse.gap, A, np.eye(3), max_iter=2000, tol=1e-7)
    assert_allclose(other.objective, best.objective, rtol=1e-6)


def test_objective_falls():
    X, y = data()
    learner = fit(MCML(max_iter=200), X, y)
    assert learner.converged_
    assert (np.diff(learner.history_) <= 1e-9 * np.abs(learner.history_[0])).all()


def test_a_penalty_shrinks_the_metric():
    X, y = data()
    for penalty in ("trace", "frobenius"):
        traces = [
            np.trace(fit(MCML(reg=reg, penalty=penalty), X, y).get_mahalanobis_matrix()) for reg in (0.0, 1.0, 100.0)
        ]
        assert traces[0] > traces[1] > traces[2]


def test_factor_mode_is_no_worse_than_truncation():
    X, y = toy(150)
    X = X - X.mean(axis=0)
    collapse = Collapse(X, y)
    values = {}
    for mode in ("truncate", "factor"):
        learner = fit(MCML(1, rank_mode=mode), X, y)
        assert learner.components_.shape == (1, 8)
        values[mode] = collapse(learner.components_)[0]
        if mode == "factor":
            assert_allclose(learner.objective_, values[mode], rtol=1e-9)
    assert values["factor"] <= values["truncate"]
    assert not hasattr(fit(MCML(1, rank_mode="factor"), X, y), "duality_gap_")


def test_a_certificate_does_not_outlive_its_fit():
    X, y = data()
    learner = fit(MCML(1), X, y)
    assert learner.duality_gap_ < 1e-3
    fit(learner.set_params(rank_mode="factor"), X, y)
    assert not hasattr(learner, "duality_gap_")
    assert not hasattr(learner, "kkt_")


@pytest.mark.filterwarnings("ignore:MCML. the search stopped after 5")
def test_no_scatter_within_classes_is_told():
    X, y = data(12, 20)
    with pytest.warns(UserWarning, match="within-class scatter"):
        MCML(max_iter=5).fit(X, y)
    learner = fit(MCML(reg=0.1), X, y)
    assert learner.duality_gap_ < 1e-5


def test_warm_start_from_the_optimum_stops_at_once():
    X, y = data()
    learner = fit(MCML(warm_start=True), X, y)
    n_iter = learner.n_iter_
    assert fit(learner, X, y).n_iter_ < n_iter / 4


def test_factors_of_another_rank_are_no_start():
    X, y = data()
    cold = fit(MCML(3, rank_mode="factor"), X, y)
    learner = fit(MCML(2, rank_mode="factor", warm_start=True), X, y).set_params(n_components=3)
    assert_allclose(fit(learner, X, y).components_, cold.components_)


@pytest.mark.parametrize("learner", [MCML(reg=1.0, tol=1e-8), KernelMCML(landmarks=30, tol=1e-5, random_state=0)])
def test_a_warm_start_of_low_rank_is_one_too(learner):
    X, y = data()
    cold = fit(learner, X, y)
    warm = fit(clone(learner).set_params(warm_start=True, n_components=2), X[::-2], y[::-2])
    warm.set_params(n_components=None)
    fit(warm, X, y)  # from other rows to the same optimum
    assert warm.converged_
    assert_allclose(warm.objective_, cold.objective_, rtol=1e-4)
    assert_allclose(distances(warm, X), distances(cold, X), rtol=1e-2, atol=1e-2 * distances(cold, X).max())
    assert fit(warm, X, y).n_iter_ < cold.n_iter_ / 2


def test_linear_kernel_is_the_linear_method():
    X, y = data()
    X = X - X.mean(axis=0)
    linear = fit(MCML(reg=0.5, tol=1e-10), X, y)
    kernel = fit(KernelMCML(reg=0.5, kernel="linear", landmarks=None, tol=1e-10), X, y)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-8)
    assert_allclose(distances(kernel, X), distances(linear, X), rtol=1e-4, atol=1e-4)


def test_a_rich_kernel_has_a_certificate_too():
    X, y = data(40)
    learner = fit(KernelMCML(reg=0.01, landmarks=None), X, y)
    assert learner.converged_
    assert learner.duality_gap_ <= 1e-3 * learner.objective_
    close = fit(KernelMCML(reg=0.01, landmarks=None, tol=1e-5), X, y)
    assert close.converged_
    assert close.objective_ <= learner.objective_ <= close.objective_ * (1 + 1e-5)
    early = fit(KernelMCML(reg=0.01, landmarks=None, max_iter=20), X, y)
    assert learner.objective_ < early.objective_ <= learner.objective_ + early.duality_gap_ < np.inf


@pytest.mark.parametrize("n", [60, 150])
def test_the_default_tolerance_is_reached(n):
    assert fit(KernelMCML(), *data(n)).converged_


def test_kernel_map_is_reproduced_on_the_training_rows():
    X, y = data()
    learner = fit(KernelMCML(landmarks=None, max_iter=20), X, y)
    gram = np.exp(-learner.gamma_ * np.sum((learner.X_fit_[:, None] - learner.X_fit_) ** 2, axis=2))
    assert_allclose(learner.transform(learner.X_fit_), gram @ learner.dual_coef_, rtol=1e-8, atol=1e-10)


def test_kernel_tells_rings_apart():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    angle = 2 * np.pi * rng.random(80)
    X = (1 + 2 * y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(80, 2))
    Z = fit(KernelMCML(1, max_iter=100), X, y).transform(X)[:, 0]
    assert max(Z[y == 0]) < min(Z[y == 1]) or max(Z[y == 1]) < min(Z[y == 0])


def test_given_pairs_are_uniform_targets():
    X, _ = data(25, 3)
    X = X - X.mean(axis=0)
    rng = np.random.default_rng(0)
    i, j = np.triu_indices(25, 1)
    keep = (rng.random(len(i)) < 0.06) & (i != 7) & (j != 7)
    pairs = Pairs(i[keep], j[keep], rng.random(keep.sum()) < 0.8)
    near = np.zeros((25, 25), dtype=bool)
    near[pairs.i[pairs.similar], pairs.j[pairs.similar]] = True
    near |= near.T
    assert not near[7].any()
    L = rng.normal(size=(3, 3))
    D = np.sum(((X[:, None] - X) @ L.T) ** 2, axis=2)
    for weighting in ("sample", "pair"):
        f, total = Collapse(X, pairs, weighting)(L)[0], 0.0
        for a in range(25):
            normalizer = np.logaddexp.reduce(-np.delete(D[a], a))
            mates = np.flatnonzero(near[a])
            each = [np.log(1 / len(mates)) + D[a, b] + normalizer for b in mates]
            total += sum(each) / (len(mates) if weighting == "sample" else 1) if len(mates) else 0.0
        assert_allclose(f, total, rtol=1e-12)
    direction = rng.normal(size=L.shape)
    collapse = Collapse(X, pairs, trace=0.5)
    expected = derivative_along(lambda A: collapse(A)[0], L, direction)
    assert_allclose(2 * np.vdot(L @ collapse(L)[1], direction), expected, rtol=1e-6)


@pytest.mark.parametrize("learner", [MCML(tol=1e-9), KernelMCML(reg=0.5, tol=1e-9, landmarks=None)])
def test_the_similar_pairs_of_labels_are_the_labels(learner):
    X, y = data()
    pairs, signs = all_pairs(y)
    by_labels = fit(clone(learner), X, y)
    for some in (signs > 0, slice(None)):
        by_pairs = fit(clone(learner), X, pairs=pairs[some], pair_labels=signs[some])
        assert_allclose(by_pairs.objective_, by_labels.objective_, rtol=1e-8)
        assert_allclose(distances(by_pairs, X), distances(by_labels, X), rtol=1e-3, atol=1e-3)
    assert set(by_pairs.predict(pairs, X)) == {-1, 1}
    with pytest.raises(ValueError, match="pairs must hold at least one similar pair"):
        fit(clone(learner), X, pairs=pairs[signs < 0], pair_labels=signs[signs < 0])


def test_few_anchors_among_many_rows_cost_little():
    X, _ = data(6000, 4)
    i = np.arange(0, 40, 2)
    few = Collapse(X, Pairs(i, i + 1, np.ones(20, dtype=bool)))
    every = Collapse(X, np.arange(6000) // 2)
    start = process_time()
    few(np.eye(4))
    middle = process_time()
    every(np.eye(4))
    assert middle - start < (process_time() - middle) / 5


def test_factor_mode_takes_pairs():
    X, y = toy(150)
    pairs, signs = all_pairs(y)
    learner = fit(MCML(1, rank_mode="factor"), X, pairs=pairs, pair_labels=signs)
    assert_allclose(learner.objective_, fit(MCML(1, rank_mode="factor"), X, y).objective_, rtol=1e-6)


def test_memory_stays_in_blocks():
    X, y = data(4000, 8, 10)
    collapse = Collapse(X, y)
    tracemalloc.start()
    collapse(np.eye(8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * 256 * 4000


@pytest.mark.parametrize(
    ("learner", "settings", "word"),
    [
        (MCML, {"reg": -1.0}, "reg"),
        (MCML, {"penalty": "l1"}, "penalty"),
        (MCML, {"rank_mode": "cut"}, "rank_mode"),
        (MCML, {"weighting": "class"}, "weighting"),
        (MCML, {"max_iter": 0}, "max_iter"),
        (KernelMCML, {"reg": 0.0}, "reg"),
        (KernelMCML, {"kernel": "cubic"}, "kernel"),
    ],
)
def test_bad_settings(learner, settings, word):
    X, y = data()
    with pytest.raises(ValueError, match=f"^{learner.__name__}: {word}"):
        learner(**settings).fit(X, y)


def test_more_features_than_rows_are_solved_in_their_span():
    X, y = data(15, 4)
    wide = np.concatenate([X, np.random.default_rng(0).normal(size=(15, 20))], axis=1)
    V = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)[2][:14]
    found, narrow = (fit(MCML(reg=0.1, max_iter=3000), given, y) for given in (wide, wide @ V.T))
    assert found.components_.shape == (14, 24)
    assert_allclose(found.objective_, narrow.objective_, rtol=1e-5)
    assert_allclose(distances(found, wide), distances(narrow, wide @ V.T), rtol=1e-2)
