"""Generalized eigenproblems with singular matrices, and the trace ratio."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.numerics import psd


def definite(d: int = 5, seed: int = 0, rank: int | None = None) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(d, rank or d))
    return A @ A.T


def test_gevd_solves_and_is_normalized():
    A, B = definite(seed=1), definite(seed=2)
    w, U = psd.gevd(A, B, 3)
    assert_allclose(A @ U, B @ U * w, atol=1e-9)
    assert_allclose(U.T @ B @ U, np.eye(3), atol=1e-10)
    assert (np.diff(w) <= 0).all()
    assert_allclose(w, np.sort(np.linalg.eigvals(np.linalg.solve(B, A)).real)[::-1][:3], rtol=1e-8)


def test_all_directions_of_gevd_forget_the_first_matrix():
    B = definite(seed=2)
    for seed in (1, 3):
        U = psd.gevd(definite(seed=seed), B)[1]
        assert_allclose(U @ U.T, np.linalg.inv(B), rtol=1e-6)


def test_singular_matrices_follow_the_policy():
    A, B = definite(seed=1), definite(seed=2, rank=3)
    with pytest.warns(UserWarning, match=r"the scatter matrix is singular \(rank 3 of 5\).*added to its diagonal"):
        w, U = psd.gevd(A, B, 2)
    assert np.isfinite(w).all()
    assert np.isfinite(U).all()
    with pytest.raises(ValueError, match="rank 3 of 5"):
        psd.gevd(A, B, 2, "raise")
    w, U = psd.gevd(A, B, None, "pinv")
    assert U.shape == (5, 3)
    assert_allclose(U.T @ B @ U, np.eye(3), atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        psd.regularize_singular(definite())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_what_is_added_goes_with_the_size_of_the_matrix(scale):
    B = scale * definite(seed=2, rank=3)
    with pytest.warns(UserWarning, match="added to its diagonal"):
        assert_allclose(
            psd.regularize_singular(B, amount=1e-3) - B, 1e-3 * np.trace(B) / 5 * np.eye(5), atol=1e-9 * scale
        )


def test_a_zero_matrix_is_shrunk_to_something():
    with pytest.warns(UserWarning, match="rank 0"):
        assert np.linalg.eigvalsh(psd.regularize_singular(np.zeros((2, 2))))[0] > 0


@pytest.mark.parametrize("p", [1, 2, 4])
def test_trace_ratio_is_optimal(p):
    Sb, Sw = definite(seed=1), definite(seed=2)
    found = psd.trace_ratio(Sb, Sw, p)
    U, ratio = found.x, found.objective
    assert_allclose(U.T @ U, np.eye(p), atol=1e-12)
    assert_allclose(np.trace(U.T @ Sb @ U) / np.trace(U.T @ Sw @ U), ratio, rtol=1e-10)
    assert found.n_iter > 1
    assert abs(np.linalg.eigvalsh(Sb - ratio * Sw)[-p:].sum()) < 1e-10 * np.trace(Sb)
    rng = np.random.default_rng(0)
    for _ in range(100):
        V = np.linalg.qr(U + 0.3 * rng.normal(size=(5, p)))[0]
        assert np.trace(V.T @ Sb @ V) / np.trace(V.T @ Sw @ V) <= ratio + 1e-10


def test_trace_ratio_beats_the_generalized_eigenvectors():
    Sb, Sw = definite(seed=1), definite(seed=2)
    V = np.linalg.qr(psd.gevd(Sb, Sw, 2)[1])[0]
    assert psd.trace_ratio(Sb, Sw, 2).objective >= np.trace(V.T @ Sb @ V) / np.trace(V.T @ Sw @ V) - 1e-12


def test_trace_ratio_is_infinite_inside_the_null_space():
    Sb, Sw = definite(seed=1), definite(seed=2, rank=2)
    found = psd.trace_ratio(Sb, Sw, 3)
    assert found.objective == np.inf
    assert_allclose(Sw @ found.x, 0, atol=1e-9)
    assert_allclose(found.x.T @ found.x, np.eye(3), atol=1e-10)


def test_trace_ratio_says_when_it_is_cut_short():
    found = psd.trace_ratio(definite(seed=1), definite(seed=2), 2, max_iter=1)
    assert not found.converged
    assert "trace ratio" in found.message
