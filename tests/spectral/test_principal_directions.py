"""Learners that shrink a scatter learn from principal directions about what they learn from the columns themselves."""

import inspect

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar.numerics import mahalanobis
from tests.learners import LEARNERS, fit, make

CLASSES, PER_CLASS, D = 16, 5, 160
HALF = CLASSES * PER_CLASS
SHRINKING = [
    method for method in LEARNERS if "shrinkage" in inspect.signature(getattr(nearfar, method.name)).parameters
]
OF_COLUMNS = [method for method in SHRINKING if getattr(make(method), "_in_deviations", False)]
"""Those whose default divides columns by units, so that those of the user do not matter."""


def embeddings():
    """Rows like features of a network: fewer than columns, and classes that differ in a few of many directions."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2 * CLASSES), PER_CLASS)
    place = np.arange(1, D + 1)
    means = 0.5 * rng.normal(size=(2 * CLASSES, D)) * np.exp(-place / 12)
    X = means[y] + rng.normal(size=(len(y), D)) * place**-0.5 / 3
    return X @ np.linalg.qr(rng.normal(size=(D, D)))[0], y


COLUMNS, Y = embeddings()
# the last principal directions hold noise, and are standardized, or whitened, to the size of the first
DIRECTIONS, WHITENED = (PCA(D - 10, whiten=whiten).fit_transform(COLUMNS) for whiten in (False, True))


def recall(rows):
    """Recall@1 of unseen classes."""
    near = KNeighborsClassifier(1).fit(rows, Y[HALF:]).kneighbors(None, return_distance=False)[:, 0]
    return float(np.mean(Y[HALF:][near] == Y[HALF:]))


def learned(method, X):
    return recall(fit(make(method), X[:HALF], Y[:HALF]).transform(X[HALF:]))


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.name == "DMBK" else []) for m in SHRINKING],
)
def test_principal_directions_lose_little(method):
    assert learned(method, DIRECTIONS) > learned(method, COLUMNS) - 0.1


@pytest.mark.parametrize("method", OF_COLUMNS, ids=lambda method: method.name)
def test_noise_that_was_made_as_large_as_the_classes_is_made_small(method):
    assert recall(WHITENED[HALF:]) < 0.1
    assert learned(method, WHITENED) > learned(method, COLUMNS) - 0.1


@pytest.mark.parametrize("method", OF_COLUMNS, ids=lambda method: method.name)
def test_with_the_same_weight_for_each_column_nearly_all_would_be_lost(monkeypatch, method):
    monkeypatch.setattr(mahalanobis, "LEAST_SHARE", 1.0)
    assert learned(method, DIRECTIONS) < learned(method, COLUMNS) - 0.5


def test_columns_are_not_weighed_by_groups_of_pairs():
    rng = np.random.default_rng(0)
    pairs = np.arange(200) // 2
    Z = rng.normal(size=(100, 5))[pairs] + rng.normal(size=(200, 5)) * [0.1, 0.5, 1, 2, 4]
    Z /= Z.std(axis=0)
    assert (mahalanobis.shares_of_rows(Z, pairs) == 1).all()
    assert (mahalanobis.shares_of_rows(Z, pairs // 2)[:-1] < 1).any()  # groups of four
    wide = np.hstack([Z, rng.normal(size=(200, 300))])
    assert (mahalanobis.shares_of_rows(wide, pairs) < 1).any()  # more columns than rows, most of them noise
