"""Sets and images as matrices, against loops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.numerics import descriptors

rng = np.random.default_rng(0)
SETS = [rng.normal(size=(m, 3)) for m in (5, 8, 6)]


def test_covariances_of_sets_of_any_size():
    found = descriptors.set_covariances(SETS, shrinkage=0.1)
    for C, points in zip(found, SETS, strict=True):
        plain = np.cov(points.T, bias=True)
        assert_allclose(C, 0.9 * plain + 0.1 * np.trace(plain) / 3 * np.eye(3))


def test_covariances_with_means_are_second_moments():
    found = descriptors.set_covariances(SETS, shrinkage=0.0, with_mean=True)
    for G, points in zip(found, SETS, strict=True):
        rows = np.c_[points, np.ones(len(points))]
        assert_allclose(G, rows.T @ rows / len(rows))


def test_thin_sets_give_positive_definite_matrices():
    assert np.linalg.eigvalsh(descriptors.set_covariances([SETS[0][:2]])).min() > 0


@pytest.mark.parametrize("center", [False, True])
def test_spans_are_the_best_fitting_subspaces(center):
    for U, points in zip(descriptors.set_spans(SETS, 2, center), SETS, strict=True):
        points = points - points.mean(axis=0) if center else points
        assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
        rest = np.sum((points - points @ U @ U.T) ** 2)
        assert_allclose(rest, np.linalg.eigvalsh(points.T @ points)[0])


def test_region_covariances_of_pixels():
    images = rng.normal(size=(2, 5, 4))
    found = descriptors.region_covariances(images, shrinkage=0.0)
    for C, image in zip(found, images, strict=True):
        down, right = np.gradient(image)
        rows = []
        for r in range(5):
            for c in range(4):
                bends = np.gradient(right, axis=1)[r, c], np.gradient(down, axis=0)[r, c]
                rows.append([c / 4, r / 5, image[r, c], *np.abs([right[r, c], down[r, c], *bends])])
        assert_allclose(C, np.cov(np.array(rows).T, bias=True), atol=1e-12)


def test_refuses():
    with pytest.raises(ValueError, match=r"sets\[1\] must be finite points"):
        descriptors.set_covariances([SETS[0], np.zeros((0, 3))])
    with pytest.raises(ValueError, match=r"sets\[0\] must be finite points of shape"):
        descriptors.set_covariances([np.ones(3)])
    with pytest.raises(ValueError, match=r"q must be in 1\.\.3"):
        descriptors.set_spans(SETS, 4)
    with pytest.raises(ValueError, match="images must have shape"):
        descriptors.region_covariances(np.zeros((4, 8)))
    for thin in ((2, 1, 8), (2, 8, 1)):
        with pytest.raises(ValueError, match="height and width at least 2; got"):
            descriptors.region_covariances(np.zeros(thin))
