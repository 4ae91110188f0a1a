"""Points that are matrices: what is taken for one, whatever its size, and what is refused."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import logm

from nearfar.numerics import manifolds
from tests.finite_differences import gradient as numerical_gradient

rng = np.random.default_rng(0)
B = rng.normal(size=(6, 3, 5))
SPD = B @ B.transpose(0, 2, 1)
SCALES = pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])


@SCALES
def test_definite_is_judged_by_the_size_of_each_matrix(scale):
    manifolds.require_spd(scale * SPD)
    manifolds.require_spd(-scale * -SPD)
    rounded = SPD.copy()
    rounded[2, 0, 1] += 1e-9
    manifolds.require_spd(scale * rounded)
    thin = np.stack([np.eye(3), np.diag([1.0, 1.0, -1e-16])])
    manifolds.require_spd(scale * thin)
    for row, wrong, word in (
        (1, np.diag([1.0, 1.0, -1e-6]), "X must hold positive definite matrices; the smallest eigenvalue of"),
        (1, -np.eye(3), "X must hold positive definite matrices; the smallest eigenvalue of"),
        (1, np.zeros((3, 3)), "X must hold positive definite matrices; the smallest eigenvalue of"),
        (0, np.eye(3) + np.eye(3, k=1) * 1e-3, "X must hold symmetric matrices;"),
        (0, -5 * np.eye(3) + np.eye(3, k=-1), "X must hold symmetric matrices;"),
    ):
        stack = np.stack([np.eye(3), wrong] if row else [wrong, np.eye(3)])
        with pytest.raises(ValueError, match=rf"{word} X\[{row}\]"):
            manifolds.require_spd(scale * stack)
    with pytest.raises(ValueError, match="square"):
        manifolds.require_spd(B)


@SCALES
def test_logarithms_and_their_floor(scale):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = manifolds.spd_log(scale * SPD)
    assert_allclose(found, [logm(scale * S) for S in SPD], atol=1e-9)
    with pytest.warns(UserWarning, match="1 matrices are singular"):
        raised = manifolds.spd_log(scale * np.stack([np.eye(2), np.diag([1.0, 0.0])]))
    assert_allclose(raised[1], np.diag(np.log([scale, scale * manifolds.SPD_FLOOR])), atol=1e-9)


def test_rows_of_matrices_keep_inner_products_and_come_back():
    T = SPD - 3 * np.eye(3)
    rows = manifolds.vectors(T)
    assert_allclose(rows @ rows.T, np.einsum("aij,bij->ab", T, T))
    assert_allclose(manifolds.matrices(rows), T)
    with pytest.raises(ValueError, match=r"rows must hold d .* values of a symmetric matrix, .*; got 5"):
        manifolds.matrices(rows[:, :5])
    w = np.linalg.eigvalsh(T)
    assert (w[:, 0] < 0).any()
    assert_allclose(np.linalg.eigvalsh(manifolds.rectified(T)), np.maximum(w, 0), atol=1e-12)
    assert_allclose(np.linalg.eigvalsh(manifolds.rectified(T, 0.5)), np.maximum(w, 0.5))


@SCALES
def test_spans_are_judged_by_the_size_of_each_basis(scale):
    U = np.linalg.qr(rng.normal(size=(4, 5, 2)))[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manifolds.require_spans(U)
        manifolds.require_spans(scale * U[:, :, 0])
    if scale != 1:
        with pytest.warns(UserWarning, match=r"the columns of X\[\d\] are not orthonormal"):
            manifolds.require_spans(scale * U)
    flat = U.copy()
    flat[3, :, 1] = flat[3, :, 0]
    with pytest.raises(ValueError, match=r"matrices of 2 independent columns; those of X\[3\] are dependent"):
        manifolds.require_spans(scale * flat)
    rows = np.stack([np.ones(3), np.zeros(3)])
    with pytest.warns(UserWarning, match="1 of 2 rows are 0 and define no line"):
        manifolds.require_spans(rows)
    M = np.diag([1.0, 2.0, 3.0])
    V = manifolds.unit_bases(manifolds.spans(rows), M)
    T = manifolds.projectors(manifolds.spans(rows), M)
    assert_allclose(V @ V.transpose(0, 2, 1), T)
    assert_allclose(T, [np.full((3, 3), 1 / 6), np.zeros((3, 3))])
    with pytest.raises(ValueError, match="at least as many rows as columns"):
        manifolds.require_spans(U.transpose(0, 2, 1))


def test_gradients_in_an_orthonormal_basis_are_those_in_any():
    A, G = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    U, pullback = manifolds.orthonormal(A)
    assert_allclose(U.T @ U, np.eye(3), atol=1e-12)
    assert (np.diag(U.T @ A) > 0).all()
    expected = numerical_gradient(lambda B: np.sum(G * manifolds.orthonormal(B)[0]), A)
    assert_allclose(pullback(G), expected, rtol=1e-7, atol=1e-8)
