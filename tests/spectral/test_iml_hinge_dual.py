"""The hinge problem over semi-definite matrices against its definition and a generic solver."""

import re

import numpy as np
from numpy.testing import assert_allclose

from nearfar.spectral.margin.iml.hinge_dual import Hinges, minimize
from tests import conic

rng = np.random.default_rng(0)
Z = rng.normal(size=(40, 4)) * [2.0, 1.0, 0.5, 1.0]
s = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
b = np.where(s > 0, 1.0, 6.0)
c = rng.random(40) / 40
A0 = np.diag([1.0, 0.0, 2.0, -1.0])


def loops(M, gamma):
    total = gamma * sum((M[i, j] - A0[i, j]) ** 2 for i in range(4) for j in range(4))
    for p in range(40):
        total += c[p] * max(0.0, s[p] * (Z[p] @ M @ Z[p] - b[p]))
    return total


def test_optimum_has_no_gap_and_matches_the_generic_solver():
    for gamma in (1.0, 0.1):
        found = minimize(Hinges(Z, s, b, c, A0, gamma), tol=1e-8)
        assert found.converged
        assert_allclose(found.objective, loops(found.x, gamma), rtol=1e-10)
        assert_allclose(Hinges(Z, s, b, c, A0, gamma)(found.x), found.objective)
        assert np.linalg.eigvalsh(found.x)[0] > -1e-10
        oracle = conic.hinge(Z, s, b, c, A0, gamma)
        assert abs(loops(oracle, gamma) - found.objective) < 1e-5
        assert_allclose(found.x, oracle, atol=1e-3)
        for _ in range(50):
            N = found.x + 0.1 * rng.normal(size=(4, 4))
            N = N @ N.T
            assert loops(N, gamma) >= found.objective - found.duality_gap - 1e-12


def test_multipliers_are_within_bounds_and_give_back_the_metric():
    found = minimize(Hinges(Z, s, b, c, A0, 0.5), tol=1e-8)
    a = found.attributes["dual"]
    assert (a >= 0).all()
    assert (a <= c).all()
    w, V = np.linalg.eigh(A0 - (Z * (a * s)[:, None]).T @ Z)
    assert_allclose((V * np.maximum(w, 0)) @ V.T, found.x, atol=1e-10)


def test_running_out_of_iterations_is_told():
    found = minimize(Hinges(Z, s, b, c, A0, 0.01), max_iter=1, tol=1e-12)
    assert not found.converged
    assert "duality gap" in found.message


def test_features_of_very_different_size_are_named_as_the_cause():
    sizes = np.geomspace(1e-4, 1e4, Z.shape[1])
    found = minimize(Hinges(Z * sizes, s, b, c, A0, 0.01), tol=1e-9)
    assert not found.converged
    assert re.search(r"duality gap .*; features differ by a factor of \de\+07 in size: scale them$", found.message)
    assert "scale" not in minimize(Hinges(Z, s, b, c, A0, 0.01), max_iter=1, tol=1e-12).message


def test_a_looser_tolerance_stops_sooner_and_is_kept():
    tight, loose = (minimize(Hinges(Z, s, b, c, A0, 0.01), tol=tol) for tol in (1e-9, 1e-2))
    assert loose.converged
    assert loose.n_iter < tight.n_iter
    assert loose.objective - tight.objective <= loose.duality_gap <= 1e-2 * max(1, loose.objective)


def test_gap_is_the_primal_less_the_dual_of_the_multipliers():
    found = minimize(Hinges(Z, s, b, c, A0, 0.03), max_iter=3)
    a = found.attributes["dual"]
    w, V = np.linalg.eigh(A0 - (Z.T * (a * s)) @ Z / 0.06)
    M = (V * np.maximum(w, 0.0)) @ V.T
    dual = 0.03 * np.sum(A0**2) - 0.03 * np.sum(M**2) - a @ (s * b)
    assert ((a >= 0) & (a <= c)).all()
    assert found.duality_gap > 1e-4
    assert_allclose(found.duality_gap, loops(M, 0.03) - dual, rtol=1e-8)
