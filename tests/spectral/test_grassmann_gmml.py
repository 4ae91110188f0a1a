"""Metrics on subspaces: against loops, and what they promise beyond the laws of all learners."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar.numerics import manifolds
from nearfar.numerics.constraints import LabelPairs
from nearfar.spectral import geodesic
from tests.learners import all_pairs, distances
from tests.references import grassmann_gmml as loops


def subspaces(n=30, d=5, q=2, seed=0):
    """Planes near one of three centers in three of the dimensions, and of random slope in the others."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    centers = rng.normal(size=(3, 3, q))
    A = np.concatenate([centers[y] + 0.3 * rng.normal(size=(n, 3, q)), rng.normal(size=(n, d - 3, q))], axis=1)
    return np.linalg.qr(A)[0], y


X, Y = subspaces()


@pytest.mark.parametrize("keep", ["best", "last"])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_equals_loops(rounds, keep):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = nearfar.GrassmannGMML(n_rounds=rounds, tol=0.0, keep=keep).fit(X, Y)
    kept = int(np.argmin(learner.history_)) + 1 if keep == "best" else rounds
    before, M = loops.alternate(X, Y, kept)
    assert_allclose(learner.components_.T @ learner.components_, M, rtol=1e-7, atol=1e-9)
    pairs, _ = all_pairs(Y)
    expected = [loops.distance(X[i], X[j], before, M) for i, j in pairs]
    assert_allclose(learner.pair_distance(pairs, X), expected, rtol=1e-7)


@pytest.mark.parametrize("weighting", ["pairs", "class"])
@pytest.mark.parametrize("q", [1, 2])
def test_class_sums_equal_scatters_of_the_stack(q, weighting):
    U, y = subspaces(q=q)
    y = np.where(np.arange(30) == 4, 3, y)
    y[7] = -1
    V = manifolds.unit_bases(U, np.diag([1.0, 2.0, 3.0, 4.0, 5.0]))
    T = manifolds.projectors(U, np.diag([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert_allclose(V @ V.transpose(0, 2, 1), T, atol=1e-12)
    for found, expected in zip(
        geodesic.projector_scatters(V, LabelPairs(y, weighting)),
        geodesic.stack_scatters(T, LabelPairs(y, weighting)),
        strict=True,
    ):
        assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_riccati_residual_up_to_scale():
    learner = nearfar.GrassmannGMML(keep="last").fit(X, Y)
    S, D = loops.scatters([loops.rule(A, learner.rule_) for A in X], Y)
    M = learner.components_.T @ learner.components_
    N = M @ S @ M
    assert np.abs(N * np.trace(D) / np.trace(N) - D).max() <= 1e-8 * np.abs(D).max()
    assert_allclose(np.trace(M), 5)


def test_ends_at_a_fixed_point():
    learner = nearfar.GrassmannGMML(tol=1e-9, keep="last").fit(X, Y)
    assert learner.converged_
    assert_allclose(learner.rule_, learner.components_.T @ learner.components_, atol=1e-8)


def test_basis_does_not_matter():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="are not orthonormal"):
        other = nearfar.GrassmannGMML().fit(X @ rng.normal(size=(30, 2, 2)), Y)
    learner = nearfar.GrassmannGMML().fit(X, Y)
    assert_allclose(distances(other, X), distances(learner, X), rtol=1e-7)
    M = learner.components_.T @ learner.components_
    T = manifolds.projectors(X, M)
    assert_allclose(manifolds.projectors(X @ rng.normal(size=(30, 2, 2)), M), T, atol=1e-10)
    assert_allclose(T, [loops.rule(A, M) for A in X], atol=1e-10)


def test_turns_with_the_space():
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    a, b = nearfar.GrassmannGMML().fit(X, Y), nearfar.GrassmannGMML().fit(Q @ X, Y)
    assert_allclose(b.rule_, Q @ a.rule_ @ Q.T, atol=1e-8)
    assert_allclose(distances(b, Q @ X), distances(a, X), rtol=1e-7)


def test_identity_gives_the_projection_metric():
    T = manifolds.projectors(X, np.eye(5))
    angles = np.arccos(np.clip(np.linalg.svd(X[0].T @ X[1])[1], 0, 1))
    assert_allclose(np.linalg.norm(T[0] - T[1]), np.sqrt(2) * np.linalg.norm(np.sin(angles)))


def test_pairs_are_labels_and_other_dimensions_are_welcome():
    learner = nearfar.GrassmannGMML().fit(X, Y)
    pairs, labels = all_pairs(Y)
    told = nearfar.GrassmannGMML().fit(X, pairs=pairs, pair_labels=labels)
    assert_allclose(distances(told, X), distances(learner, X), rtol=1e-7)
    assert set(told.predict(pairs, X)) == {-1, 1}
    assert_allclose(learner.get_metric()(X[0], X[1]), distances(learner, X)[0])


def test_works_inside_pipelines_saves_and_pickles(tmp_path):
    model = make_pipeline(nearfar.GrassmannGMML(), KNeighborsClassifier(3))
    assert cross_val_score(model, X, Y, cv=3).mean() > 0.5
    narrow = X.astype(np.float32)
    learner = nearfar.GrassmannGMML().fit(narrow, Y)
    Z = learner.transform(narrow)
    assert Z.dtype == np.float32
    assert Z.shape == (30, 25) == (30, len(learner.get_feature_names_out()))
    learner.save(tmp_path / "planes")
    for again in (nearfar.GrassmannGMML.load(tmp_path / "planes"), pickle.loads(pickle.dumps(learner))):
        assert_array_equal(again.transform(narrow), Z)


def test_warns_when_cut_short_and_keeps_the_best_round():
    with pytest.warns(ConvergenceWarning, match=r"^GrassmannGMML: the alternation stopped after 3 iterations"):
        learner = nearfar.GrassmannGMML(n_rounds=3, tol=1e-12).fit(X, Y)
    assert learner.objective_ == learner.history_.min()


def test_refuses():
    thin = X.copy()
    thin[11, :, 1] = 2 * thin[11, :, 0]
    with pytest.raises(
        ValueError, match=r"^GrassmannGMML: X must hold matrices of 2 independent columns; those of X\[11\]"
    ):
        nearfar.GrassmannGMML().fit(thin, Y)
    with pytest.raises(ValueError, match=r"^GrassmannGMML: X must hold matrices with at least as many rows"):
        nearfar.GrassmannGMML().fit(X.transpose(0, 2, 1), Y)
    with pytest.raises(ValueError, match=r"^GrassmannGMML: "):
        nearfar.GrassmannGMML().fit(X, Y).transform(X[:, :4])
    for settings in ({"t": 2.0}, {"reg": -1.0}, {"n_rounds": 0}, {"tol": -1.0}, {"keep": "all"}):
        with pytest.raises(ValueError, match=f"^GrassmannGMML: {next(iter(settings))} "):
            nearfar.GrassmannGMML(**settings).fit(X, Y)
