"""Columns that are constant but for rounding count as constant, wherever columns are standardized."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

import nearfar
from nearfar.data import Dataset
from nearfar.data.checks.columns import remarks_on_columns, scale_warning
from nearfar.estimators import TableEncoder
from nearfar.numerics.standard_columns import standard, standardized
from nearfar.workflows.fitting import fit_standardized

DTYPES = [np.float64, np.float32]


def with_column(column, dtype=np.float64):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return np.column_stack([rng.normal(size=(60, 3)) + y[:, None], column]).astype(dtype), y


def sums(size=0.3):
    """0.3 and 0.1 + 0.2, which is one unit in the last place more, in turns; the last place of float32 differs."""
    return size * (1 + 5e-13 * (np.arange(60) % 7 > 2))


@pytest.mark.parametrize("size", [0.3, -1e-20, 1e30])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_no_deviation(size, dtype):
    column = (sums(size) if dtype == np.float64 else size * (1 + 1e-7 * (np.arange(60) % 7 > 2))).astype(dtype)
    assert np.ptp(column) > 0
    X, _ = with_column(column, dtype)
    assert standard(X)[1][3] == 1
    rows, mean, scale = standardized(X)
    assert_array_equal(rows[:, 3], 0)
    assert_allclose(rows[:, :3], ((X - mean) / scale)[:, :3], rtol=1e-5, atol=1e-5)
    X[0, 3] *= 1.01
    assert standard(X)[1][3] != 1
    assert standardized(X)[0][:, 3].std() == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("name", ["RCA", "DCA", "FisherMetric", "LFDA", "AutoMetric"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_column_of_rounding_changes_no_distance(name, scaled):
    distances = []
    for column in (np.full(60, 0.3), sums()):
        X, y = with_column(column)
        learner = getattr(nearfar, name)()
        if scaled:
            fit_standardized(learner, X, Dataset.from_array("rows", X, y))
        else:
            learner.fit(X, y)
        distances.append(pdist(learner.transform(X)))
    assert_allclose(distances[1], distances[0], rtol=1e-6, atol=1e-9)


def test_tables_and_remarks_call_such_a_column_constant():
    X, y = with_column(sums())
    assert [column.kind for column in TableEncoder().fit(X).columns_] == ["numbers"] * 3 + ["not used"]
    X, y = with_column(0.3 * (1 + 1e-7 * (np.arange(60) % 7 > 2)), np.float32)
    rows = Dataset.from_array("rows", X, y)
    assert scale_warning(rows) == ""
    assert any("1 feature is constant" in remark for remark in remarks_on_columns(rows))
