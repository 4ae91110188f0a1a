"""Few-shot accuracy: episodes as they should be, each classified as the loop does it."""

import json

import numpy as np
import pytest
from scipy.stats import chisquare

from nearfar.evaluation import few_shot, one_shot_accuracy
from nearfar.evaluation.few_shot import _prepared as prepared
from nearfar.evaluation.few_shot import _samples as samples
from nearfar.numerics import episodes
from nearfar.numerics.episodes import EpisodeShape, draw_episodes
from tests.references.few_shot import classify

COUNTS = np.array([5, 9, 4, 12, 6, 7])


def rows(seed=0, spread=1.0, counts=COUNTS, d=3):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return rng.normal(size=(len(counts), d))[y] * 2 + spread * rng.normal(size=(len(y), d)), y


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(
    "cells", [episodes.EPISODE_BLOCK_VALUES, 3 * 3 * 12]
)  # all episodes at once, or three at a time
def test_episodes_hold_what_they_should(balanced, cells, monkeypatch):
    monkeypatch.setattr(episodes, "EPISODE_BLOCK_VALUES", cells)
    shape = EpisodeShape(3, 2, 2, balanced)
    classes, flat = draw_episodes(COUNTS, shape, 400, np.random.default_rng(0))
    way, place = np.divmod(flat, COUNTS.max())
    assert classes.shape == (400, 3)
    assert (place < np.take_along_axis(COUNTS[classes], way, 1)).all()
    for e in range(400):
        assert len(set(classes[e])) == 3
        assert len(set(flat[e])) == shape.size  # support and query share nothing
        assert way[e, : shape.support].tolist() == [0, 0, 1, 1, 2, 2]
        of_query = np.bincount(way[e, shape.support :], minlength=3)
        assert of_query.sum() == 6
        assert not balanced or (of_query == 2).all()
    spread = [np.bincount(row, minlength=3).std() for row in way[:, shape.support :]]
    assert (max(spread) == 0) == balanced


def test_every_class_and_every_sample_is_as_likely():
    counts = np.array([6, 6, 6, 6, 6, 6])
    classes, flat = draw_episodes(counts, EpisodeShape(2, 1, 2), 6000, np.random.default_rng(1))
    assert chisquare(np.bincount(classes[:, 0])).pvalue > 1e-3
    assert chisquare(np.bincount(classes[:, 1])).pvalue > 1e-3
    way, place = np.divmod(flat, 6)
    for column in range(2):  # support of both ways
        drawn = np.take_along_axis(classes, way, 1)[:, column] * 6 + place[:, column]
        assert chisquare(np.bincount(drawn, minlength=36)).pvalue > 1e-3


