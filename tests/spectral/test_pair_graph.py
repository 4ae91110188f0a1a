"""Pairs as edges of a graph: each measured once, by differences or by products of all rows, and summed at its ends."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearfar.numerics import pair_differences
from nearfar.numerics.pair_differences import Edges
from nearfar.spectral.scatter.mmc import distance_sum

rng = np.random.default_rng(0)


def graph(n, share):
    a, b = np.nonzero(np.triu(rng.random((n, n)) < share, 1))
    swap = rng.random(len(a)) < 0.5  # the ends of a pair come in any order
    return Edges(np.where(swap, b, a), np.where(swap, a, b), n)


@pytest.mark.parametrize("rows", [7, 128])
def test_squares_from_products_equal_those_of_differences(rows, monkeypatch):
    monkeypatch.setattr(pair_differences, "GRAPH_BLOCK_ROWS", rows)
    Z, found = 100 + rng.normal(size=(60, 40)), graph(60, 0.3)
    assert_allclose(
        pair_differences.dense_squared_distances(Z, found.a, found.b),
        pair_differences.pair_squares(Z, found.a, found.b),
        rtol=1e-11,
    )


def test_differences_of_edges_are_those_of_pairs():
    Y, (i, j), a = (
        rng.normal(size=(9, 4)),
        rng.permuted(np.tile(np.arange(9), (20, 1)), axis=1)[:, :2].T,
        rng.random(20),
    )
    few, many = distance_sum.Differences(Y, i, j, a), distance_sum.DifferencesOfEdges(Y, i, j, a)
    F = rng.normal(size=(4, 4))
    assert_allclose(many.weight @ many.squares(F), few.weight @ few.squares(F))
    assert_allclose(many.outer(many.weight), few.outer(few.weight))


def test_near_pairs_far_from_the_others_keep_their_digits():
    Z, found = rng.normal(size=(60, 40)), graph(60, 0.9)
    Z[30:] = 1e8 + 1e-3 * Z[30:]
    expected = pair_differences.pair_squares(Z, found.a, found.b)
    assert expected.min() < 1
    assert_allclose(pair_differences.dense_squared_distances(Z, found.a, found.b), expected, rtol=1e-9)


@pytest.mark.parametrize(("share", "columns", "many"), [(0.3, 40, True), (0.01, 40, False), (0.05, 4, False)])
def test_products_are_taken_where_edges_are_many_for_their_rows(share, columns, many, monkeypatch):
    taken, measure = [], pair_differences.dense_squared_distances

    def counted(*given):
        taken.append(True)
        return measure(*given)

    monkeypatch.setattr(pair_differences, "dense_squared_distances", counted)
    Z, found = rng.normal(size=(80, columns)), graph(80, share)
    assert_allclose(found.squares(Z), np.sum((Z[found.a] - Z[found.b]) ** 2, axis=1), rtol=1e-11)
    assert bool(taken) == many


@pytest.mark.parametrize("columns", [4, 40])
@pytest.mark.parametrize("idle", [0.0, 0.9])
def test_laplacian_by_edges(columns, idle):
    Y, found = rng.normal(size=(30, columns)), graph(30, 0.5)
    weight = rng.normal(size=len(found.a)) * (rng.random(len(found.a)) >= idle)
    expected = np.zeros_like(Y)
    for a, b, w in zip(found.a, found.b, weight, strict=True):
        expected[a] += w * (Y[a] - Y[b])
        expected[b] += w * (Y[b] - Y[a])
    for _ in range(2):  # edges that weigh nothing once are there the next time
        assert_allclose(found.laplacian_times(weight, Y), expected, atol=1e-12)
        assert_allclose(found.laplacian_times(np.ones(len(weight)), Y).sum(axis=0), 0, atol=1e-11)


def test_graph_holds_few_bytes_per_edge():
    n = 1000
    a, b = np.triu_indices(n, 1)
    tracemalloc.start()
    try:
        edges = Edges(a, b, n)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # each edge: its number in the list, two ends, and two entries (edge and column) of the matrix, in 4 bytes each
    assert held / len(edges.a) < 36
    assert peak / len(edges.a) < 80


def test_repeated_pairs_are_one_edge():
    i = np.array([3, 0, 1, 3, 2])
    j = np.array([1, 2, 3, 1, 0])
    edges = Edges(i, j, 5)
    assert np.stack([edges.a, edges.b], axis=1).tolist() == [[0, 2], [1, 3]]
    assert edges.of.tolist() == [1, 0, 1, 1, 0]
