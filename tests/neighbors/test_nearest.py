"""Exact neighbors: against plain loops, on ties, duplicates, collapsed and badly scaled rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.neighbors import blocks
from nearfar.neighbors import nearest as neighbors
from nearfar.neighbors.blocks import Product, Space
from nearfar.neighbors.nearest import nearest
from nearfar.numerics import distances
from nearfar.numerics.distances import as_rows, distance_blocks, pair_distances
from nearfar.numerics.pair_differences import squared_distances
from tests.references.evaluation import rankings

DISTANCES = ("cosine", "euclidean", "sqeuclidean")


def table(n, d, seed=0, integers=False):
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (n, d)).astype(float) if integers else rng.standard_normal((n, d))


def expected(x, y, k, distance, leave_one_out=False):
    return np.array([order[:k] for order in rankings(x.tolist(), y.tolist(), distance, leave_one_out)])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 4), st.integers(0, 10**6), st.booleans(), st.data())
def test_equals_the_plain_ranking(n, m, d, seed, integers, data):
    x, y = table(n, d, seed, integers), table(m, d, seed + 1, integers)
    distance = data.draw(st.sampled_from(DISTANCES))
    k = data.draw(st.integers(1, m))
    np.testing.assert_array_equal(nearest(x, y, k, distance=distance)[1], expected(x, y, k, distance))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("k", [1, 7, 299])
def test_leave_one_out_with_many_columns(distance, k):
    x = table(300, 5, integers=True)
    found = nearest(x, x, k, distance=distance, exclude_self=True)[1]
    np.testing.assert_array_equal(found, expected(x, x, k, distance, True))
    assert not (found == np.arange(300)[:, None]).any()


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_are_those_of_the_indices(distance):
    x, y = table(20, 6), table(50, 6, 1)
    values, index = nearest(x, y, 50, distance=distance)
    whole = np.concatenate([block for _, block in distance_blocks(x, y, distance, block=7)])
    np.testing.assert_allclose(values, np.take_along_axis(whole, index, 1), atol=1e-12)
    assert (np.diff(values, axis=1) >= -1e-12).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_does_not_depend_on_the_block_or_the_order_of_queries(distance):
    x = np.repeat(table(60, 3, integers=True), 3, axis=0)
    whole = nearest(x, x, 9, distance=distance)
    for block in (1, 7, 64):
        np.testing.assert_array_equal(nearest(x, x, 9, distance=distance, block=block)[1], whole[1])
    np.testing.assert_array_equal(nearest(x[::-1], x, 9, distance=distance)[1], whole[1][::-1])


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_tie_by_index(distance, dtype):
    y = np.tile(table(1, 37).astype(dtype), (400, 1))
    y[200:] += table(1, 37, 2).astype(dtype)
    found = nearest(y[:3], y, 200, distance=distance)[1]
    np.testing.assert_array_equal(found, np.tile(np.arange(200), (3, 1)))


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_collapsed_rows_with_noise_are_finished_in_float64(distance):
    x = 1.0 + 1e-5 * table(900, 4)
    if distance == "euclidean":
        x[0] = 1e6  # an outlier makes the float32 product useless
    order = nearest(x, x, 3, distance=distance)[1][:40]
    np.testing.assert_array_equal(order, expected(x[:40], x, 3, distance))
    space = Space(x, x, distance)
    product = Product(space, np.float32)
    assert distance == "cosine" or not neighbors.rank_block(product, np.arange(40), 3).done.all()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_float32_bound_holds(distance, shift):
    x = (table(64, 33) + shift).astype(np.float32)
    space = Space(x, x, distance)
    block = Product(space, np.float32).block(np.arange(64))
    i, j = np.divmod(np.arange(64 * 64), 64)
    exact = space.exact(i, j).reshape(64, 64)
    gap = block.values[:, :64].astype(float) - exact
    error = np.ptp(gap, axis=1)  # the constant per query drops out
    assert (error <= block.slack).all()


def test_cosines_of_the_last_pass_are_the_exact_ones():
    x = np.concatenate([table(40, 6, integers=True), np.zeros((2, 6))])
    space = Space(x, x, "cosine")
    block = Product(space, np.float64).block(np.arange(42))
    i, j = np.divmod(np.arange(42 * 42), 42)
    assert np.abs(block.values[:, :42].ravel() - space.exact(i, j)).max() <= blocks.GRID


def test_zero_rows_have_cosine_distance_one():
    values, index = nearest([[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0]], 3, distance="cosine")
    np.testing.assert_array_equal(values, [[1, 1, 1], [0, 1, 2]])
    np.testing.assert_array_equal(index, [[0, 1, 2], [2, 0, 1]])


def test_small_memory_gives_the_same(monkeypatch):
    x = table(200, 8)
    whole = nearest(x, x, 5, distance="cosine")[1]
    monkeypatch.setattr(neighbors, "BLOCK_MEMORY_BYTES", 1)
    np.testing.assert_array_equal(nearest(x, x, 5, distance="cosine")[1], whole)


def test_rows_of_any_kind():
    torch = pytest.importorskip("torch")
    x = torch.randn(9, 4, requires_grad=True)
    np.testing.assert_array_equal(nearest(x, x, 4)[1], nearest(x.detach().numpy(), x.tolist(), 4)[1])
    assert as_rows(x.bfloat16()).dtype == np.float32
    assert as_rows(x.half()).dtype == np.float32
    assert as_rows([[1, 2]]).dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[1.0], [2.0]], 3), "k: expected 1 to 2"),
        (([[1.0]], [[1.0, 2.0]], 1), "gallery: expected 1 columns"),
        (([1.0], [[1.0]], 1), "queries: expected a table"),
        (([["a"]], [[1.0]], 1), "queries: expected real numbers"),
        (([[np.nan], [1.0], [np.inf]], [[1.0]], 1), r"2 of 3 rows hold NaN or infinite values \(first rows: 0, 2\)"),
        (([[1.0, -np.inf], [1.0, 2.0]], [[1.0, 1.0]], 1), r"1 of 2 rows hold NaN or infinite values \(first rows: 0\)"),
        (([[1e80]], [[1.0]], 1), "above 1e70"),
        (([[-1e80, 1.0]], [[1.0, 1.0]], 1), "above 1e70"),
        ((np.empty((0, 3)), np.ones((2, 3)), 1), "expected a table"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        nearest(*arguments)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="distance: expected one of cosine, euclidean, sqeuclidean, got 'manhattan'"):
        nearest([[1.0]], [[1.0]], 1, distance="manhattan")
    for listed in (pair_distances, lambda x, y, *_, **how: list(distance_blocks(x, y, **how))):
        with pytest.raises(ValueError, match="distance: expected one of cosine, euclidean, sqeuclidean, got 'dot'"):
            listed(np.ones((1, 2)), np.ones((1, 2)), np.array([0]), np.array([0]), distance="dot")
    with pytest.raises(ValueError, match="k: expected 1 to 1"):
        nearest([[1.0], [2.0]], [[1.0], [2.0]], 2, exclude_self=True)
    with pytest.raises(ValueError, match="exclude_self: needs"):
        nearest([[1.0]], [[1.0], [2.0]], 1, exclude_self=True)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
def test_blocks_of_distances_are_those_of_the_pairs_and_none_is_negative(distance):
    x = table(50, 7)
    i, j = np.divmod(np.arange(50 * 50), 50)
    for block in (7, 1024):
        rows, tables = zip(*distance_blocks(x, x, distance, block), strict=True)
        assert [row for part in rows for row in range(part.start, part.stop)] == list(range(50))
        found = np.concatenate(tables)
        np.testing.assert_allclose(found.ravel(), pair_distances(x, x, i, j, distance), atol=1e-6)
        assert found.min() >= 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_few_pairs_have_the_cosines_that_they_have_among_all_without_reading_all_rows(dtype, monkeypatch):
    x = table(60, 37).astype(dtype)
    x[5] = 0
    i, j = np.divmod(np.arange(60 * 60), 60)
    every = pair_distances(x, x, i, j, "cosine")
    read = []
    row_squares = distances.row_squares
    monkeypatch.setattr(distances, "row_squares", lambda x: read.append(len(x)) or row_squares(x))
    few = np.random.default_rng(0).integers(0, 60 * 60, (4, 14))
    np.testing.assert_array_equal(pair_distances(x, x, i[few], j[few], "cosine"), every[few])
    assert read == []


def test_squared_distances_equal_the_pairs():
    x, y = table(15, 4) + 100, table(11, 4, 1) + 100
    i, j = np.divmod(np.arange(15 * 11), 11)
    pairs = pair_distances(x, y, i, j, "sqeuclidean").reshape(15, 11)
    np.testing.assert_allclose(pairs, ((x[:, None] - y) ** 2).sum(-1))
    np.testing.assert_allclose(squared_distances(x, y), pairs, atol=1e-10)
    assert squared_distances(x, x).min() >= 0
