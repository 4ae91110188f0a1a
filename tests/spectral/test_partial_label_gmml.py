"""Geometric means for partial labels: against loops, and what they promise beyond the laws of all learners."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import lsq_linear

import nearfar
from nearfar.numerics import psd
from nearfar.spectral.geometric.partial_label_gmml import candidates, scatters
from nearfar.spectral.geometric.partial_label_gmml.nnls import nnls
from tests.learners import accuracy, data, toy
from tests.references import partial_label_gmml as loops

X, Y = data()
rng = np.random.default_rng(0)
SETS = (Y[:, None] == np.arange(5)) | (rng.random((60, 5)) < 0.2)


@pytest.mark.parametrize("settings", [{}, {"l1": 10.0}, {"lam": 0.0}, {"n_neighbors": 3}, {"t": 0.3}])
def test_equals_loops(settings):
    learner = nearfar.PartialLabelGMML(**{"n_neighbors": 8, **settings}).fit(X, SETS.astype(int))
    t = settings.pop("t", 0.5)
    S, D = loops.scatters(X, SETS, **{"k": settings.pop("n_neighbors", 8), **settings})
    if t == 0.5:
        M = loops.mean(S, D)
        assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-5, atol=1e-7 * np.abs(M).max())
    ridge = 0.1 * np.trace(S) / 4 * np.eye(4)
    w = np.linalg.eigvals((S + ridge) @ learner.get_mahalanobis_matrix())
    both = np.linalg.eigvals((S + ridge) @ (D + ridge)) ** t
    assert_allclose(np.sort(np.real(w)), np.sort(np.real(both)), rtol=1e-5)


def test_riccati_residual():
    learner = nearfar.PartialLabelGMML(8, reg=0.0).fit(X, SETS.astype(int))
    M, (S, D) = learner.get_mahalanobis_matrix(), scatters(X - X.mean(axis=0), SETS, 8, 0.1, 1.0)
    assert np.abs(M @ S @ M - D).max() <= 1e-8 * np.abs(D).max()
    for mine, plain in zip((S, D), loops.scatters(X, SETS, 8), strict=True):
        assert_allclose(mine, plain, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("d", [2, 4, 12])
def test_nonnegative_least_squares_of_many_problems(d):
    # more unknowns than equations, as many, and fewer
    A, b = rng.normal(size=(200, d, 8)) + 0.5, rng.normal(size=(200, d))
    G, c = A.transpose(0, 2, 1) @ A, (A.transpose(0, 2, 1) @ b[:, :, None])[:, :, 0]
    w = nnls(G, c)
    slope = (G @ w[:, :, None])[:, :, 0] - c
    scale = np.abs(c).max()
    assert (w >= 0).all()
    assert slope.min() >= -1e-8 * scale
    assert np.abs(slope * w).max() <= 1e-7 * scale * max(w.max(), 1.0)
    residual = np.linalg.norm((A @ w[:, :, None])[:, :, 0] - b, axis=1)
    costs = [lsq_linear(A[i], b[i], bounds=(0, np.inf), method="bvls", tol=1e-14).cost for i in range(200)]
    assert_allclose(residual, np.sqrt(2 * np.array(costs)), rtol=1e-6, atol=2e-5)


def test_nonnegative_least_squares_of_equal_columns_and_of_nothing():
    a = np.ones((1, 3, 4))
    w = nnls(a.transpose(0, 2, 1) @ a, np.full((1, 4), 3.0))
    assert_allclose(w.sum(), 1.0)
    assert (nnls(np.zeros((2, 3, 3)), np.zeros((2, 3))) == 0).all()


def test_weights_are_shares_and_single_labels_share_equally():
    near, there, _, _ = candidates.candidate_neighbors(X, SETS, 8)
    v = candidates.label_weights(SETS, near, there, 0.1)
    assert (v >= 0).all()
    assert_allclose(v.sum(axis=1), 1.0)
    single = Y[:, None] == np.arange(3)
    near, there, _, _ = candidates.candidate_neighbors(X, single, 8)
    assert (Y[near] == Y[:, None])[there].all()
    v = candidates.label_weights(single, near, there, 0.1)
    assert_allclose(v, there / there.sum(axis=1, keepdims=True), rtol=1e-8)


def test_blocks_do_not_matter(monkeypatch):
    whole = nearfar.PartialLabelGMML().fit(X, SETS.astype(int)).get_mahalanobis_matrix()
    monkeypatch.setattr(candidates, "CANDIDATE_BLOCK_VALUES", 60 * 7)
    assert_allclose(nearfar.PartialLabelGMML().fit(X, SETS.astype(int)).get_mahalanobis_matrix(), whole, rtol=1e-8)


def test_order_of_rows_and_classes_does_not_matter():
    order, classes = rng.permutation(60), rng.permutation(5)
    a = nearfar.PartialLabelGMML().fit(X, SETS.astype(int)).get_mahalanobis_matrix()
    b = nearfar.PartialLabelGMML().fit(X[order], SETS[order][:, classes].astype(int)).get_mahalanobis_matrix()
    assert_allclose(b, a, rtol=1e-6)


def test_labels_unknown_to_some_rows_are_any_class():
    y = np.where(np.arange(60) % 4 == 0, -1, Y)
    sets = (y[:, None] == np.arange(3)) | (y[:, None] < 0)
    a = nearfar.PartialLabelGMML().fit(X, y, unlabeled=-1).get_mahalanobis_matrix()
    assert_allclose(a, nearfar.PartialLabelGMML().fit(X, sets.astype(int)).get_mahalanobis_matrix(), rtol=1e-6)


def test_learns_from_ambiguous_labels():
    A, a = toy()
    sets = (a[:, None] == np.arange(4)) | (np.random.default_rng(0).random((400, 4)) < 0.1)
    learner = nearfar.PartialLabelGMML().fit(A[:200], sets[:200].astype(int))
    plain = accuracy(A[:200], a[:200], A[200:], a[200:])
    assert accuracy(learner.transform(A[:200]), a[:200], learner.transform(A[200:]), a[200:]) >= plain + 0.03


def test_classes_far_apart_leave_nothing_to_push():
    far = X + 1000 * Y[:, None]
    with pytest.warns(UserWarning, match=r"^PartialLabelGMML: no row that shares no candidate is nearer"):
        learner = nearfar.PartialLabelGMML(3, reg=0.1).fit(far, Y)
    S, D = scatters(far - far.mean(axis=0), np.eye(3, dtype=bool)[Y], 3, 0.1, 1.0)
    assert not D.any()
    ridge = 0.1 * np.trace(S) / len(S) * np.eye(len(S))
    L = psd.sharp_factor(S + ridge, ridge, 0.5)
    expected = L.T @ L
    assert_allclose(learner.get_mahalanobis_matrix(), expected, rtol=1e-6)
    for reg in (0, "auto"):
        with pytest.raises(ValueError, match=r"^PartialLabelGMML: reg must be above 0 here; got .* D is 0"):
            nearfar.PartialLabelGMML(3, reg=reg).fit(far, Y)
    # nor do rows in two classes at once
    twice, classes = np.repeat(X[:20], 2, axis=0), np.tile([0, 1], 20)
    near = np.vstack([twice, X[:20] + 0.01, X[:20] + 0.01 + 1000])
    sets = np.vstack([np.eye(3)[classes], np.ones((20, 3)), np.ones((20, 3))]).astype(int)
    with pytest.warns(UserWarning, match="only similar rows and reg count"):
        nearfar.PartialLabelGMML(1).fit(near, sets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(nearfar.PartialLabelGMML(3).fit(X, Y).components_).all()


def one_row_without_candidates():
    sets = SETS.astype(int)
    sets[7] = 0
    return sets


@pytest.mark.parametrize(
    ("settings", "sets", "word"),
    [
        ({}, np.ones((60, 3), dtype=int), "y must hold rows without a common candidate class"),
        ({}, np.eye(60, dtype=int), "y must hold rows that share a candidate class; no two"),
        (
            {},
            np.zeros((60, 3), dtype=int),
            r"y must be a 0/1 matrix .* a 1 in every row; got shape \(60, 3\), values \[0\]",
        ),
        ({}, one_row_without_candidates(), "y must be a 0/1 matrix .* a 1 in every row"),
        ({"n_neighbors": 0}, SETS.astype(int), "n_neighbors must be"),
        ({"l1": 0.0}, SETS.astype(int), "l1 must be"),
        ({"lam": -1.0}, SETS.astype(int), "lam must be"),
        ({"t": 2.0}, SETS.astype(int), "t must be"),
    ],
)
def test_refuses(settings, sets, word):
    learner = nearfar.PartialLabelGMML(**settings)
    with pytest.raises(ValueError, match=f"^PartialLabelGMML: {word}"):
        learner.fit(X, sets)
