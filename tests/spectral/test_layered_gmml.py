"""What layers of geometric means promise beyond the laws of all learners."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearfar
from nearfar.numerics import manifolds
from tests.learners import data, distances, fit
from tests.references.low_rank_gmml import mean, scatters

X, Y = data()


def linear(**settings):
    return fit(nearfar.LayeredGMML(**{"activation": "identity", "reg": 0.0, "normalize": False, **settings}), X, Y)


def composed(learner):
    L = np.eye(4)
    for layer in learner.layers_:
        L = layer @ L
    return L.T @ L


@pytest.mark.parametrize("t", [0.3, 0.5])
def test_one_layer_is_the_geometric_mean(t):
    d = distances(nearfar.GMML(t).fit(X, Y), X)
    assert_allclose(distances(nearfar.LayeredGMML(n_layers=1, t=t).fit(X, Y), X), d, rtol=1e-8)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_linear_layers_only_give_a_power_of_one_metric(depth):
    W = mean(*scatters(X, Y, 0.0))
    expected = np.linalg.matrix_power(W, depth)
    assert_allclose(composed(linear(n_layers=depth)), expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    scaled = composed(linear(n_layers=depth, normalize=True))
    assert_allclose(scaled / np.trace(scaled), expected / np.trace(expected), rtol=1e-6, atol=1e-8)


def test_linear_layers_find_the_same_metric_again():
    learner = linear()
    first, second = (L.T @ L for L in learner.layers_)
    # rows of the first layer are eigenvectors: its outputs' metric is diagonal and holds the same eigenvalues
    assert_allclose(np.linalg.eigvalsh(second), np.linalg.eigvalsh(first), rtol=1e-8)


def test_depth_without_a_nonlinearity_brings_a_warning():
    with pytest.warns(UserWarning, match="2 linear layers only give a power of one metric"):
        nearfar.LayeredGMML(activation="identity").fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearfar.LayeredGMML(activation="identity", dims=[2]).fit(X, Y)
        nearfar.LayeredGMML(activation="identity", n_layers=1).fit(X, Y)
        nearfar.LayeredGMML().fit(X, Y)


@pytest.mark.parametrize("activation", ["tanh", "relu", "reeig"])
def test_nonlinearities_give_what_no_power_gives(activation):
    A = X[:, :3]
    d = distances(fit(nearfar.LayeredGMML(activation=activation), A, Y), A)
    plain = distances(fit(nearfar.LayeredGMML(activation="identity"), A, Y), A)
    assert np.abs(d / d.mean() - plain / plain.mean()).max() > 1e-2


def test_riccati_residual_of_every_layer():
    learner = nearfar.LayeredGMML(n_layers=3, reg=0.0).fit(X, Y)
    Z = X
    for k, (L, center, scale) in enumerate(zip(learner.layers_, learner.means_, learner.scales_, strict=True)):
        Z = np.tanh(Z) if k else Z
        S, D = scatters(Z, Y, 0.0)
        W = L.T @ L
        assert np.abs(W @ S @ W - D).max() <= 1e-8 * np.abs(D).max()
        i, j = 0, 1
        assert_allclose(np.sum((L @ (Z[i] - Z[j])) ** 2), (Z[i] - Z[j]) @ W @ (Z[i] - Z[j]))
        Z = (Z - center) @ L.T / scale
        if k < 2:
            assert_allclose(np.mean(Z**2), 1.0)
    assert_allclose(Z, learner.transform(X), rtol=1e-10, atol=1e-12)


def test_rectified_outputs_are_semi_definite_matrices():
    learner = nearfar.LayeredGMML(activation="reeig").fit(X[:, :3], Y)
    Z = (X[:, :3] - learner.means_[0]) @ learner.layers_[0].T / learner.scales_[0]
    T = manifolds.rectified(manifolds.matrices(Z), 1e-4)
    assert np.linalg.eigvalsh(T).min() >= 1e-4 - 1e-12
    assert_allclose(manifolds.rectified(T, 1e-4), T, atol=1e-12)
    # the nearest matrix of that kind: what was cut off is orthogonal to what stays
    cut = T - manifolds.matrices(Z)
    assert_allclose(np.sum(cut * (T - 1e-4 * np.eye(2)), axis=(1, 2)), 0, atol=1e-10)
    assert_allclose((manifolds.vectors(T) - learner.means_[1]) @ learner.layers_[1].T, learner.transform(X[:, :3]))


def test_dims_and_components():
    learner = nearfar.LayeredGMML(1, n_layers=3, dims=(3, 2)).fit(X, Y)
    assert [L.shape for L in learner.layers_] == [(3, 4), (2, 3), (1, 2)]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_layers": 0}, "n_layers must be"),
        ({"dims": [2, 2]}, "dims must hold an integer >= 1 for each layer but the last, 1 in"),
        ({"dims": [5]}, "layer 1 has 4 inputs; got 5 outputs"),
        ({"dims": [2], "n_components": 3}, "layer 2 has 2 inputs; got 3 outputs"),
        ({"activation": "sine"}, "activation must be one of"),
        ({"activation": "reeig"}, "rows must hold d .* values of a symmetric matrix, .*; got 4"),
        ({"t": 2.0}, "t must be"),
    ],
)
def test_refuses(settings, word):
    with pytest.raises(ValueError, match=f"^LayeredGMML: {word}"):
        nearfar.LayeredGMML(**settings).fit(X, Y)
