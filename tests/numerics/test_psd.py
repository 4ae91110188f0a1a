"""Projections, powers, geodesics and factors of positive semi-definite matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import inv, sqrtm

from nearfar.numerics import psd


def symmetric(d: int = 5, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A + A.T


def definite(d: int = 5, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A @ A.T + 0.1 * np.eye(d)


def test_spectrum_falls_and_rebuilds():
    A = symmetric()
    w, V = psd.spectrum(A)
    assert (np.diff(w) <= 0).all()
    assert_allclose((V * w) @ V.T, A, atol=1e-12)
    assert (V[np.abs(V).argmax(axis=0), range(5)] > 0).all()


def test_eigenvectors_are_orthonormal_to_rounding():
    for kind in (symmetric(300), definite(300), np.diag(np.repeat([1.0, 2.0, 3.0], 100))):
        w, V = psd.spectrum(kind)
        assert np.abs(V.T @ V - np.eye(300)).max() < 2e-14
        assert np.abs(kind @ V - V * w).max() < 1e-13 * np.abs(w).max()


def test_projection_is_nearest_and_its_factor_fits():
    A = symmetric()
    M, L = psd.project(A)
    assert_allclose(L.T @ L, M, atol=1e-12)
    assert np.linalg.eigvalsh(M)[0] > -1e-12
    rng = np.random.default_rng(1)
    for _ in range(50):
        B = rng.normal(size=(5, 5))
        N = M + 0.1 * (B @ B.T - M)
        assert np.linalg.norm(A - M) <= np.linalg.norm(A - N)
    # A - M is in the polar cone and orthogonal to M
    assert np.linalg.eigvalsh(A - M)[-1] < 1e-12
    assert abs(np.sum((A - M) * M)) < 1e-10


def test_projection_with_shrinkage_is_the_proximal_map_of_the_trace():
    A = symmetric()
    assert_allclose(psd.project(A, 0.7)[0], psd.project(A - 0.7 * np.eye(5))[0], atol=1e-12)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_sharp_factor_is_the_geodesic_from_the_inverse(t):
    S, D = definite(seed=1), definite(seed=2)
    L = psd.sharp_factor(S, D, t)
    R = np.real(sqrtm(inv(S)))
    w, V = np.linalg.eigh(inv(R) @ D @ inv(R))
    assert_allclose(L.T @ L, R @ ((V * w**t) @ V.T) @ R, rtol=1e-9, atol=1e-10)


def test_sharp_factor_takes_a_singular_second_matrix():
    S, d = definite(), np.ones(5)
    L = psd.sharp_factor(S, np.outer(d, d), 0.5)
    A = L.T @ L
    assert_allclose(A @ S @ A, np.outer(d, d), atol=1e-6)


@pytest.mark.parametrize("p", [2.0, -0.5])
def test_power(p):
    A = definite()
    expected = A @ A if p == 2.0 else inv(np.real(sqrtm(A)))
    assert_allclose(psd.power(A, p), expected, rtol=1e-9, atol=1e-10)


def test_components_and_compress_give_the_same_metric():
    M = definite()
    L = psd.components(M)
    assert_allclose(L.T @ L, M, atol=1e-12)
    Q = np.linalg.qr(symmetric(seed=3))[0]
    assert_allclose(psd.compress(Q @ L), L, atol=1e-8)
    assert psd.components(M, 2).shape == (2, 5)
    assert_allclose(psd.components(M, 2), L[:2])


def test_rank_and_singularity():
    w = np.array([3.0, 1.0, 1e-17])
    assert psd.rank(w) == 2
    assert psd.is_singular(w)
    assert not psd.is_singular(w[:2])
    assert psd.is_singular(np.zeros(3))
    assert psd.rank(np.zeros(3)) == 0


@pytest.mark.parametrize("n", [50, 1000, 20000])
@pytest.mark.parametrize("d", [3, 6, 12, 40])
def test_a_sum_of_columns_adds_no_rank(n, d):
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(n, d - 1))
        X = np.column_stack([X, X[:, 0] + X[:, 1]])
        w = psd.spectrum(X.T @ X)[0]
        assert psd.rank(w) == d - 1
        assert psd.is_singular(w)


@pytest.mark.parametrize(
    ("A", "word"),
    [
        (np.ones((2, 3)), "square"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, -2.0]), "smallest eigenvalue is -2"),
        (np.array([[np.nan, 0.0], [0.0, 1.0]]), "finite"),
        ([[1.0], [0.0, 1.0]], "finite square matrix; got"),
    ],
)
def test_what_is_not_definite_is_refused(A, word):
    with pytest.raises(ValueError, match=f"prior .*{word}"):
        psd.require_pd(A, "prior")


def test_semi_definite_suffices_when_asked():
    assert_allclose(psd.require_pd(np.diag([1.0, 0.0]), "K", strict=False), np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match="K must be positive definite"):
        psd.require_pd(np.diag([1.0, 0.0]), "K")


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_is_judged_by_the_size_of_the_matrix(scale):
    rounded, wrong = scale * np.diag([1.0, -1e-10]), scale * np.diag([1.0, -1e-3])
    psd.require_pd(rounded, "K", strict=False)
    with pytest.raises(ValueError, match="K must be positive semi-definite; its smallest eigenvalue"):
        psd.require_pd(wrong, "K", strict=False)
    skew = scale * np.array([[2.0, 1.0], [1.0 + 1e-12, 2.0]])
    found = psd.require_pd(skew, "K")
    assert_array_equal(found, found.T)


@pytest.mark.parametrize("p", [1, 2, 7])
def test_leading_is_the_start_of_the_spectrum(p):
    A = np.random.default_rng(0).normal(size=(12, 12))
    (w, V), (all_w, all_V) = psd.leading(A + A.T, p), psd.spectrum(A + A.T)
    assert_allclose(w, all_w[:p])
    assert_allclose(V, all_V[:, :p], atol=1e-12)
