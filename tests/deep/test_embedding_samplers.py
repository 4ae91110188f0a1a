"""Samplers that look at embeddings of all samples: what they find, when they look, and what a resumed run keeps."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from nearfar import ClusterSampler, SmartMiningSampler
from nearfar.deep import EmbeddingSampler
from nearfar.deep.samplers.base import by_class
from nearfar.deep.samplers.clusters import matched, nearest_center
from nearfar.deep.samplers.smart_mining import nearest_of_other_classes

RNG = np.random.default_rng(0)
LABELS = RNG.permutation(np.repeat([-1, 3, 4, 7, 9, 11], [4, 6, 9, 1, 12, 8]))
ROWS = RNG.normal(size=(len(LABELS), 3)).round(1)  # with equal rows and equal distances


def neighbors_in_loops(rows, labels, k, distance):
    found = []
    for i, x in enumerate(rows):
        others = [j for j in range(len(rows)) if labels[i] != -1 != labels[j] != labels[i]]
        if distance == "cosine":
            values = [1 - x @ rows[j] / np.sqrt((x @ x) * (rows[j] @ rows[j])) for j in others]
        else:
            values = [np.sqrt(((x - rows[j]) ** 2).sum()) for j in others]
        found.append(sorted(values)[:k])
    return found


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 4, 24])
def test_the_neighbors_are_those_of_plain_loops(distance, k) -> None:
    rows = ROWS + 1.3
    found = nearest_of_other_classes(rows, by_class(LABELS), k, distance)
    for i, expected in enumerate(neighbors_in_loops(rows, LABELS, k, distance)):
        if LABELS[i] == -1:
            assert (found[i] == -1).all()
            continue
        assert len(set(found[i])) == k
        assert (LABELS[found[i]] != LABELS[i]).all()
        assert -1 not in LABELS[found[i]]
        if distance == "cosine":
            x, y = rows[i], rows[found[i]]
            values = 1 - y @ x / (np.linalg.norm(x) * np.linalg.norm(y, axis=1))
        else:
            values = np.linalg.norm(rows[found[i]] - rows[i], axis=1)
        np.testing.assert_allclose(values, expected, atol=1e-12)


def mining(**settings) -> SmartMiningSampler:
    return SmartMiningSampler(LABELS, 12, **{"negatives": 2, "neighbors": 5, **settings})


def test_a_group_is_an_anchor_a_positive_and_different_neighbors() -> None:
    sampler = mining(rounds=2)
    sampler.refit(ROWS)
    near = nearest_of_other_classes(ROWS, by_class(LABELS), 5, "cosine")
    groups = np.reshape(list(sampler), (-1, 4))
    for anchor, positive, *negatives in groups:
        assert anchor != positive
        assert LABELS[anchor] == LABELS[positive]
        assert len(set(negatives)) == 2
        assert set(negatives) <= set(near[anchor])
    anchors = set(np.flatnonzero(~np.isin(LABELS, [-1, 7])))  # not unknown, nor alone in the class
    assert set(groups[:, 0]) == anchors
    assert len(groups) == len(sampler) * 3 >= 2 * len(anchors)


def test_an_epoch_of_anchors_is_about_as_long_as_the_data() -> None:
    assert len(SmartMiningSampler(np.arange(3000) // 10, 60)) == 50
    alone = SmartMiningSampler([0, 0, *range(1, 20)], 3, negatives=1, neighbors=1)
    assert len(alone) == 2  # no more than one round of the two anchors


def test_it_looks_again_after_some_epochs() -> None:
    sampler = mining(every=2)
    asked = []
    for epoch in range(6):
        asked.append(sampler.needs_embeddings())
        if asked[-1]:
            sampler.refit(ROWS + epoch)
            assert not sampler.needs_embeddings()
        list(sampler)
    assert asked == [True, False] * 3
    sampler.set_epoch(1)
    assert sampler.needs_embeddings()  # it knows those of epoch 4


def test_without_embeddings_it_says_what_to_do() -> None:
    for sampler in (mining(), ClusterSampler(LABELS, 12)):
        with pytest.raises(ValueError, match=r"Sampler: needs the embeddings of all samples: call refit\(embeddings\)"):
            next(iter(sampler))


@pytest.mark.parametrize("make", [mining, lambda: ClusterSampler(LABELS, 12, clusters=3, every=3)])
def test_a_resumed_sampler_draws_the_batches_of_an_uninterrupted_one(make) -> None:
    whole = make()
    whole.refit(torch.from_numpy(ROWS).float().requires_grad_())
    first = iter(whole)
    next(first)
    again = make()
    again.load_state_dict(whole.state_dict())
    assert not again.needs_embeddings()
    assert list(again) == list(first)
    for sampler in (whole, again):
        if sampler.needs_embeddings():
            sampler.refit(ROWS[::-1])
    assert list(again) == list(whole)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"found": torch.zeros(3, 5, dtype=torch.int64)}, r"expected integers of shape \(40, 5\), got int64 of shape"),
        ({"found": torch.zeros(40, 5)}, r"expected integers of shape \(40, 5\), got float32"),
        ({"found": torch.full((40, 5), 40)}, r"expected numbers in -1\.\.39, got 40\.\.40"),
        ({"found": torch.full((40, 5), -2)}, r"expected numbers in -1\.\.39, got -2\.\.-2"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change, says) -> None:
    sampler = mining()
    sampler.refit(ROWS)
    state = sampler.state_dict()
    with pytest.raises(ValueError, match=says):
        sampler.load_state_dict(state | change)
    assert torch.equal(sampler.state_dict()["found"], state["found"])


@pytest.mark.parametrize(
    ("make_bad", "says"),
    [
        (lambda: mining(negatives=0), "negatives: must be at least 1, got 0"),
        (lambda: mining(neighbors=1), "neighbors: must be at least 2, got 1"),
        (lambda: mining(neighbors=25), "neighbors: expected at most 24, the samples outside the largest class, got 25"),
        (lambda: mining(every=0), "every: must be at least 1, got 0"),
        (lambda: mining(rounds=0), "rounds: must be at least 1, got 0"),
        (lambda: mining(negatives=3), r"a multiple of 2 \+ negatives = 5, at most 5 x 35 anchors, got 12"),
        (lambda: SmartMiningSampler([0, 0, 1, 1], 20, neighbors=2), r"at most 4 x 4 anchors, got 20"),
        (lambda: SmartMiningSampler([0, 1, 2], 4), "labels: expected a class with two samples and another class"),
        (lambda: SmartMiningSampler([0, 0, -1], 4), "labels: expected a class with two samples and another class"),
        (lambda: mining().refit(ROWS[1:]), "embeddings: expected one row for each of 40 samples, got 39"),
        (lambda: mining().refit(ROWS * np.nan), "embeddings: .*40 of 40 rows"),
        (lambda: mining().refit(ROWS[:, 0]), "embeddings: expected a table of shape"),
        (lambda: ClusterSampler(LABELS, 12, m=5), "batch_size: must be a multiple of m, got batch_size=12 and m=5"),
        (lambda: ClusterSampler(LABELS, 12, clusters=37), "clusters: expected at most 36, the samples of known class"),
        (lambda: ClusterSampler(LABELS, 12, clusters=0), "clusters: must be at least 1, got 0"),
        (lambda: ClusterSampler(LABELS, 12, until=0), "until: must be at least 1, got 0"),
        (lambda: ClusterSampler([], 12), "clusters: expected at most 0"),
    ],
)
def test_bad_input(make_bad, says) -> None:
    with pytest.raises(ValueError, match=says):
        make_bad()


def blobs(seed=0, samples=60):
    """Samples of four clusters far apart, each of which has every class several times."""
    rng = np.random.default_rng(seed)
    blob = rng.permutation(np.arange(samples) % 4)
    centers = 5 * np.eye(4)[:, rng.permutation(4)]
    return centers[blob] + 0.3 * rng.normal(size=(samples, 4)), blob


def test_a_batch_comes_from_one_cluster_and_has_m_of_each_class() -> None:
    rows, blob = blobs()
    labels = np.arange(60) % 5
    sampler = ClusterSampler(labels, 6, m=2, clusters=4)
    sampler.refit(rows)
    clusters = sampler.clusters
    assert {tuple(set(clusters[blob == b])) for b in range(4)} == {(0,), (1,), (2,), (3,)}
    seen = [0] * 4
    for _ in range(2):
        epoch = np.array(list(sampler))
        assert len(epoch) == len(sampler) == 10
        for batch in epoch:
            (cluster,) = set(clusters[batch])
            seen[cluster] += 1
            classes, counts = np.unique(labels[batch], return_counts=True)
            assert (len(classes), set(counts)) == (3, {2})
    assert max(seen) - min(seen) <= 2  # alike, up to the last batches of each epoch


def test_clusters_keep_their_numbers() -> None:
    rows, _ = blobs()
    sampler = ClusterSampler(np.arange(60) % 5, 6, m=2, clusters=4)
    sampler.refit(rows)
    before = sampler.clusters
    for epoch in range(2, 12, 2):
        moved = np.roll(rows, epoch, axis=1) + 0.1 * np.random.default_rng(epoch).normal(size=rows.shape)
        sampler.set_epoch(epoch)
        assert sampler.needs_embeddings()
        sampler.refit(moved)
        assert (sampler.clusters == before).all()


def test_the_match_of_clusters_is_the_best_of_all_permutations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        new, before = rng.integers(0, 4, size=(2, 30))
        best = max(sum(np.array(names)[new] == before) for names in permutations(range(4)))
        found = matched(new, before, 4)
        assert sum(found == before) == best
        assert len(set(zip(new.tolist(), found.tolist(), strict=True))) == len(set(new))  # renamed, not mixed


def test_the_nearest_center_is_that_of_all_distances(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(50, 3)), rng.normal(size=(7, 3))
    squares = ((rows[:, None] - centers) ** 2).sum(2)
    for memory in (2**24, 40):  # blocks of five rows
        monkeypatch.setattr("nearfar.deep.samplers.clusters.CENTER_DISTANCES", memory)
        found, numbers = nearest_center(rows, centers)
        assert (numbers == squares.argmin(1)).all()
        np.testing.assert_allclose(found, squares.min(1), atol=1e-12)


def test_a_sample_alone_in_its_class_and_cluster_is_left_out() -> None:
    rows = np.repeat([[0.0, 1.0], [1.0, 0.0]], [7, 4], axis=0)
    labels = [0, 0, 1, 1, 2, -1, -1, 2, 3, 3, 3]
    sampler = ClusterSampler(labels, 4, m=2, clusters=2)
    sampler.refit(rows)
    assert set(sampler.clusters[5:7]) == {-1}
    seen = {index for _ in range(4) for batch in sampler for index in batch}
    # 4 is alone of its class in its cluster, where two classes remain; 7 would be, too, but then one class would remain
    assert seen == {0, 1, 2, 3, 7, 8, 9, 10}


def test_equal_rows_are_one_cluster() -> None:
    sampler = ClusterSampler(np.arange(12) % 3, 4, m=2, clusters=4)
    sampler.refit(np.zeros((12, 2)))
    assert np.shape(list(sampler)) == (3, 4)


def test_huge_and_tiny_embeddings_have_the_same_clusters() -> None:
    rows, _ = blobs()
    found = []
    for factor in (1e-30, 1.0, 1e30):
        sampler = ClusterSampler(np.arange(60) % 5, 6, m=2, clusters=4, normalize=False)
        sampler.refit(rows * factor)
        found.append(sampler.clusters.tolist())
    assert found[0] == found[1] == found[2]


def test_later_epochs_come_from_all_samples() -> None:
    rows, _ = blobs()
    sampler = ClusterSampler(np.arange(60) % 5, 6, m=2, clusters=4, until=1)
    sampler.refit(rows)
    clusters = sampler.clusters
    assert all(len(set(clusters[batch])) == 1 for batch in sampler)
    assert not sampler.needs_embeddings()
    assert set(sampler.clusters) == {-1}
    assert any(len(set(clusters[batch])) > 1 for batch in sampler)


class Farthest(EmbeddingSampler):
    """One of a user's own: the samples whose embeddings are longest."""

    def __init__(self, labels, batch_size, *, seed=0):
        super().__init__((len(labels),), len(labels), batch_size=batch_size, seed=seed, every=1)

    def find(self, rows, rng):
        return np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")

    def batches_per_epoch(self):
        return 1

    def plan(self, rng):
        return self.found()[None, : self.batch_size]


def test_a_sampler_of_ones_own_looks_at_embeddings() -> None:
    sampler = Farthest(LABELS, 2)
    assert sampler.needs_embeddings()
    sampler.refit(np.arange(40.0)[:, None])
    assert list(sampler) == [[39, 38]]
