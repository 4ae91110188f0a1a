"""Scores of the places of images, against plain loops and on small made images."""

import numpy as np
import pytest

from nearfar.evaluation import local_scores, matched_places, rerank_by_places


def reference(a, b, tolerance):
    """Match the places of two maps (h, w, c) in plain loops."""
    h, w, _ = a.shape
    places = [(y, x) for y in range(h) for x in range(w)]

    def cosine(p, q):
        length = np.linalg.norm(a[p]) * np.linalg.norm(b[q])
        return a[p] @ b[q] / length if length else 0.0

    matches = []
    for p in places:
        q = max(places, key=lambda q: cosine(p, q))
        if max(places, key=lambda r: cosine(r, q)) == p:
            matches.append((q[0] - p[0], q[1] - p[1], max(cosine(p, q), 0)))
    offsets = [(y, x) for y in range(1 - h, h) for x in range(1 - w, w)]
    near = [[s for v, u, s in matches if max(abs(v - y), abs(u - x)) <= tolerance] for y, x in offsets]
    return max(map(sum, near)) / len(places)


@pytest.mark.parametrize("tolerance", [0, 1, 9])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_equals_plain_loops(tolerance, kind, monkeypatch):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 3, 4, 5)).astype(kind)
    b = rng.normal(size=(4, 3, 4, 5)).astype(kind)
    b[1, :, 1:] = a[0, :, :-1]  # the first query, moved by a place
    b[2, 0, 0] = 0
    candidates = np.array([[0, 1], [2, 3], [1, 1]])
    expected = [[reference(a[i], b[j], tolerance) for j in row] for i, row in enumerate(candidates)]
    np.testing.assert_allclose(local_scores(a, b, candidates, tolerance=tolerance), expected, rtol=1e-5)
    monkeypatch.setattr("nearfar.evaluation.local_matches.BLOCK_CELLS", 1)  # a pair at a time
    np.testing.assert_allclose(local_scores(a, b, candidates, tolerance=tolerance), expected, rtol=1e-5)


@pytest.mark.parametrize("tolerance", [0, 1, 9])
def test_matched_places_are_those_that_the_score_counts(tolerance):
    rng = np.random.default_rng(0)
    for _ in range(10):
        a, b = rng.normal(size=(2, 3, 4, 5))
        b[:, 1:] = a[:, :-1] + 0.5 * b[:, 1:]
        a[0, 0] = 0
        found = matched_places(a, b, tolerance=tolerance)
        p = a[found.query[:, 0], found.query[:, 1]]
        q = b[found.item[:, 0], found.item[:, 1]]
        cosines = (p * q).sum(axis=1) / np.linalg.norm(p, axis=1) / np.linalg.norm(q, axis=1)
        assert found.shape == (3, 4)
        assert cosines.min() > 0
        assert cosines.sum() / 12 == pytest.approx(local_scores([a], [b], [[0]], tolerance=tolerance)[0, 0])
        assert len(np.unique(found.item, axis=0)) == len(np.unique(found.query, axis=0)) == len(cosines)
        assert np.ptp(found.item - found.query, axis=0).max() <= 2 * tolerance
    nothing = matched_places(np.zeros((2, 2, 3)), b[:2, :2, :3])
    assert nothing.query.shape == nothing.item.shape == (0, 2)
    with pytest.raises(ValueError, match=r"item: expected a map of \(3, 4, 5\) as the query, got \(2, 2, 3\)"):
        matched_places(a, b[:2, :2, :3])


def test_parts_that_moved_together_beat_parts_that_did_not():
    rng = np.random.default_rng(1)
    query = rng.normal(size=(6, 6, 16))
    moved = rng.normal(size=(6, 6, 16))
    moved[2:, 1:] = query[:-2, :-1]
    shuffled = rng.permutation(query.reshape(36, 16)).reshape(6, 6, 16)  # the same parts, anywhere
    scores = local_scores([query], [query, moved, shuffled, rng.normal(size=(6, 6, 16))], [[0, 1, 2, 3]])[0]
    assert scores[0] == pytest.approx(1)
    assert scores[1] > 0.5
    assert scores[1] > 1.5 * max(scores[2:])
    free = local_scores([query], [query, shuffled], [[0, 1]], tolerance=6)[0]
    np.testing.assert_allclose(free, 1)


def test_empty_and_zero_maps_have_scores():
    zeros = np.zeros((2, 3, 3, 4))
    np.testing.assert_array_equal(local_scores(zeros, zeros, [[0, 1], [1, 0]]), 0)
    assert local_scores(zeros[:0], zeros, np.zeros((0, 5), int)).shape == (0, 5)
    assert local_scores(zeros, zeros[:0], np.zeros((2, 0), int)).shape == (2, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"queries": np.ones((2, 3))}, r"queries: expected maps of shape \(n, h, w, c\), got \(2, 3\)"),
        ({"items": np.ones((3, 2, 2, 5))}, r"items: expected maps of \(2, 2, 4\) as the queries, got \(2, 2, 5\)"),
        ({"items": np.full((3, 2, 2, 4), np.nan)}, "items: expected finite numbers"),
        ({"candidates": [[0], [3]]}, r"candidates: expected row numbers in 0\.\.2, got 0\.\.3"),
        ({"candidates": [[0.0], [1.0]]}, r"candidates: expected \(2, k\) row numbers, got float64"),
        ({"candidates": [[0]]}, r"candidates: expected \(2, k\) row numbers, got int64 of shape \(1, 1\)"),
        ({"tolerance": -1}, "tolerance: expected a whole number of at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    given = {"queries": np.ones((2, 2, 2, 4)), "items": np.ones((3, 2, 2, 4)), "candidates": [[0], [1]]} | settings
    with pytest.raises(ValueError, match=message):
        local_scores(**given)


def test_a_weight_mixes_both_rankings():
    similarities, local, candidates = [[0.9, 0.8, 0.1]], [[0.1, 0.9, 0.2]], [[4, 7, 2]]
    assert rerank_by_places(similarities, local, candidates, weight=0.0).indices.tolist() == candidates
    assert rerank_by_places(similarities, local, candidates, weight=1.0).indices.tolist() == [[7, 2, 4]]
    found = rerank_by_places(similarities, local, candidates, k=2, weight=0.25)
    assert found.indices.tolist() == [[7, 4]]
    np.testing.assert_allclose(found.distances, [[1 - (0.75 * 0.8 + 0.25 * 0.9), 1 - (0.75 * 0.9 + 0.25 * 0.1)]])
    with pytest.raises(ValueError, match=r"weight: expected a number in 0\.\.1, got 2"):
        rerank_by_places(similarities, local, candidates, weight=2)
    with pytest.raises(ValueError, match="local, candidates: expected the shape of similarities"):
        rerank_by_places(similarities, [[0.1]], candidates)
