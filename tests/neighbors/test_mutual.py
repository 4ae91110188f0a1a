"""Groups that are proposed without labels: average linkage over neighbors."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import silhouette_score

from nearfar.neighbors.mutual import linked_pairs, mean_silhouette, propose_groups, typical_distance
from nearfar.neighbors.nearest import nearest
from nearfar.numerics.distances import DISTANCES, pair_distances


def drawn(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 12
    return rng.normal(size=(12, d))[labels] * 3 + rng.normal(size=(n, d)), labels


def in_plain_loops(rows, within, most, distance):
    """Merge the nearest two groups with a mutual pair, as long as their mean distance is small; greedy."""
    near = nearest(rows, rows, 10, distance=distance, exclude_self=True)[1]
    linked = {(i, j) for i in range(len(rows)) for j in near[i].tolist() if i in near[j] or j in near[i, :3]}
    linked |= {(j, i) for i, j in linked}
    square = {"cosine": "cosine", "euclidean": "sqeuclidean", "sqeuclidean": "sqeuclidean"}[distance]
    limit = within**2 if distance == "euclidean" else within
    groups = [[i] for i in range(len(rows))]

    def apart(a, b):
        i, j = (np.array(part) for part in zip(*[(x, y) for x in a for y in b], strict=True))
        return pair_distances(rows, rows, i, j, square).mean()

    while True:
        found = [
            (apart(a, b), p, q)
            for p, a in enumerate(groups)
            for q, b in enumerate(groups[:p])
            if len(a) + len(b) <= most and any((x, y) in linked for x in a for y in b)
        ]
        if not found or min(found)[0] > limit:
            return {frozenset(group) for group in groups if len(group) > 1}
        _, p, q = min(found)
        groups[q] += groups.pop(p)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("most", [None, 3])
def test_groups_are_those_of_greedy_average_linkage(distance, most):
    rows, _ = drawn()
    found = propose_groups(rows, most=most, distance=distance)
    sets = {frozenset(np.flatnonzero(found.numbers == g).tolist()) for g in range(found.numbers.max() + 1)}
    if most is None:
        assert sets == in_plain_loops(rows, found.within, len(rows), distance)
    assert max(map(len, sets)) <= (most or len(rows))
    sizes = np.bincount(found.numbers[found.numbers >= 0])
    assert (np.diff(sizes) <= 0).all()


def test_the_order_of_rows_does_not_matter():
    rows, _ = drawn()
    order = np.random.default_rng(3).permutation(len(rows))
    numbers, shuffled = propose_groups(rows).numbers, propose_groups(rows[order]).numbers
    same = (numbers[order, None] == numbers[order]) & (numbers[order, None] >= 0)
    assert_array_equal(same, (shuffled[:, None] == shuffled) & (shuffled[:, None] >= 0))


def test_a_chain_is_not_one_group():
    chain = np.arange(40.0)[:, None]
    numbers = propose_groups(chain, within=3.0).numbers
    assert np.ptp([np.flatnonzero(numbers == g).size for g in range(numbers.max() + 1)]) <= 4
    assert np.bincount(numbers).max() < 10


def test_any_number_of_copies_is_one_group_whatever_the_distance():
    rows = np.repeat([[0.0, 1.0], [5.0, 5.0], [9.0, -9.0]], [50, 30, 1], axis=0)
    assert propose_groups(rows, within=0.0).numbers.tolist() == [0] * 50 + [1] * 30 + [-1]
    assert propose_groups([[1.0]]).numbers.tolist() == [-1]
    assert propose_groups(np.ones((3, 2)), distance="cosine").numbers.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("classes", "each"), [(100, 2), (60, 3), (12, 10), (6, 25), (10, 100), (2, 300)])
def test_groups_are_as_large_as_the_classes_are(classes, each):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    rows = rng.normal(size=(classes, 16))[labels] + rng.normal(size=(len(labels), 16)) / 8
    found = propose_groups(rows)
    assert not found.unclear
    numbers = found.numbers
    together = (numbers[:, None] == numbers) & (numbers[:, None] >= 0)
    same = labels[:, None] == labels
    assert (together & same).sum() > 0.95 * together.sum()
    assert (together & same).sum() > 0.8 * same.sum()


@pytest.mark.parametrize(("n", "d", "distance"), [(60, 3, "euclidean"), (200, 20, "cosine")])
@pytest.mark.parametrize("spread", ["normal", "uniform"])
def test_rows_without_structure_have_no_clear_groups(spread, n, d, distance):
    rows = getattr(np.random.default_rng(1), spread)(size=(n, d))
    found = propose_groups(rows, distance=distance)
    assert found.unclear
    assert not found.duplicates
    rows[0] = rows[3] + (1e-7 if spread == "normal" else 0.0)
    assert propose_groups(rows, distance=distance).duplicates


def test_groups_within_a_given_distance_are_not_judged():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    assert propose_groups(rows).unclear
    assert not propose_groups(rows, within=0.3).unclear


@pytest.mark.parametrize("n", [8, 400])
def test_one_row_so_far_away_that_the_others_round_to_one_point(n):
    rng = np.random.default_rng(0)
    labels = np.arange(n + 1) % 12
    rows = 1e-9 * (rng.normal(size=(12, 5))[labels] * 3 + rng.normal(size=(n + 1, 5)))
    rows[-1] = 1e9
    assert propose_groups(rows).numbers[-1] == -1
    points = rows - rows.mean(axis=0)
    assert typical_distance(points, "euclidean") >= 0
    assert -1 <= mean_silhouette(points, np.ones(n + 1, dtype=int), labels) <= 1


def test_the_silhouette_is_that_of_scikit_learn():
    rows, labels = drawn()
    expected = silhouette_score(pair_squares(rows), labels, metric="precomputed")
    assert mean_silhouette(rows, np.ones(len(rows), dtype=int), labels) == pytest.approx(expected)
    copied = np.arange(len(rows)) % 3 + 1
    repeated = np.repeat(rows, copied, axis=0)
    expected = silhouette_score(pair_squares(repeated), np.repeat(labels, copied), metric="precomputed")
    assert mean_silhouette(rows, copied, labels) == pytest.approx(expected)


def pair_squares(rows):
    return np.square(rows[:, None] - rows).sum(axis=2)


def test_linked_pairs_are_neighbors():
    rows, _ = drawn(30)
    near = nearest(rows, rows, 4, exclude_self=True)[1]
    ahead = {(i, j): k for i in range(30) for k, j in enumerate(near[i].tolist())}
    of_two = [(ahead.get((i, j), 9), ahead.get((j, i), 9)) for i in range(30) for j in range(i + 1, 30)]
    both = [(i, j) for i in range(30) for j in range(i + 1, 30)]
    expected = [pair for pair, ranks in zip(both, of_two, strict=True) if max(ranks) < 4 or min(ranks) < 3]
    i, j = linked_pairs(near)
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == expected


def test_bad_limits_are_refused():
    for limits, message in (
        ({"within": -1.0}, "within: expected a distance of at least 0, got -1.0"),
        ({"within": float("nan")}, "within: expected a distance of at least 0, got nan"),
        ({"most": 1}, "most: expected at least 2 items of a group, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            propose_groups(np.eye(3), **limits)
