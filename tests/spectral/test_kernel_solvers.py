"""The mathematics that the kernel methods share: semidefinite programs over differences, graphs, rebuilding weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh

from nearfar.core import graphs
from nearfar.core.discriminants import locality
from nearfar.core.geometry import smooth
from nearfar.core.margins import apart
from nearfar.core.margins.nu_margin import NuMargin, nu_margin
from tests.core import conic

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("q", "m", "c"), [(1, 4, 1.0), (3, 10, 1.0), (6, 60, 2.5), (4, 40, 0.1)])
def test_cheapest_matrix_is_that_of_a_generic_solver(q, m, c):
    B, Z = rng.normal(size=(2 * q, q)), rng.normal(size=(m, q))
    found = apart.cheapest(B.T @ B, Z, c, tol=1e-8)
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
    found = apart.cheapest(C, Z)
    a = found.attributes["dual"]
    assert a.min() >= 0
    assert np.linalg.eigvalsh(C - (Z * a[:, None]).T @ Z)[0] >= -1e-12
    assert_allclose(found.objective - a.sum(), found.duality_gap, atol=1e-12)
    assert found.duality_gap <= 1e-6 * found.objective
    assert (a > 0).sum() < 300, "few constraints were looked at"
    few = apart.cheapest(C, Z, max_iter=4)
    assert not few.converged
    assert "duality gap" in few.message
    assert few.objective - few.duality_gap <= found.objective <= few.objective


def test_progress_is_told():
    told = []
    apart.cheapest(np.eye(3), rng.normal(size=(9, 3)), report=lambda *line: told.append(line))
    assert len(told) > 3


def test_laplacian_counts_edges_once():
    X = rng.normal(size=(25, 2))
    L = smooth.graph_laplacian(X, 3).toarray()
    near = [set(np.argsort(np.sum((X - x) ** 2, axis=1))[1:4]) for x in X]
    for i in range(25):
        for j in range(25):
            if i != j:
                assert L[i, j] == -float(j in near[i] or i in near[j])
    assert_allclose(L.sum(axis=1), 0)


@pytest.mark.parametrize("n", [80, 700])
def test_smoothest_functions_span_the_lowest_eigenvectors(n):
    X = rng.normal(size=(n, 1)) + 1e-3 * rng.normal(size=(n, 2))
    L = smooth.graph_laplacian(X, 40)
    F = smooth.smoothest(L, 6)
    assert_allclose(F.T @ F, np.eye(6), atol=1e-10)
    assert_allclose(F.sum(axis=0), 0, atol=1e-8)
    w = eigh(L.toarray(), eigvals_only=True)
    assert_allclose(np.linalg.eigvalsh(F.T @ (L @ F)), w[1:7], rtol=1e-6)


def test_ridge_map_is_kernel_ridge_regression():
    R, Y = rng.normal(size=(20, 6)), rng.normal(size=(20, 2))
    K = R @ R.T
    expected = Y.T @ np.linalg.inv(K + 0.3 * np.trace(K) / 20 * np.eye(20)) @ K
    assert_allclose((R @ smooth.ridge_map(R, Y, 0.3).T).T, expected, rtol=1e-9)


def test_rebuilding_scatter_in_blocks(monkeypatch):
    R = rng.normal(size=(40, 5))
    S = graphs.lle_weights(R, 6)
    E = (np.eye(40) - S.toarray()).T @ (np.eye(40) - S.toarray())
    monkeypatch.setattr(locality, "BLOCK", 35)
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
