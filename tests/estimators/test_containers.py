"""What learners, scores and indexes read from containers of other libraries, and what they refuse in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearfar
from nearfar.catalog import Method
from nearfar.evaluation import evaluate
from nearfar.index import Index
from tests.learners import LEARNERS, data, make

X, Y = data(30)
NAMES = ["a", "b", "c", "d"]


class WithArray:
    """Any object that NumPy reads."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(X, dtype=dtype)


def masked() -> Any:
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[3, 1] = True
    return np.ma.masked_array(X, mask=hidden)


def structured() -> Any:
    return np.array([tuple(row) for row in X], dtype=[(name, float) for name in NAMES])


def lazy() -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: X[:, k] for k, name in enumerate(NAMES)}).lazy()


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


def frame(kind: str) -> Any:
    return pytest.importorskip("pandas").DataFrame(X, columns=NAMES).astype(kind)


def arrow() -> Any:
    return pytest.importorskip("pyarrow").table({name: X[:, k] for k, name in enumerate(NAMES)})


REFUSED = {
    "masked": (masked, "is a masked array, 1 value of which is masked"),
    "structured": (structured, "is a structured array with the fields a, b, c, d"),
    "lazy": (lazy, r"must be in memory; got a LazyFrame; pass \w+.collect\(\)"),
    "dates": (lambda: X.astype("i8").astype("M8[D]"), "must hold numbers; got dates or durations"),
    "path": (lambda: "rows.csv", r"must be a table of numbers, shape \(n, d\); got str, 'rows.csv'"),
    "generator": (lambda: iter(X.tolist()), "must be a table of numbers"),
    "dict": (lambda: {"a": [1.0, 2.0]}, "must be a table of numbers"),
}
READ = {
    "read-only": read_only,
    "Fortran": lambda: np.asfortranarray(X),
    "big-endian": lambda: X.astype(">f8"),
    "lists": X.tolist,
    "objects": lambda: X.astype(object),
    "unmasked": lambda: np.ma.masked_array(X),
    "__array__": WithArray,
    "nullable": lambda: frame("Float64"),
    "columns of objects": lambda: frame("object"),
    "columns of Arrow": lambda: frame("double[pyarrow]"),
    "Arrow": arrow,
}


@pytest.mark.parametrize("method", [method for method in LEARNERS if method.takes != "views"], ids=lambda one: one.name)
def test_every_learner_refuses_what_it_would_misread(method: Method) -> None:
    learner = make(method)
    for table, message in REFUSED.values():
        with pytest.raises(ValueError, match=f"^{method.name}: X {message}"):
            learner.fit(table(), Y)


@pytest.mark.parametrize("kind", REFUSED)
def test_transforms_scores_and_indexes_refuse_the_same(kind: str) -> None:
    table, message = REFUSED[kind]
    learner = nearfar.RCA().fit(X, Y)
    for call, name in (
        (learner.transform, "RCA: X"),
        (lambda found: learner.pair_distance([[0, 1]], found), "RCA: X"),
        (lambda found: evaluate(found, Y), "embeddings"),
        (Index, "embeddings"),
        (Index(X).search, "queries"),
    ):
        with pytest.raises(ValueError, match=f"^{name} {message}"):
            call(table())


@pytest.mark.parametrize("kind", READ)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_containers_of_equal_numbers_give_equal_results(kind: str) -> None:
    table = READ[kind]()
    learner = nearfar.RCA().fit(X, Y)
    assert np.array_equal(np.asarray(nearfar.RCA().fit(table, Y).transform(table)), learner.transform(X))
    assert evaluate(table, Y).map_at_r == evaluate(X, Y).map_at_r
    assert np.array_equal(Index(table).search(table, k=3).distances, Index(X).search(X, k=3).distances)


def test_sparse_embeddings_are_refused_with_what_to_do() -> None:
    sparse = pytest.importorskip("scipy.sparse").csr_array(X)
    with pytest.raises(ValueError, match=r"^embeddings: expected a dense table, got a sparse one of shape \(30, 4\)"):
        evaluate(sparse, Y)


@pytest.mark.parametrize("kind", ["masked", "NaN", "None"])
def test_missing_labels_are_never_a_class(kind: str) -> None:
    hidden = np.arange(30) < 2
    y: Any = {
        "masked": np.ma.masked_array(Y, mask=hidden),
        "NaN": np.where(hidden, np.nan, Y),
        "None": [None if one else str(label) for one, label in zip(hidden, Y, strict=True)],
    }[kind]
    learner = nearfar.RCA().fit(X, Y)
    with pytest.raises(ValueError, match="RCA: y: 2 of 30 labels are missing"):
        nearfar.RCA().fit(X, y)
    with pytest.raises(ValueError, match="RCA: y: 2 of 30 labels are missing"):
        learner.score(X, y)
    with pytest.raises(ValueError, match="labels: 2 of 30 labels are missing"):
        evaluate(X, y)
    with pytest.raises(ValueError, match="labels: expected whole numbers or text"):
        Index(X, labels=y)


def test_masked_weights_and_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"RCA: sample_weight must .*; got a masked array, 30 values of it masked"):
        nearfar.RCA().fit(X, Y, sample_weight=np.ma.masked_array(np.ones(30), mask=True))
    with pytest.raises(ValueError, match=r"MLKR: y must hold .*; got a masked array, 1 value of it masked"):
        nearfar.MLKR().fit(X, np.ma.masked_array(X[:, 0], mask=np.arange(30) == 4))


def test_labels_in_a_column_are_labels() -> None:
    learner = nearfar.RCA().fit(X, Y)
    with pytest.warns(match="column-vector y was passed"):
        assert learner.score(X, Y[:, None]) == learner.score(X, Y)


def test_infinite_labels_of_an_index_are_refused() -> None:
    with pytest.raises(ValueError, match="labels: expected whole numbers or text"):
        Index(X, labels=np.where(Y == 0, np.inf, Y))
