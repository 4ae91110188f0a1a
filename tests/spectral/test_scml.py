"""Sparse compositional metrics: the program and its certificate, directions of regions and of triplets, memory."""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh

from nearfar import SCML
from nearfar.spectral.margin.scml import linear_program, local_directions
from nearfar.spectral.margin.scml.triplets import nearest_triplets
from tests.finite_differences import derivative_along
from tests.learners import data, fit
from tests.references import scml as loops


def problem(seed=0, n=40, d=4, K=12, kind="overlapping"):
    """Rows, triplets and directions of unlike lengths."""
    rng = np.random.default_rng(seed)
    X, y = data(n, d, seed=seed)
    if kind == "apart":
        X = X + 20 * np.eye(d)[y]
    if kind == "copies":
        X = np.repeat(X[: n // 4], 4, axis=0)
    triplets = nearest_triplets(X, y, 2, 5)
    if kind == "contradictory":
        triplets = np.concatenate([triplets, triplets[::3, [0, 2, 1]]])
    return X, triplets, rng.normal(size=(K, d)) * rng.uniform(0.2, 2, size=(K, 1))


def test_value_and_gradient_equal_loops():
    X, T, B = problem()
    w = np.maximum(np.random.default_rng(1).normal(size=len(B)) / 10, 0.0)
    exact = linear_program.TripletHinges(X, T, B, 0.01)
    M = sum(w_k * np.outer(b, b) for w_k, b in zip(w, B, strict=True))
    point = exact.at(w, 0.5)
    assert_allclose(point.value, loops.objective(M, X, T) + 0.01 * w.sum(), rtol=1e-12)
    slopes = np.clip(point.u / 0.5, 0, 1)
    G = loops.scatter(slopes, X, T)
    assert_allclose(point.gradient, [b @ G @ b + 0.01 for b in B], rtol=1e-9, atol=1e-12)
    direction = np.random.default_rng(2).normal(size=len(w)) * (w > 0)
    expected = derivative_along(lambda v: exact.at(v, 0.5).rounded, w, direction, h=1e-5)  # its second derivative jumps
    assert_allclose(point.gradient @ direction, expected, rtol=1e-6)


@pytest.mark.parametrize("cells", [1 << 20, 20])
def test_curvature_equals_that_of_the_table(cells, monkeypatch):
    monkeypatch.setattr(linear_program, "DIFFERENCE_BLOCK_CELLS", cells)
    X, T, B = problem()
    a, p, n = T.T
    D = ((X[a] - X[p]) @ B.T) ** 2 - ((X[a] - X[n]) @ B.T) ** 2
    at, within = np.array([0, 3, 7]), np.arange(0, len(T), 2)
    expected = D[within][:, at].T @ D[within][:, at] / (len(T) * 0.3)
    assert_allclose(linear_program.TripletHinges(X, T, B, 0.01).curvature(at, within, 0.3), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["overlapping", "apart", "copies", "contradictory"])
@pytest.mark.parametrize("beta", [1e-7, 1e-3, 0.3, 1e3])
def test_weights_are_those_of_the_linear_program(kind, beta):
    for seed in range(3):
        X, T, B = problem(seed, kind=kind)
        best = loops.program(X, B, T, beta)
        for tol in (1e-2, max(1e-5, 1e-11 / beta)):  # the bound is as good as rounding beside beta lets it be
            found = linear_program.minimize(linear_program.TripletHinges(X, T, B, beta), tol=tol)
            assert found.converged, found.message
            assert (found.x >= 0).all()
            assert best * (1 - 1e-6) <= found.objective
            assert found.objective * (1 - tol) <= best * (1 + 1e-6)
            assert found.objective - found.duality_gap <= best * (1 + 1e-6)


def test_what_stops_early_says_how_far_it_is():
    X, T, B = problem(n=60)
    found = linear_program.minimize(linear_program.TripletHinges(X, T, B, 1e-3), tol=1e-6, max_iter=3)
    assert not found.converged
    assert "gap" in found.message
    assert found.objective - found.duality_gap <= loops.program(X, B, T, 1e-3) <= found.objective


@pytest.mark.slow
def test_a_gap_that_rounding_hides_ends_the_search():
    gaps = []
    for seed in range(4):
        X, T, B = problem(seed, n=12, d=2, K=3)
        with np.errstate(all="raise", under="ignore"):
            found = linear_program.minimize(linear_program.TripletHinges(X, T, B, 1.0), tol=1e-16)
        assert found.converged == (found.duality_gap <= 1e-16 * found.objective)
        gaps.append(found.duality_gap / found.objective)
    assert min(gaps) >= 0
    assert max(gaps) < 1e-6


def test_triplets_of_labels_are_nearest_rows():
    X, y = data(40)
    y[0] = 7  # alone in its class: nobody's positive, but a negative
    y[1:3] = -1
    codes = np.where(y < 0, -1, np.unique(y, return_inverse=True)[1] - 1)
    known = np.flatnonzero(codes >= 0)
    expected = [tuple(known[list(t)]) for t in loops.triplets(X[known], codes[known], 3, 10)]
    assert sorted(map(tuple, nearest_triplets(X, codes, 3, 10).tolist())) == sorted(expected)
    few = nearest_triplets(X, codes, 100, 100)
    assert len(few) == sum(size * (size - 1) * (len(known) - size) for size in np.bincount(codes[codes >= 0]).tolist())


@pytest.mark.slow
def test_listed_triplets_are_learned_as_those_of_labels():
    X, y = data(60)
    B = np.random.default_rng(0).normal(size=(30, 4))
    T = nearest_triplets(X, y, 3, 10)
    told = SCML(basis=B, tol=1e-8).fit(X, triplets=T)
    assert_allclose(told.objective_, SCML(basis=B, tol=1e-8).fit(X, y).objective_, rtol=1e-7)
    fewer = SCML(n_neighbors=1, n_impostors=2, basis=B, tol=1e-8).fit(X, y)
    assert_allclose(
        fewer.objective_, SCML(basis=B, tol=1e-8).fit(X, triplets=nearest_triplets(X, y, 1, 2)).objective_, rtol=1e-7
    )
    assert abs(fewer.objective_ / told.objective_ - 1) > 1e-3
    shift = SCML(basis=B, tol=1e-8).fit(X, triplets=T + 100, rows=np.arange(60) + 100)
    assert_array_equal(shift.components_, told.components_)


def test_a_larger_penalty_uses_fewer_directions():
    X, y = data(200, 6)
    counts = [len(SCML(beta=beta, tol=1e-4).fit(X, y).weights_) for beta in (1e-6, 1e-2, 0.1)]
    assert counts[0] > counts[1] > counts[2] > 0


@pytest.mark.parametrize("power", [-490, -20, 20, 490])
def test_units_do_not_matter(power):
    X, y = data()
    first, other = (SCML().fit(rows, y) for rows in (X, 2.0**power * X))
    assert_allclose(other.objective_, first.objective_, rtol=1e-9)
    assert_allclose(2.0**power * other.components_, first.components_, rtol=1e-6, atol=1e-9)


def test_rows_that_lie_apart_are_solved_too():
    rng = np.random.default_rng(0)
    for X, y in ((rng.normal(size=(12, 40)), np.arange(12) % 2), (rng.normal(size=(4, 3)), [0, 0, 1, 1])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = SCML().fit(X, y)
        assert model.converged_
        assert model.objective_ < 1e-4
        assert len(model.components_) <= min(len(X) - 1, X.shape[1])


@pytest.mark.parametrize("d", [3, 9])
def test_rows_that_do_not_differ_give_no_metric(d):
    for model in (SCML().fit(np.ones((6, d)), [0, 1] * 3), SCML().fit(np.ones((6, d)), triplets=[[0, 2, 1]])):
        assert model.objective_ == 1
        assert not model.components_.any()


def test_few_components_are_those_along_which_rows_differ_most():
    X, y = data(60, 6)
    Z = SCML().fit(X, y).transform(X)
    U = np.linalg.svd(Z - Z.mean(axis=0))[2][:2]
    found, expected = SCML(2).fit(X, y).transform(X), Z @ U.T
    assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-9 * np.abs(Z).max())


@pytest.mark.slow
def test_no_table_of_triplets_and_directions_is_held():
    X, y = data(800, 20, 4)
    model = SCML(max_iter=30)
    tracemalloc.start()
    fit(model, X, y)
    assert tracemalloc.get_traced_memory()[1] < 30e6  # of 24,000 triplets and 400 directions: 77 MB
    tracemalloc.stop()


def test_triplets_the_wrong_way_round_give_no_metric():
    X, y = data(40)
    with pytest.warns(UserWarning, match="the metric and all distances are 0"):
        model = SCML(random_state=0).fit(X + 9 * np.eye(4)[y], triplets=nearest_triplets(X, y, 3, 10)[:, [0, 2, 1]])
    assert model.objective_ == 1
    assert model.weights_.shape == (0,)


def test_centers_do_not_depend_on_order_or_axes():
    X = np.random.default_rng(0).normal(size=(80, 3))
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    order = np.random.default_rng(2).permutation(80)
    found = local_directions.centers(X, 7)
    assert found.shape == (7, 3)
    assert_allclose(local_directions.centers(X[order], 7), found)
    assert_allclose(local_directions.centers(X @ Q, 7), found @ Q)
    assert_array_equal(local_directions.centers(X, 80), X)
    assert_array_equal(local_directions.centers(np.ones((9, 3)), 4), np.ones((4, 3)))


def test_centers_are_the_means_of_the_rows_around_them():
    groups = np.array([[0.0, 0], [50, 0], [0, 80]])
    X = np.repeat(groups, 7, axis=0) + np.random.default_rng(0).normal(size=(21, 2))
    found = local_directions.centers(X, 3)
    assert_allclose(sorted(found.tolist()), sorted(X.reshape(3, 7, 2).mean(axis=1).tolist()))


def test_discriminants_solve_their_eigenproblem():
    X, y = data(30, 5)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    S = sum((X[y == c] - means[c]).T @ (X[y == c] - means[c]) for c in range(3))
    S_b = sum((y == c).sum() * np.outer(means[c] - X.mean(axis=0), means[c] - X.mean(axis=0)) for c in range(3))
    U = eigh(S_b, S + local_directions.DIRECTION_RIDGE * np.trace(S) / 5 * np.eye(5))[1][:, ::-1][:, :2]
    found = local_directions.discriminants(X, y, 2)
    assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert_allclose(np.abs(found @ (U / np.linalg.norm(U, axis=0))).diagonal(), 1, rtol=1e-9)


def test_discriminants_of_more_classes_than_features():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(800), 2)
    X = rng.normal(size=(800, 4))[y] + 0.5 * rng.normal(size=(1600, 4))
    tracemalloc.start()
    try:
        found = local_directions.discriminants(X, y, 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 800 * 800 * 8  # bytes: no matrix of classes by classes
    means = X.reshape(800, 2, 4).mean(axis=1)
    S = np.einsum("nd,ne->de", X - means[y], X - means[y])
    S_b = 2 * np.einsum("cd,ce->de", means - X.mean(axis=0), means - X.mean(axis=0))
    U = eigh(S_b, S + local_directions.DIRECTION_RIDGE * np.trace(S) / 4 * np.eye(4))[1][:, ::-1]
    U = U / np.linalg.norm(U, axis=0)
    assert_allclose(np.abs(np.einsum("kd,dk->k", found, U)), 1, atol=1e-10)


def test_regions_are_the_nearest_rows_of_each_class():
    X, y = data(60, 3, 2)
    (center,) = local_directions.centers(X, 1)
    order = np.argsort(np.sum((X - center) ** 2, axis=1))
    rows = [np.concatenate([order[y[order] == c][:k] for c in (0, 1)]) for k in (5, 12)]
    expected = np.concatenate([local_directions.discriminants(X[i], y[i], 1) for i in rows])
    found = local_directions.of_regions(X, y, 2, (5, 12))
    assert_allclose(found * np.sign((found * expected).sum(axis=1, keepdims=True)), expected)


@pytest.mark.parametrize(
    ("n", "d", "count", "sizes"), [(120, 50, 1000, (10, 20)), (120, 51, 1020, (20, 50)), (12, 90, 220, (10, 20))]
)
def test_how_many_regions_of_how_many_rows(n, d, count, sizes, monkeypatch):
    asked = []
    monkeypatch.setattr(local_directions, "of_regions", lambda X, y, *told: asked.append(told) or np.eye(X.shape[1]))
    for n_basis in (None, 7):
        SCML(max_iter=50, n_basis=n_basis).fit(np.random.default_rng(0).normal(size=(n, d)), np.arange(n) % 2)
    assert asked == [(count, sizes), (7, sizes)]


def test_as_many_directions_as_asked_for():
    X, y = data(90, 4)
    for count in (1, 5, 40):
        assert local_directions.of_regions(X, y, count, (10, 20)).shape == (count, 4)
    assert local_directions.of_regions(X[:, :1], np.arange(90) % 5, 40, (10, 20)).shape == (40, 1)
    X, T, _ = problem()
    B = local_directions.of_triplets(X, T, 33, 0)
    assert B.shape == (33, 4)
    assert_allclose(np.linalg.norm(B, axis=1), 1)
    assert_array_equal(B, local_directions.of_triplets(X, T, 33, 0))
    assert not np.array_equal(B, local_directions.of_triplets(X, T, 33, 1))
    assert_array_equal(local_directions.of_triplets(np.ones((9, 2)), np.array([[0, 1, 2]]), 5, 0), np.eye(2))


def test_groups_of_triplets_without_a_direction_are_passed_over():
    X = np.array([[0.0], [1.0], [3.0]])
    T = np.array([[0, 2, 1]] * 3 + [[0, 1, 2]])  # of one feature a group is one triplet: most say nothing
    assert_array_equal(np.abs(local_directions.of_triplets(X, T, 4, 0)), np.ones((4, 1)))


def test_directions_of_triplets_are_those_in_which_negatives_lie_further():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(20, 6)), rng.permuted(np.tile(np.arange(20), (5, 1)), axis=1)[:, :3]
    mu = np.linalg.eigvalsh(
        -sum(np.outer(X[a] - X[p], X[a] - X[p]) - np.outer(X[a] - X[n], X[a] - X[n]) for a, p, n in T)
    )
    B = local_directions.of_triplets(X, T, 100, 0)
    further = -len(T) * np.einsum("kd,de,ke->k", B, loops.scatter(np.ones(len(T)), X, T), B)
    assert_allclose(further, mu[mu > 1e-9][::-1], rtol=1e-9)


@pytest.mark.parametrize("basis", [np.eye(3), np.full((2, 4), np.nan), [[1.0], [1.0, 2.0]], [["a"] * 4], None, "lda"])
def test_what_is_no_basis(basis):
    X, y = data(40)
    with pytest.raises(ValueError, match=r"^SCML: basis must be"):
        SCML(basis=basis).fit(X, y)


def test_discriminants_need_labels():
    X, y = data(40)
    with pytest.raises(ValueError, match=r"^SCML: basis=.* requires labels; got triplets"):
        SCML(basis="discriminants").fit(X, triplets=nearest_triplets(X, y, 1, 1))


@pytest.mark.slow
def test_a_warm_start_leads_to_the_same_optimum_where_the_directions_are_the_same():
    X, y = data(300, 8)
    B = np.random.default_rng(0).normal(size=(100, 8))
    cold = SCML(basis=B, tol=1e-4).fit(X, y)
    learner = SCML(basis=B, tol=1e-4, warm_start=True).fit(100 * X[:280], y[:280]).fit(X, y)
    assert learner.n_iter_ < cold.n_iter_
    assert learner.converged_
    assert_allclose(learner.objective_, cold.objective_, rtol=2e-4)
    assert learner.fit(X, y).n_iter_ < cold.n_iter_ / 2
    again = SCML(warm_start=True).fit(X[:280], y[:280]).fit(X, y)  # other rows have other directions
    assert_array_equal(again.components_, SCML().fit(X, y).components_)
