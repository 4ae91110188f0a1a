"""Weights that rebuild rows from their neighbors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.neighbors import graphs

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))


def test_weights_equal_the_row_by_row_solution():
    S = graphs.lle_weights(X, 4, 1e-3).toarray()
    for i in range(30):
        d = np.linalg.norm(X - X[i], axis=1)
        near = np.argsort(d)[1:5]
        N = X[near] - X[i]
        G = N @ N.T
        s = np.linalg.solve(G + 1e-3 * np.trace(G) / 4 * np.eye(4), np.ones(4))
        expected = np.zeros(30)
        expected[near] = s / s.sum()
        assert_allclose(S[i], expected, atol=1e-10)


def test_weights_sum_to_one_and_ignore_translation():
    S = graphs.lle_weights(X, 5)
    assert_allclose(S.sum(axis=1), 1)
    assert_allclose(graphs.lle_weights(X + 100, 5).toarray(), S.toarray(), atol=1e-8)


def test_duplicates_stay_finite():
    assert np.isfinite(graphs.lle_weights(np.ones((6, 2)), 2).toarray()).all()


def test_impossible_numbers_of_neighbors():
    with pytest.raises(ValueError, match=r"n_neighbors must be an integer >= 1; got 0"):
        graphs.neighbors(X, 0)
    with pytest.warns(UserWarning, match="n_neighbors=30, but there are 30 rows: each has 29 neighbors"):
        assert graphs.neighbors(X, 30).shape == (30, 29)
