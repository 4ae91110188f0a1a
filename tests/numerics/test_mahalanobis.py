"""Distances between points and sets of points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import mahalanobis as scipy_mahalanobis
from sklearn.covariance import ledoit_wolf_shrinkage

from nearfar.numerics import distances, mahalanobis

rng = np.random.default_rng(0)
A, B = rng.normal(size=(20, 3)), rng.normal(size=(15, 3)) + [3, 0, 1]


def test_points_equal_scipy():
    C = mahalanobis.covariance(A)
    assert_allclose(C, np.cov(A.T))
    assert_allclose(mahalanobis.point_to_point(A[0], A[1], C), scipy_mahalanobis(A[0], A[1], np.linalg.inv(C)))


def test_rows_of_points_are_compared_one_by_one():
    C = mahalanobis.covariance(A)
    found = mahalanobis.point_to_point(A[:4].tolist(), A[4:8], C)
    assert_allclose(found, [scipy_mahalanobis(A[i], A[i + 4], np.linalg.inv(C)) for i in range(4)])


def test_shrinking_keeps_the_trace_and_bends_to_the_unit_matrix():
    C = np.cov(A.T)
    assert_allclose(mahalanobis.shrink(C, 0.3), 0.7 * C + 0.1 * np.trace(C) * np.eye(3))
    assert_allclose(
        mahalanobis.point_to_set(B, A, 1.0), np.linalg.norm(B - A.mean(0), axis=1) / (np.trace(C) / 3) ** 0.5
    )


def test_centered_rows_have_their_own_covariance_and_shrinkage():
    Z = A - A.mean(0)
    assert_allclose(mahalanobis.covariance(Z, assume_centered=True), np.cov(A.T, bias=True))
    assert_allclose(mahalanobis.ledoit_wolf(Z, Z.T @ Z / 20), ledoit_wolf_shrinkage(A))
    assert mahalanobis.ledoit_wolf(Z[:, :1], Z[:, :1].T @ Z[:, :1] / 20) == 0, "one feature has nothing to shrink"


def test_squared_distances_to_the_mean_add_up_to_the_rank():
    d = mahalanobis.point_to_set(A, A)
    assert_allclose(np.sum(d**2), 19 * 3)


def test_sets_give_hotellings_statistic():
    pooled = mahalanobis.pooled_covariance([A, B])
    expected = (19 * np.cov(A.T) + 14 * np.cov(B.T)) / 33
    assert_allclose(pooled, expected)
    z = A.mean(0) - B.mean(0)
    T2 = 20 * 15 / 35 * z @ np.linalg.solve(expected, z)
    assert_allclose(20 * 15 / 35 * mahalanobis.set_to_set(A, B) ** 2, T2)


def test_distances_do_not_depend_on_an_affine_map():
    G = rng.normal(size=(3, 3))
    assert_allclose(mahalanobis.set_to_set(A @ G + 1, B @ G + 1), mahalanobis.set_to_set(A, B))
    assert_allclose(mahalanobis.point_to_set(B @ G, A @ G), mahalanobis.point_to_set(B, A))


def test_a_flat_covariance_warns_and_keeps_the_rest():
    flat = np.c_[A, A[:, 0]]
    with pytest.warns(UserWarning, match="rank 3 of 4"):
        L, rank = mahalanobis.whitener(mahalanobis.covariance(flat))
    assert rank == 3
    with pytest.warns(UserWarning, match="rank"):
        assert_allclose(mahalanobis.point_to_set(flat, flat), mahalanobis.point_to_set(A, A), rtol=1e-6)
    assert np.isfinite(L).all()


def test_too_few_points():
    with pytest.raises(ValueError, match="at least 2 points"):
        mahalanobis.covariance(A[:1])
    with pytest.raises(ValueError, match="sets must hold one of at least 2 points; got"):
        mahalanobis.pooled_covariance([A[:1], B[:1]])


def test_distances_of_sets_are_among_the_distances():
    assert distances.set_to_set is mahalanobis.set_to_set
    assert distances.point_to_set is mahalanobis.point_to_set
