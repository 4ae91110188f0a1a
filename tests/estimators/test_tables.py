"""Data frames of pandas and polars in and out: names, index and values are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearfar
from nearfar.catalog import BY_NAME, Method
from nearfar.estimators import sums
from tests.estimators.test_sums import SUMMED, quietly
from tests.learners import LEARNERS, data, fit, make

COLUMNS = ["petal length", "petal width", "sepal length", "sepal width"]
FRAMES = [method for method in LEARNERS if method.takes != "views"]


def frame_of(kind: str, X: np.ndarray, **settings: Any) -> Any:
    module = pytest.importorskip(kind)
    return module.DataFrame({name: X[:, k] for k, name in enumerate(COLUMNS)}, **settings)


@pytest.mark.parametrize("method", FRAMES[::4], ids=lambda method: method.name)
def test_frames_of_pandas_give_frames_with_names(method: Method) -> None:
    X, y = data(30)
    index = [f"flower {k}" for k in range(30)]
    frame = frame_of("pandas", X, index=index)
    learner = fit(make(method), frame, y)
    assert list(learner.feature_names_in_) == COLUMNS
    plain = learner.transform(frame)
    assert isinstance(plain, np.ndarray)
    out = learner.set_output(transform="pandas").transform(frame)
    assert list(out.index) == index
    assert_allclose(out.to_numpy(), plain)
    assert list(out.columns) == [f"{method.name.lower()}{k}" for k in range(plain.shape[1])]
    with pytest.raises(ValueError, match="feature names should match"):
        learner.transform(frame[COLUMNS[::-1]])


@pytest.mark.parametrize("method", FRAMES[::12] + SUMMED[:1], ids=lambda method: method.name)
def test_frames_of_polars_give_frames_with_names(method: Method) -> None:
    polars = pytest.importorskip("polars")
    X, y = data(30)
    frame = frame_of("polars", X)
    learner = fit(make(method), frame, polars.Series(y))
    assert list(learner.feature_names_in_) == COLUMNS
    assert_allclose(learner.transform(frame), fit(make(method), X, y).transform(X), rtol=1e-9)
    out = learner.set_output(transform="polars").transform(frame)
    assert isinstance(out, polars.DataFrame)
    assert out.columns == list(learner.get_feature_names_out())
    assert_allclose(out.to_numpy(), np.asarray(fit(make(method), X, y).transform(X)), rtol=1e-9)
    assert learner.score(frame, y) == pytest.approx(fit(make(method), X, y).score(X, y))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("written_out", [0, 1 << 16])  # the most values of a table that is made dense
@pytest.mark.parametrize("method", SUMMED, ids=lambda method: method.name)
def test_frames_of_sparse_columns_give_what_dense_ones_give(method: Method, written_out: int, monkeypatch: Any) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(sums, "WRITTEN_OUT_VALUES", written_out)
    X, y = data(40)
    dense = frame_of("pandas", np.where(np.abs(X) < 1, 0.0, X))
    sparse = dense.astype(pandas.SparseDtype(np.float64, 0.0))
    learner = quietly(make(method).fit, sparse, y)
    expected = quietly(make(method).fit, dense, y)
    assert list(learner.feature_names_in_) == COLUMNS
    for frame in (dense, sparse):
        Z = learner.transform(frame)
        assert isinstance(Z, np.ndarray)
        assert_allclose(Z @ Z.T, expected.transform(dense) @ expected.transform(dense).T, rtol=1e-6, atol=1e-6)
    assert learner.score(sparse, y) == pytest.approx(expected.score(dense, y))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_parts_and_weights_of_frames(kind: str) -> None:
    X, y = data(30)
    frame = frame_of(kind, X)
    parts = nearfar.GMML()
    for rows in (slice(0, 11), slice(11, 30)):
        quietly(parts.partial_fit, frame[rows], y[rows])
    whole = nearfar.GMML().fit(frame, y)
    assert_allclose(parts.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix())
    weight = np.arange(30) % 3
    weighted = nearfar.GMML().fit(frame, y, sample_weight=weight)
    assert list(weighted.feature_names_in_) == COLUMNS
    repeated = nearfar.GMML().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert_allclose(weighted.get_mahalanobis_matrix(), repeated.get_mahalanobis_matrix())
    other = frame_of(kind, X)
    other.columns = ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match=r"GMML: .*feature names should match"):
        parts.partial_fit(other, y)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_of_words_are_named(kind: str) -> None:
    module = pytest.importorskip(kind)
    X, y = data(30)
    frame = module.DataFrame({"width": X[:, 0], "color": ["red", "green", "blue"] * 10})
    for name in ("GMML", "LMNN"):
        with pytest.raises(ValueError, match=f"{name}: X: 1 column with values that are not numbers .'color'"):
            make(BY_NAME[name]).fit(frame, y)
