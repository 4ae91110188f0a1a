"""Metrics on positive definite matrices: against loops, and what they promise beyond the laws of all learners."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar.numerics import manifolds
from tests.learners import all_pairs, distances
from tests.references import spd_gmml as loops


def covariances(n=30, d=3, seed=0):
    """Covariances of samples whose classes differ along one direction, among others that vary within classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    mix = np.linalg.qr(rng.normal(size=(d, d)))[0]
    scale = np.exp(np.c_[y - 1.0, rng.normal(size=(n, d - 1))])
    A = rng.normal(size=(n, 40, d)) * scale[:, None] @ mix
    return A.transpose(0, 2, 1) @ A / 40 + 0.01 * np.eye(d), y


pytestmark = pytest.mark.filterwarnings("ignore:logm result")
X, Y = covariances()


@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_equals_loops(t):
    learner = nearfar.SPDGMML(t).fit(X, Y)
    M = loops.metric_of_logs(loops.logarithms(X), Y, t=t)
    assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-8, atol=1e-10 * np.abs(M).max())
    pairs = all_pairs(Y)[0][::9]
    expected = [loops.distance(M, X[i], X[j]) for i, j in pairs]
    assert_allclose(learner.pair_distance(pairs, X), expected, rtol=1e-7)
    i, j = pairs[0]
    assert_allclose(learner.get_metric()(X[i], X[j]), expected[0], rtol=1e-7)


def test_vec_equals_loops():
    learner = nearfar.SPDGMML(embedding="vec").fit(X, Y)
    rows = []
    for T in loops.logarithms(X):
        rows.append([[T[i, j] * (1 if i == j else 2**0.5)] for i in range(3) for j in range(i, 3)])
    M = loops.metric_of_logs(np.array(rows), Y)
    assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-7, atol=1e-9 * np.abs(M).max())
    assert learner.transform(X).shape == (30, 6)
    assert_allclose(nearfar.SPDGMML().fit(np.array(rows)[:, :, 0], Y).transform(np.array(rows)[:, :, 0]),
                    learner.transform(X), rtol=1e-6, atol=1e-8)  # fmt: skip


def test_riccati_residual():
    learner = nearfar.SPDGMML(reg=0.0).fit(X, Y)
    M, T = learner.get_mahalanobis_matrix(), np.array(loops.logarithms(X))
    pairs, labels = all_pairs(Y)
    Z = T[pairs[:, 0]] - T[pairs[:, 1]]
    squares = Z @ Z
    S, D = squares[labels > 0].mean(axis=0), squares[labels < 0].mean(axis=0)
    assert np.abs(M @ S @ M - D).max() <= 1e-8 * np.abs(D).max()


def test_rotation_of_the_matrices_turns_the_metric():
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turned = Q @ X @ Q.T
    a, b = nearfar.SPDGMML().fit(X, Y), nearfar.SPDGMML().fit(turned, Y)
    assert_allclose(b.get_mahalanobis_matrix(), Q @ a.get_mahalanobis_matrix() @ Q.T, rtol=1e-8, atol=1e-9)
    assert_allclose(distances(b, turned), distances(a, X), rtol=1e-8)
    inverse = np.linalg.inv(X)
    assert_allclose(distances(nearfar.SPDGMML().fit(inverse, Y), inverse), distances(a, X), rtol=1e-8)


def test_identity_metric_is_log_euclidean():
    T = np.array(loops.logarithms(X))
    assert_allclose(manifolds.spd_log(X), T, atol=1e-10)
    V = manifolds.vectors(T)
    assert_allclose(np.linalg.norm(V[0] - V[1]), np.linalg.norm(T[0] - T[1]))
    assert_allclose(manifolds.matrices(V), T, atol=1e-14)


def test_equal_points_have_distance_zero_and_pairs_are_labels():
    learner = nearfar.SPDGMML().fit(X, Y)
    assert_array_equal(learner.transform(X[:1]), learner.transform(X)[:1])
    pairs, labels = all_pairs(Y)
    told = nearfar.SPDGMML().fit(X, pairs=pairs, pair_labels=labels)
    assert_allclose(distances(told, X), distances(learner, X), rtol=1e-8)
    assert set(told.predict(pairs, X)) == {-1, 1}


