"""Kernels, and the map whose inner products they are."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import pairwise

from nearfar.numerics import kernels

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 3)), rng.normal(size=(7, 3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", pairwise.linear_kernel(X, Y)),
        ("rbf", pairwise.rbf_kernel(X, Y, gamma=0.3)),
        ("laplacian", pairwise.laplacian_kernel(X, Y, gamma=0.3)),
        ("polynomial", pairwise.polynomial_kernel(X, Y, degree=2, gamma=0.3, coef0=0.5)),
        ("poly", pairwise.polynomial_kernel(X, Y, degree=2, gamma=0.3, coef0=0.5)),
        ("cosine", pairwise.cosine_similarity(X, Y)),
    ],
)
def test_kernels_equal_their_definition(name, expected):
    assert_allclose(kernels.gram(X, Y, name, 0.3, 2, 0.5), expected, rtol=1e-10)


def test_callable_and_unknown_kernels():
    assert_allclose(kernels.gram(X, Y, lambda a, b: a @ b.T), X @ Y.T)
    with pytest.raises(ValueError, match="kernel must be"):
        kernels.gram(X, Y, "nope")


def test_cosine_of_a_zero_row_is_zero():
    assert_allclose(kernels.gram(np.zeros((1, 3)), Y, "cosine"), 0)


def test_map_reproduces_the_kernel_and_extends_to_new_rows():
    found = kernels.kernel_map(X, "rbf", gamma=0.5)
    assert_allclose(found.rows @ found.rows.T, kernels.gram(X, X, "rbf", 0.5), atol=1e-9)
    again = kernels.gram(X, X[found.landmarks], "rbf", 0.5) @ found.basis
    assert_allclose(again, found.rows, atol=1e-12)


def test_linear_map_has_the_rank_of_the_data_and_its_distances():
    found = kernels.kernel_map(X, "linear")
    assert found.rows.shape == (20, 3)
    d = np.linalg.norm(found.rows[0] - found.rows[5])
    assert_allclose(d, np.linalg.norm(X[0] - X[5]))


def test_landmarks_are_exact_when_all_are_taken_and_fewer_when_not():
    full = kernels.kernel_map(X, "rbf", landmarks=20)
    assert_allclose(full.rows @ full.rows.T, kernels.gram(X, X, "rbf"), atol=1e-9)
    some = kernels.kernel_map(X, "rbf", landmarks=6, seed=3)
    assert some.rows.shape[1] <= 6
    # exact on the landmarks themselves
    rows = some.rows[some.landmarks]
    assert_allclose(rows @ rows.T, kernels.gram(X[some.landmarks], X[some.landmarks], "rbf"), atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial", "cosine", "precomputed", lambda A, B: A @ B.T])
def test_rows_of_a_map_come_in_blocks(kernel, monkeypatch):
    A = kernels.gram(X, X, "rbf", 0.5) if kernel == "precomputed" else X
    K = A if kernel == "precomputed" else kernels.gram(A, A, kernel, 0.5)
    monkeypatch.setattr(kernels, "KERNEL_BLOCK_VALUES", 21)
    found = kernels.kernel_map(A, kernel, gamma=0.5, landmarks=6, seed=3)
    assert_allclose(found.rows, K[:, found.landmarks] @ found.basis, rtol=1e-9, atol=1e-11)
    inner = K[np.ix_(found.landmarks, found.landmarks)]
    assert_allclose(found.rows @ found.rows.T, K[:, found.landmarks] @ np.linalg.pinv(inner, rcond=1e-9) @
                    K[found.landmarks], rtol=1e-6, atol=1e-9)  # fmt: skip


def test_values_that_are_no_numbers_are_refused_wherever_they_are():
    with np.errstate(over="ignore", invalid="ignore"):
        for landmarks in (None, 5):
            with pytest.raises(ValueError, match=r"the kernel matrix must be finite; \d+ of its values are not"):
                kernels.kernel_map(np.r_[X, [[1e200] * 3]], "polynomial", landmarks=landmarks, seed=1)


def test_rows_are_left_as_they_were():
    A = X.copy()
    for kernel in ("rbf", "laplacian", "polynomial", "cosine", "linear"):
        kernels.gram(A, A, kernel, 0.3, 2, 0.5)
    assert (A == X).all()


def test_precomputed():
    K = kernels.gram(X, X, "rbf", 0.5)
    rows = kernels.kernel_map(K, "precomputed").rows
    assert_allclose(rows @ rows.T, K, atol=1e-9)


@pytest.mark.parametrize(
    ("K", "word"),
    [
        (np.ones((3, 2)), "square"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
        (np.zeros((2, 2)), "must not be 0; no two rows differ"),
    ],
)
def test_matrices_that_are_no_kernels_are_refused(K, word):
    with pytest.raises(ValueError, match=word):
        kernels.kernel_map(K, "precomputed")


def test_rounding_is_no_asymmetry_and_no_landmark_is_refused():
    K = np.eye(3)
    K[0, 1] = 1e-12
    assert_allclose(
        kernels.kernel_map(K, "precomputed").rows @ kernels.kernel_map(K, "precomputed").rows.T, K, atol=1e-9
    )
    for none in (0, -1, 2.5):
        with pytest.raises(ValueError, match="landmarks must be an integer >= 1"):
            kernels.kernel_map(X, landmarks=none)


def test_median_gamma():
    d2 = ((X[:, None] - X[None]) ** 2).sum(-1)[np.triu_indices(20, 1)]
    assert_allclose(kernels.median_gamma(X, "rbf"), 1 / np.median(d2))
    d1 = np.abs(X[:, None] - X[None]).sum(-1)[np.triu_indices(20, 1)]
    assert_allclose(kernels.median_gamma(X, "laplacian"), 1 / np.median(d1))
    assert kernels.median_gamma(np.ones((5, 2)), "rbf") == 1.0
    assert kernels.median_gamma(X, "polynomial") == pytest.approx(1 / 3)


def test_a_precomputed_matrix_must_be_symmetric_beyond_its_landmarks_too():
    K = X @ X.T
    chosen = kernels.kernel_map(K, "precomputed", landmarks=5).landmarks
    i, j = np.setdiff1d(np.arange(20), chosen)[:2]
    K[i, j] += 1.0
    with pytest.raises(ValueError, match="symmetric"):
        kernels.kernel_map(K, "precomputed", landmarks=5)


def test_a_kernel_of_very_many_rows_names_its_cost(monkeypatch):
    monkeypatch.setattr(kernels, "SLOW_KERNEL_ROWS", 20)
    X = rng.normal(size=(30, 2))
    with pytest.warns(UserWarning, match=r"^a kernel on all 30 rows takes about 0 GB.* landmarks=500"):
        kernels.kernel_map(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels.kernel_map(X, landmarks=20)
        kernels.kernel_map(X[:20])
