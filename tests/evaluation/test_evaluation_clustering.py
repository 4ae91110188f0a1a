"""Clustering scores equal scikit-learn's and plain loops; k-means is seeded; generalization keeps its bounds."""

import math
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from nearfar.evaluation import (
    ami,
    cluster,
    clustering,
    clustering_scores,
    diversity,
    evaluate,
    h_divergence,
    interval,
    joint_error,
    nmi,
    pairwise_f1,
    recall_at_k,
    subset_recall,
)
from nearfar.evaluation.generalization import halves
from nearfar.evaluation.intervals import stratified_parts
from nearfar.neighbors import kmeans
from tests.references import evaluation as plain

partitions = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 6), min_size=n, max_size=n) for _ in range(2)])
)


def blobs(classes=6, each=20, d=4, spread=0.2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    return 3 * rng.standard_normal((classes, d))[y] + spread * rng.standard_normal((len(y), d)), y


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(partitions)
def test_information_scores_equal_scikit_learn(pair):
    a, b = pair
    for average in ("arithmetic", "geometric"):
        expected = normalized_mutual_info_score(a, b, average_method=average)
        assert nmi(a, b, average) == pytest.approx(expected, abs=1e-9)
    if 1 < len(set(a)) < len(a) or 1 < len(set(b)) < len(b):
        assert ami(a, b) == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-9)
    assert nmi(a, b) <= nmi(a, b, "geometric") + 1e-12


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(partitions)
def test_pair_f1_equals_the_pairs(pair):
    a, b = pair
    assert pairwise_f1(a, b) == pytest.approx(plain.pairwise_f1(a, b))
    (_, fp), (fn, tp) = pair_confusion_matrix(a, b)
    assert pairwise_f1(a, b) == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp else 0.0)
    assert pairwise_f1(a, b) == pairwise_f1(b, a)


def test_partitions_of_known_score():
    a = ["x", "x", "y", "y", "z"]
    renamed = [3, 3, 1, 1, 2]
    for one in (nmi, ami, pairwise_f1):
        assert one(a, renamed) == pytest.approx(1.0)
    assert nmi([0, 0, 1, 1], [0, 0, 0, 0]) == 0
    assert ami([0, 0, 1, 1], [0, 0, 0, 0]) == 0
    base = 2 / 6  # share of pairs in one class; one cluster has recall 1 and this precision
    assert pairwise_f1([0, 0, 1, 1], [0, 0, 0, 0]) == pytest.approx(2 * base / (1 + base))
    assert nmi([0], [0]) == ami([0], [0]) == 1
    assert pairwise_f1([0], [0]) == 0
    assert pairwise_f1([0] * 200_000, [0] * 200_000) == 1  # 2e10 pairs need 64 bits


def test_ami_with_many_classes_of_few_sizes():
    rng = np.random.default_rng(0)
    a, b = np.repeat(np.arange(300), 5), rng.integers(300, size=1500)
    assert ami(a, b) == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-9)
    assert abs(ami(a, b)) < 0.02 < nmi(a, b)


def engines():
    return ["scikit-learn", "faiss"] if find_spec("faiss") else ["scikit-learn"]


@pytest.mark.parametrize("engine", engines())
def test_clusters_are_found_and_seeded(engine):
    x, y = blobs()
    found = cluster(x, 6, distance="euclidean", engine=engine)
    assert found.engine == engine
    assert nmi(y, found.numbers) == pytest.approx(1)
    centers = np.array([x[found.numbers == k].mean(0) for k in range(6)])
    np.testing.assert_allclose(found.inertia, ((x - centers[found.numbers]) ** 2).sum(), rtol=1e-4)
    again = cluster(x, 6, distance="euclidean", engine=engine)
    np.testing.assert_array_equal(again.numbers, found.numbers)
    for size in (2.0**-110, 2.0**110):  # whose squares are no float32
        scaled = cluster(x * size, 6, distance="euclidean", engine=engine)
        np.testing.assert_array_equal(scaled.numbers, found.numbers)
        assert scaled.inertia == pytest.approx(found.inertia * size**2, rel=1e-9)
    far = cluster(x + 1e6, 6, distance="euclidean", engine=engine)  # where float32 holds no spread of a cluster
    assert far.inertia == pytest.approx(found.inertia, rel=1e-4)


@pytest.mark.parametrize("engine", engines())
def test_more_restarts_are_not_worse(engine):
    x, _ = blobs(12, 10, 3, 1.0)
    inertia = [cluster(x, 12, restarts=n, engine=engine).inertia for n in (1, 4, 8)]
    assert inertia[0] >= inertia[1] >= inertia[2]


