"""Information geometry: closed forms, limits, optimality, and its kernel form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar import InformationGeometryMetric, KernelInformationGeometryMetric
from nearfar.numerics import scatter
from nearfar.probabilistic.information import label_precision
from tests.learners import data, distances, fit
from tests.references import information_geometry as loops


def test_class_sums_equal_the_label_kernel():
    X, y = data()
    X = X + 3
    for lam in (1e-3, 0.5, 100.0):
        expected = lam * X.T @ np.linalg.inv(loops.label_kernel(y, lam)) @ X
        assert_allclose(label_precision.label_precision(X, y, lam), expected, rtol=1e-9, atol=1e-9 * expected.max())
        Y = np.eye(3)[y]
        assert_allclose(label_precision.label_precision(X, Y, lam), expected, rtol=1e-9, atol=1e-9 * expected.max())


def test_soft_memberships():
    X, _ = data()
    Y = np.random.default_rng(0).dirichlet(np.ones(3), size=60)
    learner = InformationGeometryMetric(center=False, shrinkage=0).fit(X, Y)
    expected = np.linalg.inv(X.T @ np.linalg.inv(Y @ Y.T + 0.5 * np.eye(60)) @ X)
    assert_allclose(learner.get_mahalanobis_matrix(), expected, rtol=1e-8)
    with pytest.raises(ValueError, match=r"^InformationGeometryMetric: y"):
        InformationGeometryMetric().fit(X, Y[:-1])


def test_the_share_of_the_identity_is_in_units_of_the_mean_eigenvalue():
    X, y = data()
    plain = InformationGeometryMetric(shrinkage=0).fit(X, y).get_mahalanobis_matrix()
    B = np.linalg.inv(plain)
    expected = np.linalg.inv(0.7 * B + 0.3 * np.trace(B) / 4 * np.eye(4))
    assert_allclose(InformationGeometryMetric(shrinkage=0.3).fit(X, y).get_mahalanobis_matrix(), expected, rtol=1e-9)
    with pytest.warns(
        UserWarning, match=r"^InformationGeometryMetric: the precision of the rows is singular \(rank 4 of 5"
    ):
        InformationGeometryMetric(shrinkage=0.0).fit(np.c_[X, X[:, 0]], y)


def test_both_limits_of_lam():
    X, y = data()
    C = X - X.mean(axis=0)
    near = InformationGeometryMetric(lam=1e-9, shrinkage=0).fit(X, y).get_mahalanobis_matrix() / 1e-9
    assert_allclose(near, np.linalg.inv(scatter.within(X, y)), rtol=1e-6)
    far = InformationGeometryMetric(lam=1e9, shrinkage=0).fit(X, y).get_mahalanobis_matrix() / 1e9
    assert_allclose(far, np.linalg.inv(C.T @ C), rtol=1e-6)


def test_no_metric_around_it_is_better():
    X, y = data()
    M = InformationGeometryMetric(shrinkage=0).fit(X, y).get_mahalanobis_matrix()
    best, rng = loops.objective(M, X, y), np.random.default_rng(0)
    for size in (1e-3, 0.1, 0.3):
        for _ in range(10):
            T = np.eye(4) + size * rng.normal(size=(4, 4))
            assert loops.objective(T.T @ M @ T, X, y) > best


def test_invertible_maps_carry_over():
    X, y = data()
    Q = np.random.default_rng(0).normal(size=(4, 4))
    M = InformationGeometryMetric(shrinkage=0).fit(X, y).get_mahalanobis_matrix()
    moved = InformationGeometryMetric(shrinkage=0).fit(X @ Q, y).get_mahalanobis_matrix()
    assert_allclose(Q @ moved @ Q.T, M, rtol=1e-6, atol=1e-9 * M.max())


def test_the_origin_matters_only_without_centering():
    X, y = data()
    plain = distances(InformationGeometryMetric(center=False).fit(X, y), X)
    shifted = distances(InformationGeometryMetric(center=False).fit(X + 5, y), X)
    assert np.abs(plain / shifted - 1).max() > 1e-3
    a, b = (distances(InformationGeometryMetric().fit(X + shift, y), X) for shift in (0, 5))
    assert_allclose(a, b, rtol=1e-8)


def test_linear_kernel_is_the_linear_method_without_centering():
    X, y = data()
    linear = InformationGeometryMetric(center=False, shrinkage=0.01).fit(X, y)
    kernel = KernelInformationGeometryMetric(kernel="linear").fit(X, y)
    assert_allclose(distances(kernel, X), distances(linear, X), rtol=1e-8)
    assert_allclose(kernel.transform(X[:5] + 1).shape, (5, 4))


@pytest.mark.parametrize("lam", [0.1, 0.5])
def test_the_learned_kernel_is_the_kernel_of_the_labels(lam):
    X, y = data(24)
    learner = KernelInformationGeometryMetric(lam=lam, kernel="rbf", shrinkage=0, landmarks=None).fit(X, y)
    Z = learner.transform(X)
    target = lam * np.eye(24) + (y[:, None] == y)
    assert_allclose(Z @ Z.T, target, atol=1e-6)


def test_landmarks_and_shrinkage_do_not_learn_by_heart():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(2, size=60)

    def ratio(learner):
        d = distances(fit(learner, X, y), X)
        same = y[:, None] == y
        same = same[np.triu_indices(60, 1)]
        return d[~same].mean() / d[same].mean()

    heart = KernelInformationGeometryMetric(shrinkage=0, landmarks=None, random_state=0)
    calm = KernelInformationGeometryMetric(shrinkage=0.1, landmarks=20, random_state=0)
    assert_allclose(ratio(heart), np.sqrt((2 + 2 * 0.5) / (2 * 0.5)), rtol=1e-4)
    assert ratio(calm) < 1.5


def test_memberships_that_are_none():
    X, y = data()
    Y = np.eye(3)[y]
    for wrong in (Y[:-1], np.where(Y == 1, np.nan, Y), np.where(Y == 1, np.inf, Y)):
        with pytest.raises(ValueError, match=r"^InformationGeometryMetric: y must be 60 labels or finite memberships"):
            InformationGeometryMetric().fit(X, wrong)


@pytest.mark.parametrize("learner", [InformationGeometryMetric, KernelInformationGeometryMetric])
@pytest.mark.parametrize(
    "settings", [{"lam": 0.0}, {"lam": -1.0}, {"lam": np.inf}, {"shrinkage": -1.0}, {"shrinkage": "lw"}]
)
def test_bad_settings(learner, settings):
    X, y = data()
    with pytest.raises(ValueError, match=f"^{learner.__name__}: {next(iter(settings))}"):
        learner(**settings).fit(X, y)
