"""The mathematics that the kernel methods share: semidefinite programs over differences, graphs, rebuilding weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh

from nearfar.neighbors import graphs
from nearfar.spectral import locality
from nearfar.spectral import nu_svm_dual as solver
from nearfar.spectral.kernel.laplacian_regularized import separation, smooth_functions
from nearfar.spectral.nu_svm_dual import NuMargin, nu_margin
from tests import conic
from tests.finite_differences import derivative_along

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("q", "m", "c"), [(1, 4, 1.0), (3, 10, 1.0), (6, 60, 2.5), (4, 40, 0.1)])
def test_cheapest_matrix_is_that_of_a_generic_solver(q, m, c):
    B, Z = rng.normal(size=(2 * q, q)), rng.normal(size=(m, q))
    found = separation.cheapest(B.T @ B, Z, c, tol=1e-8)
    k = q * (q + 1) // 2
    Q = np.stack([conic.svec(np.outer(z, z)) for z in Z])
    rows = [(-Q, -np.ones(m), "positive", m), (-np.eye(k), np.zeros(k), "psd", q)]
    expected = c * conic.svec(B.T @ B) @ conic.solve(np.zeros((k, k)), conic.svec(B.T @ B), rows)
    assert_allclose(found.objective, expected, rtol=1e-5)
    assert_allclose(np.sum(B.T @ B * found.x), found.objective)
    assert np.einsum("mq,mq->m", Z @ found.x, Z).min() >= c * (1 - 1e-9)
    assert np.linalg.eigvalsh(found.x)[0] >= 0


def test_cheapest_matrix_carries_its_proof():
    C, Z = np.diag(np.logspace(-2, 0, 12)), rng.normal(size=(3000, 12))
    found = separation.cheapest(C, Z)
    a = found.attributes["dual"]
    assert a.min() >= 0
    assert np.linalg.eigvalsh(C - (Z * a[:, None]).T @ Z)[0] >= -1e-12
    assert_allclose(found.objective - a.sum(), found.duality_gap, atol=1e-12)
    assert found.duality_gap <= 1e-6 * found.objective
    assert (a > 0).sum() < 300, "few constraints were looked at"
    few = separation.cheapest(C, Z, max_iter=4)
    assert not few.converged
    assert "duality gap" in few.message
    assert few.objective - few.duality_gap <= found.objective <= few.objective


def test_progress_is_told():
    told = []
    separation.cheapest(np.eye(3), rng.normal(size=(9, 3)), report=lambda *line: told.append(line))
    assert len(told) > 3


def test_laplacian_counts_edges_once():
    X = rng.normal(size=(25, 2))
    L = smooth_functions.graph_laplacian(X, 3).toarray()
    near = [set(np.argsort(np.sum((X - x) ** 2, axis=1))[1:4]) for x in X]
    for i in range(25):
        for j in range(25):
            if i != j:
                assert L[i, j] == -float(j in near[i] or i in near[j])
    assert_allclose(L.sum(axis=1), 0)


@pytest.mark.parametrize("n", [80, 700])
def test_smoothest_functions_span_the_lowest_eigenvectors(n):
    X = rng.normal(size=(n, 1)) + 1e-3 * rng.normal(size=(n, 2))
    L = smooth_functions.graph_laplacian(X, 40)
    F = smooth_functions.smoothest(L, 6)
    assert_allclose(F.T @ F, np.eye(6), atol=1e-10)
    assert_allclose(F.sum(axis=0), 0, atol=1e-8)
    w = eigh(L.toarray(), eigvals_only=True)
    assert_allclose(np.linalg.eigvalsh(F.T @ (L @ F)), w[1:7], rtol=1e-6)


def test_ridge_map_is_kernel_ridge_regression():
    R, Y = rng.normal(size=(20, 6)), rng.normal(size=(20, 2))
    K = R @ R.T
    expected = Y.T @ np.linalg.inv(K + 0.3 * np.trace(K) / 20 * np.eye(20)) @ K
    assert_allclose((R @ smooth_functions.ridge_map(R, Y, 0.3).T).T, expected, rtol=1e-9)


def test_rebuilding_scatter_in_blocks(monkeypatch):
    R = rng.normal(size=(40, 5))
    S = graphs.lle_weights(R, 6)
    E = (np.eye(40) - S.toarray()).T @ (np.eye(40) - S.toarray())
    monkeypatch.setattr(locality, "RESIDUAL_BLOCK_VALUES", 35)
    assert_allclose(locality.rebuilding_scatter(R, S), R.T @ E @ R / 40)
    assert_allclose(locality.rebuilding_scatter(R + 7, S), R.T @ E @ R / 40, rtol=1e-6)


@pytest.mark.parametrize("nu", [0.1, 0.5, 1.0])
def test_the_margin_is_a_weighted_quantile(nu):
    Z, w = rng.normal(size=(30, 3)), rng.random(30)
    problem = NuMargin(np.eye(3), Z, w / w.sum(), 1.0, 5.0, nu)
    M = 3 * np.eye(3)

    def value(g):
        return -nu * g + problem.weight @ np.maximum(g - problem.stretched(M), 0)

    best = min(value(g) for g in [0.0, *problem.stretched(M)])
    assert_allclose(value(problem.margin(M)), best, atol=1e-12)
    assert problem.margin(np.zeros((3, 3))) == 0


def test_any_multipliers_bound_the_optimum():
    Z = rng.normal(size=(40, 3)) / np.sqrt(3)
    problem = NuMargin(np.eye(3), Z, np.full(40, 1 / 40), 0.5, 100.0, 0.4)
    found = nu_margin(problem, tol=1e-7)
    assert found.converged
    assert found.attributes["margin"] > 0
    for _ in range(5):
        a = problem.feasible(rng.random(40) * 100 / 40)
        assert a.sum() >= 40 * (1 - 1e-12)
        assert a.max() <= 2.5 * (1 + 1e-12)
        B = rng.normal(size=(3, 3))
        assert problem.dual(a) <= found.objective + 1e-6
        assert problem.primal(B @ B.T) >= found.objective
    assert "stopped after 2" in nu_margin(problem, max_iter=2).message


def nu_problem(m=40, d=4, nu=0.4, definite=True, l1=0.5, l2=100.0, seed=1):
    """Differences of mean squared length 1, with a pair twice, one of no length and one of no weight."""
    draw = np.random.default_rng(seed)
    Z, w = draw.normal(size=(m, d)) * np.linspace(0.5, 1.5, d), draw.random(m)
    Z[1], Z[2], w[3] = Z[0], 0, 0
    B = draw.normal(size=(d, d)) / d
    return NuMargin(B @ B.T, Z / np.sqrt(w @ np.sum(Z**2, axis=1) / w.sum()), w / w.sum(), l1, l2, nu, definite)


@pytest.mark.parametrize("definite", [True, False])
def test_rates_are_the_derivative_of_the_metric(definite):
    problem = nu_problem(definite=definite, l1=60.0)
    a, da = rng.random(40), rng.normal(size=40)
    V, rates = problem.rates(a)
    if definite:
        assert 0 < (rates.diagonal() > 0).sum() < 4
    moved = V @ (rates * (V.T @ problem.moved(da) @ V)) @ V.T
    expected = derivative_along(problem.metric, a, da, h=1e-5)  # its second derivative may jump
    assert_allclose(moved, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("positive", [0, 1, 3, 4])
def test_products_are_sums_over_eigenvectors(positive):
    w = np.where(np.arange(4) < positive, 1.0, -1.0) * rng.random(4)
    up = np.maximum(w, 0)
    rates = (up[:, None] + up) / (np.abs(w)[:, None] + np.abs(w))
    Z = rng.normal(size=(6, 4))
    expected = [[np.sum(rates * np.outer(z, z) * np.outer(v, v)) for v in Z] for z in Z]
    assert_allclose(solver.products(Z, rates), expected, rtol=1e-12, atol=1e-12)


def test_bounded_steps_stay_inside_and_solve_for_the_rest():
    B = rng.normal(size=(8, 3))
    J = B @ B.T + np.eye(8)
    miss = J @ np.linspace(-0.5, 0.6, 8)
    x = solver.bounded(J, miss, None, np.full(8, -np.inf), np.full(8, np.inf))
    assert_allclose(J @ x, miss)
    low, high = np.full(8, -0.3), np.full(8, 0.5)
    for total in (None, 0.7):
        x = solver.bounded(J, miss, total, low, high)
        assert (x >= low).all()
        assert (x <= high).all()
        inside = (x > low) & (x < high)
        assert 1 < inside.sum() < 8
        left = (J @ x - miss)[inside]
        assert_allclose(left, left[0] if total is not None else 0.0, atol=1e-12)
        if total is not None:
            assert_allclose(x.sum(), total)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize(("nu", "l1", "l2"), [(0.4, 0.5, 100.0), (0.05, 5.0, 100.0), (1.0, 0.5, 20.0), (0.5, 0.0, 5e3)])
def test_the_optimum_is_exact_whatever_the_tolerance(definite, nu, l1, l2):
    problem = nu_problem(nu=nu, definite=definite, l1=l1, l2=l2)
    found, finer = (nu_margin(problem, tol=tol) for tol in (1e-2, 1e-8))
    assert found.converged
    assert finer.converged
    assert_allclose(found.x, finer.x, rtol=1e-9, atol=1e-9 * np.abs(found.x).max())
    for each in (found, finer):
        # loops over the conditions of the optimum
        M, a, margin = each.x, each.attributes["dual"], each.attributes["margin"]
        scale = max(1.0, margin)
        for z, w, p in zip(problem.Z, problem.weight, a, strict=True):
            t, high = z @ M @ z - z @ z - margin, l2 * w
            assert p <= 1e-9 * l2 or t <= 1e-9 * scale
            assert p >= high - 1e-9 * l2 or t >= -1e-9 * scale
        assert abs(min(margin, a.sum() - l2 * nu)) <= 1e-9 * scale
        G = sum(p * np.outer(z, z) for p, z in zip(a, problem.Z, strict=True)) - l1 * problem.S
        e, V = np.linalg.eigh(G)
        assert_allclose(M, (V * np.maximum(e, 0)) @ V.T if definite else G, atol=1e-9 * np.abs(G).max())


def test_newton_steps_fall_fast_and_are_counted():
    problem, seen = nu_problem(), []
    a = nu_margin(problem, max_iter=60, tol=1e-15).attributes["dual"]
    near = np.clip(a * (1 + 1e-5 * rng.normal(size=40)), 0.0, problem.l2 * problem.weight)
    start = solver.Conditions.of(problem, near).wrong
    end, steps = solver.newton(problem, near, report=lambda *told: seen.append(told))
    assert 1 <= steps <= 4
    assert [k for k, _, _ in seen] == list(range(1, steps + 1))
    assert start > 1e-7
    assert solver.Conditions.of(problem, end).wrong <= 1e-12
    assert solver.newton(problem, near, max_iter=1)[1] == 1
    assert_allclose(solver.newton(problem, near, max_iter=0)[0], near)


def test_without_newton_the_first_order_search_converges(monkeypatch):
    problem = nu_problem()
    exact = nu_margin(problem)
    monkeypatch.setattr(solver, "MAX_NEWTON_PAIRS", 0)
    found = nu_margin(problem)
    assert found.converged
    assert found.n_iter > exact.n_iter
    assert abs(found.objective - exact.objective) <= 1e-6 * abs(exact.objective)
    assert_allclose(found.x, exact.x, atol=1e-3 * np.abs(exact.x).max())