@pytest.mark.parametrize("engine", engines())
def test_collapsed_rows_and_as_many_clusters_as_rows(engine):
    scores = evaluate(np.ones((12, 3)), np.arange(12) % 4, engine=engine)
    assert 0 <= scores.nmi <= 1
    assert np.isfinite([scores.ami, scores.f1, scores.inertia]).all()
    x, _ = blobs(3, 3)
    assert len(set(cluster(x, 9, engine=engine).numbers)) == 9


def test_settings_of_the_clustering_reach_it():
    x, y = blobs(12, 10, 3, 2.0)
    for seed in (0, 5):
        found = clustering_scores(x, y, distance="euclidean", restarts=1, engine="scikit-learn", seed=seed)
        own = cluster(x, 12, distance="euclidean", restarts=1, engine="scikit-learn", seed=seed)
        assert found["inertia"] == own.inertia
        settings_ = {"distance": "euclidean", "restarts": 1, "engine": "scikit-learn", "seed": seed}
        assert evaluate(x, y, **settings_).inertia == own.inertia
        assert found["nmi"] == nmi(y, own.numbers)
    assert own.inertia != cluster(x, 12, distance="euclidean", restarts=1, engine="scikit-learn", seed=0).inertia


def test_plain_clusters_are_those_of_steps_from_random_rows():
    x, y = blobs(8, 10, 3, 2.0)
    scores = evaluate(x, y, distance="euclidean", engine="scikit-learn", seed=3, clustering="plain")
    rows = (x - x.mean(0)).astype(np.float32)
    centers = rows[np.random.default_rng(3).choice(len(rows), 8, replace=False)]
    for _ in range(25):
        numbers = ((rows[:, None] - centers) ** 2).sum(2).argmin(1)
        assert len(set(numbers)) == 8  # an empty cluster would be filled
        centers = np.array([rows[numbers == k].mean(0) for k in range(8)])
    assert scores.nmi == pytest.approx(nmi(y, numbers))
    assert scores.clusterer.startswith("plain k-means of")
    assert scores.inertia > evaluate(x, y, distance="euclidean", engine="scikit-learn", seed=3).inertia
    with pytest.raises(ValueError, match="clustering: expected True, False or \"plain\", got 'kmeans'"):
        evaluate(x, y, clustering="kmeans")


def test_evaluate_clusters_queries_with_their_gallery():
    x, y = blobs()
    scores = evaluate(x[::2], y[::2], gallery=x[1::2], gallery_labels=y[1::2], distance="euclidean")
    assert scores.nmi == scores.nmi_geometric == scores.ami == scores.f1 == pytest.approx(1)
    assert scores.clusterer.startswith("k-means")


def test_interval_is_students():
    found = interval(range(10))
    assert found.mean == 4.5
    assert found.half == pytest.approx(2.2621571628 * np.std(range(10), ddof=1) / math.sqrt(10))
    assert interval(range(10), "normal").half < found.half
    assert math.isnan(interval([0.5]).half)
    with pytest.raises(ValueError, match="kind"):
        interval([1, 2], "bootstrap")
    with pytest.raises(ValueError, match="values"):
        interval([])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(20, 45), min_size=1, max_size=5), st.integers(2, 10), st.integers(0, 99))
