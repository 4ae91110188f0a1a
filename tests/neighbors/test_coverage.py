"""Rows that represent others are those of the plain greedy choice."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from nearfar.neighbors import coverage
from nearfar.neighbors.coverage import representatives
from nearfar.numerics.distances import DISTANCES, unit_rows


def check_greedy(found, rows, chosen, weights, distance):
    """After each choice, the weighted sum of squared distances to the nearest chosen row is as small as can be."""
    points = unit_rows(rows) if distance == "cosine" else rows
    squares = np.square(points[:, None] - points).sum(axis=2)
    known = list(chosen)
    for x in found.tolist():
        costs = [float(weights @ squares[:, [*known, other]].min(axis=1)) for other in range(len(rows))]
        assert x not in known
        assert costs[x] <= min(costs) * (1 + 1e-12)
        known.append(x)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("cells", [1 << 24, 90])
def test_choices_are_those_of_plain_loops(distance, cells, monkeypatch):
    monkeypatch.setattr(coverage, "COVERED_CELLS", cells)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3)) + 5
    weights = rng.uniform(size=40)
    for chosen in ([], [3, 17]):
        for w in (None, weights):
            found = representatives(rows, 9, chosen=np.array(chosen, dtype=int), weights=w, distance=distance)
            assert len(found) == 9
            check_greedy(found, rows, chosen, np.ones(40) if w is None else w, distance)


def test_choices_do_not_depend_on_how_many_are_made():
    rows = np.random.default_rng(1).normal(size=(200, 4))
    assert_array_equal(representatives(rows, 30)[:10], representatives(rows, 10))
    assert_array_equal(representatives(rows, 20, chosen=representatives(rows, 10)), representatives(rows, 30)[10:])


def test_copies_and_few_rows_are_chosen_once():
    rows = np.repeat(np.eye(3), 5, axis=0)
    found = representatives(rows, 100)
    assert sorted(found.tolist()) == [*range(15)]
    assert sorted(found[:3].tolist()) == [0, 5, 10]
    assert representatives(rows, 100, chosen=np.arange(15)).tolist() == []