def test_learns_the_direction_that_tells():
    A, a = covariances(120, 4, seed=3)

    def score(transform):
        return KNeighborsClassifier(3).fit(transform(A[:60]), a[:60]).score(transform(A[60:]), a[60:])

    learner = nearfar.SPDGMML().fit(A[:60], a[:60])
    assert score(learner.transform) >= score(lambda Z: manifolds.vectors(manifolds.spd_log(Z))) + 0.05


def test_label_names_and_row_order_do_not_matter():
    order = np.random.default_rng(0).permutation(30)
    d = distances(nearfar.SPDGMML().fit(X, Y), X)
    named = nearfar.SPDGMML().fit(X[order], np.array(["pear", "fig", "apple"])[Y[order]])
    assert_allclose(distances(named, X), d, rtol=1e-8)


def test_works_inside_pipelines_saves_and_pickles(tmp_path):
    search = GridSearchCV(make_pipeline(nearfar.SPDGMML(), KNeighborsClassifier(3)), {"spdgmml__t": [0.3, 0.7]}, cv=2)
    assert search.fit(X, Y).best_score_ > 0.6
    learner = nearfar.SPDGMML(n_components=2).fit(X.astype(np.float32), Y)
    Z = learner.transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    assert Z.shape == (30, 6) == (30, len(learner.get_feature_names_out()))
    learner.save(tmp_path / "spd")
    for again in (nearfar.SPDGMML.load(tmp_path / "spd"), pickle.loads(pickle.dumps(learner))):
        assert_array_equal(again.transform(X.astype(np.float32)), Z)
    assert_array_equal(clone(learner).fit(X.astype(np.float32), Y).transform(X.astype(np.float32)), Z)


def broken(i, change):
    A = X.copy()
    A[i] = change(A[i])
    return A


@pytest.mark.parametrize(
    ("points", "word"),
    [
        (broken(7, lambda A: A + np.triu(np.ones((3, 3)), 1)), r"symmetric matrices; X\[7\] differs"),
        (broken(5, lambda A: A - 10 * np.eye(3)), r"positive definite matrices; the smallest eigenvalue of X\[5\]"),
        (broken(4, lambda A: 0 * A), r"the smallest eigenvalue of X\[4\]"),
        (broken(4, lambda A: A * np.nan), "NaN"),
        (X[:, :2], "square matrices"),
    ],
)
def test_refuses(points, word):
    with pytest.raises(ValueError, match=f"(?s)^.*{word}"):
        nearfar.SPDGMML().fit(points, Y)


def test_refuses_other_settings_and_sizes():
    for settings in ({"t": 2.0}, {"reg": -1.0}, {"embedding": "tensor"}, {"n_components": 4}):
        with pytest.raises(ValueError, match=f"^SPDGMML: {next(iter(settings))} "):
            nearfar.SPDGMML(**settings).fit(X, Y)
    learner = nearfar.SPDGMML().fit(X, Y)
    with pytest.raises(ValueError, match=r"^SPDGMML: X must hold matrices or rows of the same size as in fit"):
        learner.transform(X.reshape(30, 9))
    with pytest.raises(ValueError, match=r"^SPDGMML: X must hold positive definite matrices; .* X\[5\]"):
        learner.transform(broken(5, lambda A: A - 10 * np.eye(3)))


def test_singular_matrices_are_raised_with_a_warning():
    flat = broken(2, lambda A: np.diag([1.0, 1.0, 0.0]))
    with pytest.warns(UserWarning, match="1 matrices are singular"):
        assert np.isfinite(nearfar.SPDGMML().fit(flat, Y).transform(X)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearfar.SPDGMML().fit(X, Y)


def test_vec_is_gmml_on_the_entries_of_logarithms():
    i, j = np.triu_indices(3)
    entries = np.array(loops.logarithms(X))[:, i, j] * np.where(i == j, 1.0, 2**0.5)
    M = nearfar.GMML().fit(entries, Y).get_mahalanobis_matrix()
    found = nearfar.SPDGMML(embedding="vec").fit(X, Y).get_mahalanobis_matrix()
    assert_allclose(found, M, rtol=1e-7, atol=1e-9 * np.abs(M).max())


def test_one_layer_of_layers_is_gmml():
    rows = X.reshape(len(X), -1)[:, :3]
    layered = nearfar.LayeredGMML(n_layers=1).fit(rows, Y)
    assert_allclose(distances(layered, rows), distances(nearfar.GMML().fit(rows, Y), rows), rtol=1e-7, atol=1e-12)
