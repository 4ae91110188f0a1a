"""Listed pairs of rows: blocks of their differences, and squared distances, whatever holds the rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar.numerics import pair_differences
from nearfar.numerics.pair_differences import differences, pair_squares

rng = np.random.default_rng(0)
Z = rng.normal(size=(30, 7))
I, J = rng.integers(30, size=(2, 100))

LAYOUTS = {
    "rows": np.array,
    "columns": np.asfortranarray,
    "every other": lambda Z: np.repeat(Z, 2, axis=1)[:, ::2],
    "single": lambda Z: Z.astype(np.float32),
    "integers": lambda Z: np.round(10 * Z).astype(int),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("values", [1 << 15, 100, 1])
def test_squared_distances_equal_loops(layout, values, monkeypatch):
    monkeypatch.setattr(pair_differences, "DIFFERENCE_BLOCK_VALUES", values)  # one block, blocks of 14, of one pair
    rows = LAYOUTS[layout](Z)
    found = pair_squares(rows, I, J)
    assert found.dtype == rows.dtype
    assert_allclose(found, [np.sum((rows[i] - rows[j]) ** 2) for i, j in zip(I, J, strict=True)], rtol=1e-5)


def test_near_pairs_keep_their_digits():
    near = 1e6 + np.array([[0.0], [1e-4]])
    assert_allclose(pair_squares(near, np.array([0]), np.array([1])), (near[0] - near[1]) ** 2, rtol=1e-12)


def test_blocks_are_one_after_the_other_in_one_buffer(monkeypatch):
    monkeypatch.setattr(pair_differences, "DIFFERENCE_BLOCK_VALUES", 14)
    found = [(part, D, D.copy()) for part, D in differences(Z, I, J, 30)]
    assert [len(D) for _, D, _ in found] == [30, 30, 30, 10]
    for part, D, copied in found:
        assert np.shares_memory(D, found[0][1])
        assert_array_equal(copied, Z[I[part]] - Z[J[part]])


def test_no_pairs_and_no_columns():
    none = np.zeros(0, dtype=np.intp)
    assert pair_squares(Z, none, none).shape == (0,)
    assert pair_squares(Z[:0], none, none).shape == (0,)
    assert_array_equal(pair_squares(Z[:, :0], I, J), np.zeros(100))
