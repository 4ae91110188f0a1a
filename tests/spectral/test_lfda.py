"""Local Fisher discriminant analysis: clusters within classes, its embeddings, small classes, blocks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar import LFDA
from nearfar.spectral.scatter import lfda
from tests.learners import accuracy, data
from tests.references.lfda import scatters


def test_classes_of_two_clusters_need_not_come_together():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    side = np.where(np.arange(120) // 2 % 2, 1.0, -1.0)
    X = np.column_stack([np.where(y == 1, 6 * side, 0.0), side, 3 * rng.normal(size=120)])
    X += 0.2 * rng.normal(size=X.shape)
    local, plain = (kind(n_components=1).fit(X[:60], y[:60]) for kind in (LFDA, LinearDiscriminantAnalysis))
    assert abs(local.components_[0, 0]) > 20 * abs(local.components_[0, 2])
    for model, right in ((local, True), (plain, False)):
        Z = model.transform(X)
        assert (accuracy(Z[:60], y[:60], Z[60:], y[60:]) > 0.95) == right


@pytest.mark.parametrize("k", [1, 3, 100])
def test_scatters_equal_those_by_loops(k, monkeypatch):
    monkeypatch.setattr(lfda, "AFFINITY_BLOCK_VALUES", 50)
    monkeypatch.setattr(lfda, "MIN_AFFINITY_ROWS", 2)
    X, y = data(40)
    y[0], y[1:3] = 9, 8  # one row alone in its class, and a class of two
    codes = np.unique(y, return_inverse=True)[1]
    for ours, expected in zip(lfda.local_scatters(X, codes, k), scatters(X, codes, k), strict=True):
        assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_embeddings_span_one_space():
    X, y = data(60, 5)
    weighted, plain, orthonormal = (
        LFDA(n_components=2, embedding_type=kind, shrinkage=0).fit(X, y)
        for kind in ("weighted", "plain", "orthonormalized")
    )
    S_w = lfda.local_scatters(X, y, 7)[0]
    assert_allclose(plain.components_ @ S_w @ plain.components_.T, np.eye(2), atol=1e-8)
    assert_allclose(orthonormal.components_ @ orthonormal.components_.T, np.eye(2), atol=1e-12)
    assert_allclose(weighted.components_, plain.components_ * np.sqrt(plain.eigenvalues_)[:, None])
    projected = plain.components_ @ orthonormal.components_.T @ orthonormal.components_
    assert_allclose(projected, plain.components_, atol=1e-10)
    assert plain.objective_ == pytest.approx(plain.eigenvalues_.sum())


def test_rows_of_unknown_class_do_not_count():
    X, y = data(60, 4)
    unknown = np.r_[y, [-1, -1]]
    more = LFDA().fit(np.r_[X, 100 + X[:2]], unknown, unlabeled=-1)
    assert_allclose(more.components_, LFDA().fit(X, y).components_, rtol=1e-6, atol=1e-9)


def test_copies_are_near_only_each_other():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(6, 2)), 4, axis=0)
    y = np.repeat([0, 0, 0, 1, 1, 1], 4)
    with pytest.warns(UserWarning, match="the local scatter within classes is singular"):
        assert np.isfinite(LFDA(n_neighbors=2).fit(X, y).components_).all()


@pytest.mark.parametrize("unit", [1e-60, 1.0, 1e60])
def test_rows_that_coincide_with_their_neighbors_have_affinity_with_copies_only(unit):
    rng = np.random.default_rng(0)
    others = rng.normal(size=(12, 3))
    rows = unit * np.r_[others, np.zeros((4, 3))]
    G = lfda.affinity_scatter(rows, lfda.local_scales(rows, np.zeros(16, dtype=np.intp), 3))
    sigma = np.sort(np.linalg.norm(others[:, None] - np.r_[others, np.zeros((4, 3))], axis=2), axis=1)[:, 3]
    expected = np.zeros((3, 3))
    for i in range(12):
        for j in range(i):
            x = others[i] - others[j]
            expected += np.exp(-(x @ x) / (sigma[i] * sigma[j])) * np.outer(x, x)
    assert_allclose(G / unit / unit, expected, rtol=1e-10, atol=1e-12)
    assert (lfda.affinity_scatter(np.ones((5, 3)), np.zeros(5)) == 0).all()


@pytest.mark.filterwarnings("ignore")
def test_rows_all_alike_are_told():
    with pytest.raises(ValueError, match=r"^LFDA: X must separate the classes in some direction"):
        LFDA().fit(np.ones((12, 3)), np.arange(12) % 2)