def test_deal_spreads_every_class_evenly(sizes, parts, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    part = stratified_parts(y, parts, np.random.default_rng(seed))
    for one in range(len(sizes)):
        counts = np.bincount(part[y == one], minlength=parts)
        assert counts.max() - counts.min() <= 1


def test_the_odd_sample_of_a_class_falls_anywhere():
    y = np.repeat([0, 1], [4, 5])
    assert set(np.bincount(stratified_parts(y, 2, np.random.default_rng(0)))) == {4, 5}, "two samples per part suffice"
    sizes = []
    for seed in range(40):
        first = np.bincount(stratified_parts(y, 2, np.random.default_rng(seed)))[0]
        sizes.append([first, halves(y, np.random.default_rng(seed)).sum()])
    assert ((np.array(sizes) == 5).sum(0) > 10).all()
    assert ((np.array(sizes) == 4).sum(0) > 10).all()


def test_subset_recall_is_the_mean_of_the_parts():
    x, y = blobs(5, 40, spread=3.0)
    found = subset_recall(x, y.astype(str), ks=(1, 9))
    part = stratified_parts(y, 10, np.random.default_rng(0))
    values = [recall_at_k(x[part == p], y[part == p], 9) for p in range(10)]
    np.testing.assert_allclose(found[9].values, values)
    assert found[9].mean == pytest.approx(np.mean(values))
    assert found[1].mean <= found[9].mean
    far = subset_recall(x * np.arange(1, len(x) + 1)[:, None], y, parts=2, distance="euclidean")
    part = stratified_parts(y, 2, np.random.default_rng(0))
    scaled = x * np.arange(1, len(x) + 1)[:, None]
    np.testing.assert_allclose(
        far[1].values, [recall_at_k(scaled[part == p], y[part == p], distance="euclidean") for p in (0, 1)]
    )
    with pytest.raises(ValueError, match="labels: expected 200 labels"):
        subset_recall(x, y[:-1])
    with pytest.raises(ValueError, match="2 of 2 classes have fewer than 20 samples"):
        subset_recall(x[:38], np.repeat([0, 1], 19))
    assert len(subset_recall(x[:40], np.repeat([0, 1], 20))[1].values) == 10
    one = subset_recall(x, y, ks=9)
    np.testing.assert_array_equal(one[9].values, found[9].values)
    with pytest.raises(ValueError, match="parts: expected 2 or more"):
        subset_recall(x, y, parts=2.5)


def test_h_divergence_bounds():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    same = h_divergence(x[:150], x[150:])
    assert same.mean == pytest.approx(0.5, abs=0.08)
    assert h_divergence(x, x[:200] + 100).mean == 1
    assert h_divergence(x, x + 100, scaled=True).mean == 2
    assert len(same.values) == 10
    assert h_divergence(x[:150], x[150:]).mean == same.mean
    with pytest.raises(ValueError, match="at least 2 rows"):
        h_divergence(x[:1], x)
    with pytest.raises(ValueError, match=rf"unseen: expected {x.shape[1]} columns as in seen, got 1"):
        h_divergence(x, x[:, :1])
    with pytest.raises(ValueError, match="splits: expected an integer of at least 1, got 0"):
        h_divergence(x, x, splits=0)


def test_joint_error_bounds():
    x, y = blobs()
    other = blobs(4, 10, seed=9)
    assert joint_error(x, y, other[0] + 50, other[1]).mean == 0
    rng = np.random.default_rng(0)
    noise = joint_error(
        rng.standard_normal((200, 3)), np.arange(200) % 10, rng.standard_normal((200, 3)), np.arange(200) % 10
    )
    assert 1.5 < noise.mean <= 2
    assert len(noise.values) == 10
    with pytest.raises(ValueError, match="unseen_labels: expected 120 labels"):
        joint_error(x, y, x, y[:-1])
    with pytest.raises(ValueError, match="at least 2 samples of every class"):
        joint_error(x, np.arange(len(x)), x, y)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_joint_error_equals_the_plain_rule(distance):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((41, 3)), np.arange(41) % 6
    classes = np.concatenate([y[:20], 6 + y[20:]])
    found = joint_error(x[:20], y[:20], x[20:], y[20:], splits=2, distance=distance)
    for seed_rng in [np.random.default_rng(0)]:
        for value in found.values:
            known = halves(classes, seed_rng)
            wrong = plain.one_nn_errors(
                x[known].tolist(), classes[known], x[~known].tolist(), classes[~known], distance
            )
            seen = np.flatnonzero(~known) < 20
            assert value == pytest.approx(np.mean(np.array(wrong)[seen]) + np.mean(np.array(wrong)[~seen]))


def test_diversity_is_the_trace_of_the_covariance():
    x = np.random.default_rng(0).standard_normal((17, 4)) + 5
    assert diversity(x) == pytest.approx(plain.diversity(x.tolist()))
    assert diversity(x) == pytest.approx(np.trace(np.cov(x.T, bias=True)))
    assert diversity(x[:1]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4, 2), 5, {}), "n_clusters: expected 1 to 4"),
        (((4, 2), 2.5, {}), "n_clusters: expected 1 to 4 .* got 2.5"),
        (((4, 2), 2, {"restarts": 1.5}), "restarts: expected at least 1, got 1.5"),
        (((4, 2), 2, {"engine": "cuml"}), "engine: expected"),
        (((4, 2), 2, {"restarts": 0}), "restarts: expected at least 1"),
        (((4, 2), 2, {"distance": "Cosine"}), "distance: expected one of"),
    ],
)
def test_bad_cluster_settings_are_named(arguments, message):
    shape, k, settings_ = arguments
    with pytest.raises(ValueError, match=message):
        cluster(np.ones(shape), k, **settings_)


