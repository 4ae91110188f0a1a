"""Closed forms on arrays and data frames of Dask give what they give in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import nearfar
from nearfar.catalog import BY_NAME
from tests.estimators.test_sums import SUMMED, equal, quietly
from tests.learners import data, fit, make

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def _here() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("method", SUMMED, ids=lambda method: method.name)
def test_arrays_and_frames_give_what_memory_gives(method: Any) -> None:
    X, y = data(60)
    names = np.array(["pear", "fig", "apple"])[y]
    whole = fit(make(method), X, names)
    array = da.from_array(X, chunks=(17, 3))  # parts of columns are put together
    equal(quietly(make(method).fit, array, da.from_array(names, chunks=23)), whole, X)
    equal(quietly(make(method).fit, array, names), whole, X)
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(kind=names)
    frame = dd.from_pandas(table, npartitions=4)
    learner = quietly(make(method).fit, frame[["a", "b", "c", "d"]], frame["kind"])
    equal(learner, whole, X)
    assert list(learner.feature_names_in_) == ["a", "b", "c", "d"]


def test_weights_parts_and_empty_partitions() -> None:
    X, y = data(60)
    weight = np.random.default_rng(0).integers(0, 4, size=60)
    whole = nearfar.RCA().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    array = da.from_array(X, chunks=(20, 4))
    equal(
        nearfar.RCA().fit(array, da.from_array(y, chunks=20), sample_weight=da.from_array(weight, chunks=20)), whole, X
    )
    equal(nearfar.RCA().fit(array, y, sample_weight=weight), whole, X)
    parts = nearfar.GMML().partial_fit(array[:20], y[:20]).partial_fit(X[20:], y[20:])
    equal(parts, nearfar.GMML().fit(X, y), X)
    table = pd.DataFrame(X, columns=list("abcd")).assign(kind=y)
    frame = dd.from_pandas(table, npartitions=3)
    few = frame[frame["a"] > np.sort(X[:, 0])[40]]  # parts may be empty
    rows = X[:, 0] > np.sort(X[:, 0])[40]
    found = nearfar.GMML().fit(few[list("abcd")], few["kind"])
    equal(found, nearfar.GMML().fit(X[rows], y[rows]), X)
    Z = array.map_blocks(found.transform, chunks=(array.chunks[0], (4,)), dtype=float)
    assert_allclose(Z.compute(), found.transform(X))


def test_marks_of_the_rows_are_kept() -> None:
    X, y = data(60)
    found = nearfar.GMML().fit(da.from_array(X, chunks=(20, 4)), y)
    assert_array_equal(found._training_marks.items, nearfar.GMML().fit(X, y)._training_marks.items)


def test_errors_name_the_argument() -> None:
    X, y = data(60)
    array = da.from_array(X, chunks=(20, 4))
    for call, words in (
        (lambda: nearfar.GMML().fit(array, y[:50]), "y must hold one value per row of X, 60; got 50"),
        (lambda: nearfar.GMML().fit(array), "requires y"),
        (lambda: nearfar.GMML("auto").fit(array, y), "a Dask collection cannot be used with"),
        (lambda: nearfar.GMML().fit(array, pairs=[[0, 1]]), "requires labels y; got pairs= as well"),
        (lambda: nearfar.GMML().fit(array[:, :, None], y), "3 dimensions"),
        (lambda: nearfar.GMML().fit(da.where(array > 1, np.nan, array), y), "NaN"),
    ):
        with pytest.raises(ValueError, match=f"GMML: .*{words}"):
            call()
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=4)
    with pytest.raises(ValueError, match="y must have 4 parts, like X; got 1: repartition y"):
        nearfar.GMML().fit(frame, dd.from_pandas(pd.Series(y), npartitions=1))


@pytest.mark.slow
def test_a_cluster_of_two_workers() -> None:
    distributed = pytest.importorskip("distributed")
    X, y = data(2000)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    array = da.from_array(X, chunks=(250, 4))
    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster),
    ):
        for name in ("GMML", "RCA", "CovarianceMetric"):
            found = make(BY_NAME[name]).fit(array, da.from_array(y, chunks=250))
            equal(found, make(BY_NAME[name]).fit(X, y), X)
