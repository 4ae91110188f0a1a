"""Near pairs equal those found by listing all pairs; groups are the components that they make."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearfar.neighbors import near_pairs
from nearfar.neighbors.near_pairs import (
    Nearness,
    count_by_class,
    duplicate_distance,
    groups_within,
    links_within,
    nearest_pairs,
    pairs_within,
)
from nearfar.numerics.distances import DISTANCES, pair_distances

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4)) + 30
X[7] = X[90]
X[8] = X[90]
X[20] = X[21] + 1e-9
I, J = np.triu_indices(len(X), 1)


def listed(distance):
    d = pair_distances(X, X, I, J, distance)
    order = np.lexsort((J, I, d))
    return I[order], J[order], d[order]


@pytest.fixture(params=[None, 500, 320])
def _blocks(request, monkeypatch):
    """In one block; in many, of 5 rows with 100 others, or of 4 rows with 80 others, at a time."""
    if request.param:
        monkeypatch.setattr(near_pairs, "PAIR_BLOCK_CELLS", request.param)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.usefixtures("_blocks")
def test_pairs_within_are_those_of_the_list(distance):
    i, j, d = listed(distance)
    for count in (0, 3, 4, 60, len(i)):
        within = d[count - 1] if count else 0.0
        found = pairs_within(X, within, distance=distance)
        n = np.searchsorted(d, within, side="right")
        assert n >= count
        assert_array_equal(found.i, i[:n])
        assert_array_equal(found.j, j[:n])
        assert_array_equal(found.distances, d[:n])


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("k", [1, 3, 50, 10_000])
@pytest.mark.usefixtures("_blocks")
def test_nearest_pairs_are_those_of_the_list(distance, k):
    found = nearest_pairs(X, k, distance=distance)
    for mine, all_of_them in zip(found, listed(distance), strict=True):
        assert_array_equal(mine, all_of_them[:k])


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("scale", [1e-60, 1e-9, 1.0, 1e40])
def test_rows_that_float32_cannot_tell_apart(distance, scale):
    x = scale * (1 + 1e-10 * np.random.default_rng(0).normal(size=(60, 5)))
    i, j = np.triu_indices(60, 1)
    d = pair_distances(x, x, i, j, distance)
    order = np.lexsort((j, i, d))
    for found in (nearest_pairs(x, 40, distance=distance), pairs_within(x, np.sort(d)[39], distance=distance)):
        assert_array_equal(found.distances[:40], d[order][:40])
        assert_array_equal(found.i[:40], i[order][:40])


def test_groups_are_joined_by_chains():
    x = np.array([[0.0], [9.0], [1.0], [2.0], [5.0], [9.5], [20.0]])
    found = groups_within(x, 1.0)
    assert found.numbers.tolist() == [0, 1, 0, 0, -1, 1, -1]
    assert_allclose(found.distances, [1, 0.5, 1, 1, np.inf, 0.5, np.inf])


def test_groups_take_any_number_of_copies():
    x = np.concatenate([np.zeros((30_000, 2)), [[1.0, 1.0], [3.0, 0.0], [1.0, 1.5]]])
    found = groups_within(x, 0.6)
    assert_array_equal(found.numbers, [0] * 30_000 + [1, -1, 1])
    assert_allclose(found.distances, [0] * 30_000 + [0.5, np.inf, 0.5])
    assert (groups_within(x, 0.6, distance="cosine").numbers[:30_000] == 0).all()
    with pytest.raises(ValueError, match=r"within: more than 2,000,000 pairs lie within 0"):
        pairs_within(x, 0.0)


def test_equal_rows_without_number_are_listed_from_the_first(monkeypatch):
    monkeypatch.setattr(near_pairs, "PAIR_BLOCK_CELLS", 40)
    blocks, block = [], near_pairs.Nearness.pairs
    monkeypatch.setattr(near_pairs.Nearness, "pairs", lambda *given: blocks.append(given) or block(*given))
    found = nearest_pairs(np.ones((30, 3)), 4)
    assert (found.i.tolist(), found.j.tolist(), found.distances.tolist()) == ([0] * 4, [1, 2, 3, 4], [0.0] * 4)
    assert len(blocks) == 1


@pytest.mark.usefixtures("_blocks")
def test_the_number_of_pairs_listed_at_once_binds_only_where_none_is_asked_for(monkeypatch):
    monkeypatch.setattr(near_pairs, "MAX_LISTED_PAIRS", 50)
    assert len(nearest_pairs(X, 50).i) == 50
    with pytest.raises(ValueError, match=r"^within: more than 50 pairs lie within 100"):
        pairs_within(X, 100.0)


def test_one_row_is_near_nothing():
    assert len(pairs_within([[1.0, 2.0]], 5.0).i) == 0
    assert len(nearest_pairs([[1.0, 2.0]], 5).i) == 0
    assert groups_within([[1.0, 2.0]], 5.0).numbers.tolist() == [-1]


@pytest.mark.parametrize("within", [-1.0, float("nan")])
def test_a_distance_below_zero_is_refused(within):
    with pytest.raises(ValueError, match=r"^within: expected a distance of at least 0, got"):
        pairs_within(X, within)


def test_bad_counts_and_distances_are_refused():
    with pytest.raises(ValueError, match=r"^k: expected 1 to 2,000,000, got 0"):
        nearest_pairs(X, 0)
    with pytest.raises(ValueError, match=r"^distance: expected one of"):
        pairs_within(X, 1.0, distance="taxi")


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_rows_are_prepared_in_little_more_than_one_copy(distance):
    rows = np.ones((2**15, 256), np.float32)
    tracemalloc.start()
    try:
        Nearness(rows, distance)
        assert tracemalloc.get_traced_memory()[1] < 3 * rows.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("copies", [1, 4])
def test_the_distance_of_planted_duplicates_is_suggested(distance, copies):
    drawn = np.random.default_rng(1)
    rows = drawn.normal(size=(200, 12))
    planted = [rows[:10] + 1e-3 * drawn.normal(size=(10, 12)) for _ in range(copies)]
    found = duplicate_distance(np.concatenate([rows, *planted]), distance=distance)
    assert found is not None
    numbers = groups_within(np.concatenate([rows, *planted]), found, distance=distance).numbers
    assert (numbers >= 0).nonzero()[0].tolist() == [*range(10), *range(200, 200 + 10 * copies)]


@pytest.mark.parametrize("distance", DISTANCES)
def test_no_distance_is_suggested_where_no_pair_stands_out(distance):
    found = [
        duplicate_distance(np.random.default_rng(seed).normal(size=(150, 16)), distance=distance) for seed in range(5)
    ]
    assert found == [None] * 5
    assert duplicate_distance(np.eye(6)[:, :4], distance="euclidean") is None  # too few rows to compare with
    assert duplicate_distance(np.ones((9, 2)), distance=distance) == 0


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.usefixtures("_blocks")
def test_pairs_of_one_class_are_counted_as_in_the_list(distance, apart):
    labels = np.random.default_rng(1).integers(-1, 6, len(X))
    labels[[7, 8, 90]] = 2, 2, 3  # three equal rows of two classes
    groups = np.random.default_rng(2).integers(0, 40, len(X)) if apart else None
    d = pair_distances(X, X, I, J, distance)
    counted = (labels[I] >= 0) & (labels[J] >= 0)
    if groups is not None:
        counted &= groups[I] != groups[J]
    same = counted & (labels[I] == labels[J])
    for within in (0.0, *np.quantile(d, [0.01, 0.3, 1.0])):
        near = d <= within
        found = count_by_class(links_within(X, within, distance=distance, apart=groups), labels)
        assert found == ((counted & near).sum(), (same & near).sum(), same.sum())