def test_bad_partitions_are_named():
    with pytest.raises(ValueError, match="clusters: expected 2 numbers"):
        nmi([0, 1], [0])
    with pytest.raises(ValueError, match="average"):
        nmi([0, 1], [0, 1], "max")


def plain_lloyd(rows: np.ndarray, centers: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        numbers = cdist(rows, centers).argmin(axis=1)
        centers = np.array([rows[numbers == k].mean(axis=0) for k in range(len(centers))])
    return cdist(rows, centers).argmin(axis=1)


@pytest.mark.parametrize("engine", engines())
@pytest.mark.parametrize("iterations", [1, 3, 30])
def test_steps_that_look_at_moved_centers_only_are_those_that_look_at_all(engine, iterations):
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    nearest = clustering._faiss if engine == "faiss" else clustering._sklearn
    start = x[kmeans.seeds(x, 40, np.random.default_rng(1))]
    numbers, inertia, _ = kmeans.lloyd(x, start, iterations, nearest)
    np.testing.assert_array_equal(numbers, plain_lloyd(x, start, iterations))
    if iterations == 30:
        means = np.array([x[numbers == k].mean(axis=0) for k in range(40)])
        np.testing.assert_allclose(inertia, ((x - means[numbers]) ** 2).sum(), rtol=1e-5)


@pytest.mark.parametrize("engine", engines())
def test_a_cluster_that_lost_its_rows_gets_others(engine):
    x = np.array([[0.0], [1], [10], [11], [30]], dtype=np.float32)
    nearest = clustering._faiss if engine == "faiss" else clustering._sklearn
    numbers, inertia, _ = kmeans.lloyd(x, np.array([[0.0], [100], [101]], dtype=np.float32), 25, nearest)
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3] != numbers[4]
    assert inertia == pytest.approx(1.0)


@pytest.mark.parametrize(("n", "k"), [(40, 40), (400, 60), (30, 1), (200, 7)])
def test_seeds_are_different_rows_as_good_as_those_of_scikit_learn(n, k):
    x = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)

    def potential(found):
        return cdist(x, x[found], "sqeuclidean").min(axis=1).sum()

    own = [kmeans.seeds(x, k, np.random.default_rng(s)) for s in range(20)]
    assert all(len(set(found.tolist())) == k for found in own)
    theirs = [kmeans_plusplus(x, k, random_state=s)[1] for s in range(20)]
    assert np.mean([*map(potential, own)]) <= 1.05 * np.mean([*map(potential, theirs)])


def test_the_chances_of_two_seeds_by_hand():
    x, tally = np.array([[0.0], [1], [3], [7]], dtype=np.float32), Counter()
    for s in range(4000):
        tally[tuple(kmeans.seeds(x, 2, np.random.default_rng(s)).tolist())] += 1
    chance = np.zeros((4, 4))
    for i in range(4):
        square = (x - x[i])[:, 0] ** 2
        first = square / square.sum()
        left = np.minimum(square, (x - x[:, 0]) ** 2).sum(axis=1)  # of each candidate
        for a in range(4):
            for b in range(4):
                chance[i, a if left[a] <= left[b] else b] += first[a] * first[b] / 4
    found = np.array([[tally[i, j] for j in range(4)] for i in range(4)]) / 4000
    np.testing.assert_allclose(found, chance, atol=0.025)


@pytest.mark.slow
def test_seeds_whose_candidates_are_drawn_together_are_as_likely_as_one_by_one(monkeypatch):
    x, share = np.array([[0.0], [1], [3], [4], [6], [7.2], [9], [9.9]], dtype=np.float32), []
    for together in (1, 16):
        monkeypatch.setattr(kmeans, "TOGETHER", together)
        drawn = [frozenset(kmeans.seeds(x, 4, np.random.default_rng(s)).tolist()) for s in range(4000)]
        share.append([np.mean([left not in found for found in drawn]) for left in range(8)])
    np.testing.assert_allclose(*share, atol=0.03)


@pytest.mark.parametrize("engine", engines())
def test_equal_rows_far_from_the_origin_are_clusters(engine):
    x = np.repeat(np.arange(4.0)[:, None], 5, axis=0) * 1e-2 + 1e3
    found = cluster(x, 4, distance="euclidean", engine=engine)
    assert nmi(np.repeat(np.arange(4), 5), found.numbers) == pytest.approx(1)
    assert cluster(x, 6, distance="euclidean", engine=engine).inertia == pytest.approx(0, abs=1e-6)