@pytest.mark.parametrize("classifier", ["prototype", "nearest"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize("shots", [1, 2])
def test_accuracy_is_that_of_the_loop(classifier, distance, shots):
    x, y = rows(shots, spread=2.0)
    how = {"ways": 4, "shots": shots, "queries": 3, "episodes": 12}
    found = few_shot(x, y, **how, classifier=classifier, distance=distance, seed=5)
    shape = EpisodeShape(4, shots, 3)
    picked = samples(y, shape.per_class <= COUNTS, shape, 12, np.random.default_rng(5))
    expected = []
    for episode in picked:
        support, query = episode[: 4 * shots], episode[4 * shots :]
        assert not set(support) & set(query)
        labels = y[support].tolist()
        hits = [classify(x[q], x[support], labels, classifier, distance) == y[q] for q in query]
        expected.append(np.mean(hits))
    np.testing.assert_allclose(found.accuracy.values, expected)
    assert 0 < found.accuracy.mean < 1
    half = 1.959964 * np.std(expected, ddof=1) / 12**0.5
    assert found.accuracy.half == pytest.approx(half, rel=1e-5)


def test_small_classes_are_left_out_and_counted():
    x, y = rows()
    found = few_shot(x, y, ways=2, queries=6, episodes=20)
    assert (found.classes, found.left_out) == (3, 3)
    with pytest.raises(ValueError, match=r"ways: 4 classes with 1 \+ 6 samples each are needed, got 3 of 6"):
        few_shot(x, y, ways=4, queries=6)


def test_seed_decides_and_one_shot_classifiers_agree():
    x, y = rows(spread=2.0)
    first, again, other = (few_shot(x, y, ways=3, queries=3, episodes=50, seed=seed) for seed in (0, 0, 1))
    assert (first.accuracy.values == again.accuracy.values).all()
    assert (first.accuracy.values != other.accuracy.values).any()
    nearest = few_shot(x, y, ways=3, queries=3, episodes=50, classifier="nearest")
    np.testing.assert_array_equal(nearest.accuracy.values, first.accuracy.values)


def test_far_separated_classes_are_all_right_and_noise_is_chance():
    x, y = rows(spread=0.0)
    assert few_shot(x, y, ways=3, queries=3, episodes=20, distance="euclidean").accuracy.mean == 1
    noise = np.random.default_rng(0).normal(size=(200, 4))
    found = few_shot(noise, np.arange(200) % 10, ways=5, queries=4, episodes=400)
    assert abs(found.accuracy.mean - 0.2) < 3 * found.accuracy.half
    assert json.loads(json.dumps(found.to_dict()))["interval_95"] == found.accuracy.half


def test_one_episode_has_an_accuracy_and_no_interval():
    x, y = rows()
    one = few_shot(x, y, ways=2, queries=2, episodes=1).accuracy
    assert 0 <= one.mean <= 1
    assert np.isnan(one.half)


def test_zero_rows_stay_finite():
    assert not prepared(np.zeros((3, 2)), "cosine").any()
    x, y = rows()
    assert few_shot(x * 0, y, ways=2, queries=3, episodes=5).accuracy.mean == 0.5  # the first way, always


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-90, 90])  # squares of float32 values vanish or overflow
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_scale_does_not_matter(distance, exponent, dtype):
    x, y = rows(spread=2.0)
    how = {"ways": 3, "shots": 2, "queries": 2, "episodes": 30, "distance": distance}
    expected = few_shot(x.astype(dtype), y, **how).accuracy.values
    assert expected.std() > 0
    np.testing.assert_array_equal(few_shot(np.ldexp(x, exponent).astype(dtype), y, **how).accuracy.values, expected)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"ways": 1}, "ways: must be at least 2, got 1"),
        ({"shots": 0}, "shots: must be at least 1"),
        ({"queries": 0}, "queries: must be at least 1"),
        ({"episodes": 0}, "episodes: must be at least 1"),
        ({"ways": 2.5}, "ways: must be an integer, got 2.5"),
        ({"shots": 1.5}, "shots: must be an integer, got 1.5"),
        ({"episodes": 2.5}, "episodes: must be an integer, got 2.5"),
        ({"classifier": "svm"}, "classifier: expected one of prototype, nearest"),
        ({"distance": "dot"}, "distance: expected one of"),
    ],
)
def test_bad_settings_are_named(how, message):
    x, y = rows()
    with pytest.raises(ValueError, match=message):
        few_shot(x, y, **{"ways": 2, "queries": 2} | how)


def test_one_shot_runs_count_the_nearest_training_item():
    rng = np.random.default_rng(0)
    distances, answers = rng.random((4, 6, 5)), rng.integers(0, 5, (4, 6))
    found = one_shot_accuracy(distances, answers)
    for run in range(4):
        right = sum(min(range(5), key=lambda t, q=q: distances[run, q, t]) == answers[run, q] for q in range(6))
        assert found.values[run] == right / 6
    for beyond in (-1, 5):
        with pytest.raises(ValueError, match="answers: expected numbers of training items"):
            one_shot_accuracy(distances, np.where(answers == 2, beyond, answers))
    for wrong in (distances, answers[:2]), ([], []):
        with pytest.raises(ValueError, match="answers: expected one row per run"):
            one_shot_accuracy(*wrong)
    with pytest.raises(ValueError, match="answers: expected 6 integers in every run, got float64"):
        one_shot_accuracy(distances, answers.astype(float))
