"""Where searches start."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar.numerics import initialization
from tests.learners import data

X, Y = data()  # 60 rows, 4 features, 3 classes
LDA, PCA = initialization.discriminant(X, Y, 4), initialization.principal(X, 4)


@pytest.mark.parametrize(
    ("labels", "k", "expected"),
    [(Y, 2, LDA[:2]), (Y, 3, PCA[:3]), (Y, None, np.eye(4)), (None, 2, PCA[:2]), (None, 4, np.eye(4))],
)
def test_auto_takes_what_the_data_can_tell(labels, k, expected):
    assert_allclose(initialization.start(X, labels, "auto", k), expected, atol=1e-12)


def test_each_start_is_what_its_name_says():
    assert_array_equal(initialization.start(X, None, "identity", 2), np.eye(2, 4))
    V = np.linalg.eigh(np.cov(X.T))[1]
    assert_allclose(np.abs(np.sum(initialization.start(X, None, "pca", 2) * V[:, :-3:-1].T, axis=1)), 1)
    L = initialization.start(X, Y, "lda", 2)
    means = np.stack([X[c == Y].mean(0) for c in range(3)])[Y]
    within = np.cov((X - means).T, bias=True)
    assert_allclose(L @ within @ L.T, np.eye(2), atol=1e-9)
    between = np.cov(means.T, bias=True)
    best = np.sort(np.linalg.eigvals(np.linalg.solve(within, between)).real)[:-3:-1]
    assert_allclose(np.diag(L @ between @ L.T), best)
    random = initialization.start(np.zeros((2, 4000)), None, "random", 3, seed=5)
    assert_array_equal(random, initialization.start(np.zeros((2, 4000)), None, "random", 3, seed=5))
    assert_allclose(np.linalg.norm(random, axis=1), 1, atol=0.05)
    own = np.arange(8).reshape(2, 4)
    assert_array_equal(initialization.start(X, None, own, 2), own)


def test_starts_that_do_not_fit_are_refused():
    for bad in (np.eye(3), np.full((2, 4), np.nan)):
        with pytest.raises(ValueError, match=r"init must be a finite array of shape \(2, 4\); got shape"):
            initialization.start(X, Y, bad, 2)
    for bad in ([[1.0], [1.0, 2.0]], [["a"]], {"a": 1}):
        with pytest.raises(ValueError, match=r"init must be a finite array of shape \(2, 4\); got [\[{]"):
            initialization.start(X, Y, bad, 2)
    with pytest.raises(ValueError, match='init="lda" needs labels; got none'):
        initialization.start(X, None, "lda", 2)
    with pytest.raises(ValueError, match="init must be one of"):
        initialization.start(X, Y, "best", 2)


@pytest.mark.filterwarnings("ignore:the scatter matrix is singular")
@pytest.mark.parametrize("init", ["lda", "pca", "auto"])
def test_wide_rows_start_in_their_span(init):
    wide = np.random.default_rng(1).normal(size=(60, 80))
    wide[:, :4] += X
    L = initialization.start(wide, Y, init, 2)
    assert L.shape == (2, 80)
    centered = wide - wide.mean(0)  # of rank 59: one singular value is nothing but rounding
    span = np.linalg.svd(centered)[2][:59]
    assert_allclose(L @ span.T @ span, L, atol=1e-8)


def test_coordinates_in_a_basis():
    V = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 3)))[0].T
    assert_allclose(initialization.inside(V, X, Y, "pca", None), initialization.start(X @ V.T, Y, "pca"))
    assert_array_equal(initialization.inside(V, X, Y, "identity", 4), np.eye(3))
    assert_allclose(initialization.inside(V, X, Y, 2 * np.eye(4), None), 2 * V.T)


def test_the_median_squared_distance_is_scaled_to_one():
    rows = np.repeat(X, 2, axis=0)  # equal rows do not count
    L = initialization.median_scaled(rows, LDA[:2])
    Z = rows @ L.T
    d = ((Z[:, None] - Z) ** 2).sum(-1)[np.triu_indices(120, 1)]
    assert_allclose(np.median(d[d > 1e-9]), 1)
    assert_allclose(L / LDA[:2], (L / LDA[:2])[0, 0])
    assert_array_equal(initialization.median_scaled(np.ones((5, 4)), LDA), LDA)
