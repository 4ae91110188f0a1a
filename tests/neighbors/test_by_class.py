"""Neighbors by class equal those of plain loops, also where there are few, equal or unlabeled rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from nearfar.neighbors import by_class


def loops(X, labels, k, same):
    found = np.full((len(X), k), -1)
    for i in np.flatnonzero(labels >= 0):
        allowed = [j for j in range(len(X)) if labels[j] >= 0 and j != i and (labels[j] == labels[i]) == same]
        ranked = sorted(allowed, key=lambda j: (((X[i] - X[j]) ** 2).sum(), j))[:k]
        found[i, : len(ranked)] = ranked
    return found


@pytest.mark.parametrize("large", [0, 5, 512])  # a search for each class, for some, or one for all
@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("integers", [False, True])
def test_neighbors_are_those_of_the_loops(monkeypatch, large, k, integers):
    monkeypatch.setattr(by_class, "LARGE_CLASS_ROWS", large)
    rng = np.random.default_rng(k)
    X = rng.normal(size=(34, 2))
    if integers:
        X = np.rint(X)  # many ties
    labels = rng.permutation(np.repeat([-1, 0, 1, 2, 3, 4], [4, 1, 2, 5, 9, 13]))
    assert_array_equal(by_class.nearest_of_class(X, labels, k), loops(X, labels, k, same=True))
    assert_array_equal(by_class.nearest_of_others(X, labels, k), loops(X, labels, k, same=False))


def test_a_single_class_has_no_others():
    X = np.arange(6.0).reshape(3, 2)
    assert (by_class.nearest_of_others(X, np.zeros(3, dtype=np.intp), 2) == -1).all()
    assert (by_class.nearest_of_class(X, np.arange(3), 2) == -1).all()
