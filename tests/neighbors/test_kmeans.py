"""k-means leaves the local optima of Lloyd's steps, and what it returns is a partition with its means."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from nearfar.neighbors import kmeans
from nearfar.neighbors.kmeans import Clustering


def rows_of(n, d, classes, signal, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) + signal * rng.normal(size=(classes, d))[np.arange(n) % classes]).astype(np.float32)


def nearest(rows, centers):
    squares, numbers = kmeans.nearest_centers(rows, centers, 1)
    return squares[:, 0], numbers[:, 0]


def inertia_of(rows, numbers, k):
    rows = rows.astype(float)
    return sum(((rows[numbers == c] - rows[numbers == c].mean(axis=0)) ** 2).sum() for c in range(k) if c in numbers)


def found_in(rows, k, seed=0) -> Clustering:
    return kmeans.kmeans(rows, k, np.random.default_rng(seed), nearest=nearest)


# few and many rows per cluster; classes far apart, near each other, and as good as none
TABLES = [(600, 8, 120, 4.0), (600, 8, 120, 1.0), (600, 8, 120, 0.2), (1300, 5, 13, 3.0), (1300, 5, 13, 0.3)]


@pytest.mark.parametrize("table", TABLES)
def test_one_start_is_as_good_as_the_best_of_three_starts_of_scikit_learn(table):
    """On average: with few clusters, where a start ends is a draw for both."""
    rows = rows_of(*table)
    k = table[2]
    ours = []
    theirs = []
    for seed in range(3):
        theirs.append(KMeans(k, n_init=3, max_iter=25, random_state=seed).fit(rows).inertia_)
        ours.append(found_in(rows, k, seed).inertia)
    assert np.mean(ours) <= 1.005 * np.mean(theirs)


def test_no_distances_are_computed_for_steps_that_are_not_taken():
    def unused(rows, centers):
        raise AssertionError("with few rows per cluster there are no Lloyd's steps")

    rows = rows_of(600, 8, 120, 1.0)
    found = kmeans.kmeans(rows, 120, np.random.default_rng(0), nearest=unused)
    assert found.inertia == found_in(rows, 120).inertia


@pytest.mark.parametrize("found_by_exchange", [True, False])
def test_candidates_are_looked_up_again_only_where_rows_gained(found_by_exchange, monkeypatch):
    looked_up = []
    search = kmeans.nearest_centers
    monkeypatch.setattr(kmeans, "nearest_centers", lambda *given: looked_up.append(1) or search(*given))
    rows = rows_of(600, 8, 120, 1.0)
    square = np.einsum("nd,nd->n", rows, rows)
    centers = rows[:120]
    if not found_by_exchange:
        centers = kmeans.exchanged(rows, square, centers).centers
        looked_up.clear()
    kmeans.exchanged(rows, square, centers)
    assert (len(looked_up) > 1) == found_by_exchange


@pytest.mark.parametrize("table", TABLES)
def test_the_centers_are_the_means_of_the_clusters(table):
    rows = rows_of(*table)
    k = table[2]
    found = found_in(rows, k, seed=3)
    assert set(found.numbers.tolist()) == set(range(k))
    np.testing.assert_allclose(found.inertia, inertia_of(rows, found.numbers, k), rtol=1e-5)
    means = np.array([rows[found.numbers == c].mean(axis=0) for c in range(k)])
    np.testing.assert_allclose(found.centers, means, atol=1e-4)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 1), (7, 7), (7, 6), (200, 3), (40, 39)])
def test_few_rows_and_few_clusters(n, k):
    rows = rows_of(n, 3, k, 1.0)
    found = found_in(rows, k)
    assert found.numbers.shape == (n,)
    assert found.centers.shape == (k, 3)
    np.testing.assert_allclose(found.inertia, inertia_of(rows, found.numbers, k), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_every_row_keeps_a_center_where_some_are_dropped(seed):
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.01, 1.0, 5.0], size=(48, 1))
    rows = (spread * rng.normal(size=(48, 2))).astype(np.float32)
    for k in (4, 8, 12):
        found = found_in(rows, k)
        assert found.numbers.min() >= 0
        np.testing.assert_allclose(found.inertia, inertia_of(rows, found.numbers, k), rtol=1e-4, atol=1e-6)


def test_equal_rows_do_not_break_the_search():
    rows = np.repeat(rows_of(6, 4, 6, 2.0), 20, axis=0)
    for k in (1, 2, 6, 50, 120):
        found = found_in(rows, k)
        assert np.isfinite(found.inertia)
        assert np.isfinite(found.centers).all()
    assert found_in(np.ones((30, 2), dtype=np.float32), 10).inertia == 0


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("block", [64, 1 << 19])
def test_nearest_centers_are_those_of_all_distances(count, block, monkeypatch):
    monkeypatch.setattr(kmeans, "CACHED_DISTANCES", block)
    rows = rows_of(90, 6, 9, 1.0)
    centers = rows_of(20, 6, 9, 1.0, seed=1)
    squares, numbers = kmeans.nearest_centers(rows, centers, count)
    D = cdist(rows, centers, "sqeuclidean")
    np.testing.assert_array_equal(numbers, D.argsort(axis=1)[:, :count])
    np.testing.assert_allclose(squares, np.sort(D, axis=1)[:, :count], rtol=1e-4)


def test_a_step_lowers_the_sum_of_squares_by_what_it_says():
    rows = rows_of(150, 4, 30, 0.3).astype(np.float64)
    centers = rows[:30]
    _, candidates = kmeans.nearest_centers(rows, centers, 4)
    search = kmeans.Exchange(rows, kmeans.means(rows, candidates[:, 0], centers, None), candidates)
    moved = 0
    for _ in range(10):
        before = inertia_of(rows, search.numbers, 30)
        numbers = search.numbers.copy()
        gain = search.step()
        changed = np.flatnonzero(numbers != search.numbers)
        moved += len(changed)
        named = np.concatenate([numbers[changed], search.numbers[changed]])
        assert len(set(named)) == len(named), "a cluster takes part in one move"
        np.testing.assert_allclose(before - inertia_of(rows, search.numbers, 30), gain, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(search.inertia, inertia_of(rows, search.numbers, 30), rtol=1e-9)
    assert moved > 20


def test_clusters_that_share_two_classes_part():
    """Two centers in one class and one in two: Lloyd's steps stay there."""
    corners = np.array([[0.0, 0], [100, 0], [0, 100]])
    rows = (np.repeat(corners, 20, axis=0) + np.random.default_rng(0).normal(size=(60, 2))).astype(np.float32)
    stuck = np.array([[-0.5, 0], [0.5, 0], [50, 50]], dtype=np.float32)
    lloyd = kmeans.lloyd(rows, stuck, 25, nearest)
    square = np.einsum("nd,nd->n", rows, rows)
    freed = kmeans.exchanged(rows, square, kmeans.breathed(rows, square, lloyd.centers, 0, nearest))
    assert lloyd.inertia > 1e5
    assert freed.inertia < 200


def test_an_empty_cluster_stays_where_it_is_if_asked():
    rows = np.array([[0.0], [1], [10], [11]])
    far = np.array([[0.0], [10.0], [99.0]])
    kept = kmeans.lloyd(rows, far, 20, nearest, keep_empty=True).centers
    assert kept.ravel().tolist() == pytest.approx([0.5, 10.5, 99])
    assert len(set(kmeans.lloyd(rows, far, 20, nearest).numbers.tolist())) == 3
