"""Every sampler draws by the law that it states: all outcomes on tiny data, by a chi-squared test with fixed seeds."""

from collections import Counter
from itertools import combinations, permutations, product
from math import comb

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("torch")

from nearfar.catalog import METHODS
from nearfar.deep.samplers.class_ratio import ClassRatioSampler
from nearfar.deep.samplers.clusters import ClusterSampler
from nearfar.deep.samplers.episodes import EpisodeSampler
from nearfar.deep.samplers.hierarchical import HierarchicalSampler
from nearfar.deep.samplers.m_per_class import MPerClassSampler
from nearfar.deep.samplers.pairs import PairSampler
from nearfar.deep.samplers.random import RandomBatchSampler
from nearfar.deep.samplers.smart_mining import SmartMiningSampler
from nearfar.deep.samplers.triplets import TripletSampler

EPOCHS = 3000


def epochs(sampler, number=EPOCHS):
    rng = np.random.default_rng(1)
    return [sampler.plan(rng) for _ in range(number)]


def assert_law(drawn, law):
    """Compare how often outcomes were drawn with their probabilities; a right sampler fails once in 10,000 seeds."""
    found = Counter(drawn)
    assert set(found) <= set(law)
    assert sum(law.values()) == pytest.approx(1)
    total = sum(found.values())
    assert chisquare([found[key] for key in law], [total * p for p in law.values()]).pvalue > 1e-4


def uniform(outcomes):
    outcomes = list(outcomes)
    return dict.fromkeys(outcomes, 1 / len(outcomes))


@pytest.mark.parametrize(("n", "size", "drop_last"), [(4, 2, False), (5, 2, False), (5, 2, True)])
def test_random_batches_are_all_orders(n, size, drop_last):
    plans = epochs(RandomBatchSampler([0] * n, size, drop_last=drop_last))
    kept = n - n % size if drop_last else n
    assert_law([tuple(plan.ravel()[:kept].tolist()) for plan in plans], uniform(permutations(range(n), kept)))


def test_classes_and_samples_of_m_per_class():
    members = {0: (0, 1, 2), 1: (3, 4), 2: (5, 6, 7, 8)}
    plans = epochs(MPerClassSampler([0] * 3 + [1] * 2 + [2] * 4, m=2, batch_size=4, rounds=1))
    law = {}
    for one, other in permutations(members, 2):
        for pair in product(combinations(members[one], 2), combinations(members[other], 2)):
            law[pair] = 1 / 6 / comb(len(members[one]), 2) / comb(len(members[other]), 2)
    first = [tuple(tuple(sorted(part.tolist())) for part in plan[0].reshape(2, 2)) for plan in plans]
    assert_law(first, law)


def test_groups_classes_and_samples_of_hierarchical_batches():
    members = {0: (0, 1), 1: (2, 3, 4), 2: (5,), 3: (6, 7)}
    groups = ((0, 1), (2, 3))
    labels = np.repeat(list(members), [len(part) for part in members.values()])
    plans = epochs(HierarchicalSampler(labels, labels // 2, m=1, batch_size=2, rounds=1))
    law = {}
    for one, other in permutations(groups):
        for a, b in product(one, other):
            for pair in product(members[a], members[b]):
                law[pair] = 1 / 8 / len(members[a]) / len(members[b])
    assert_law([tuple(plan[0].tolist()) for plan in plans], law)


def of_ratio(sizes, size):
    """All batches of one sample of each class and the rest from what is left, as sorted tuples."""
    ends = np.cumsum(sizes)
    classes = [range(end - n, end) for n, end in zip(sizes, ends, strict=True)]
    law = Counter()
    for first in product(*classes):
        left = sorted(set(range(ends[-1])) - set(first))
        rest = list(combinations(left, size - len(first)))
        for more in rest:
            law[tuple(sorted(first + more))] += 1 / np.prod(sizes) / len(rest)
    return law


@pytest.mark.parametrize(("sizes", "size"), [((1, 5), 4), ((2, 4), 4), ((2, 3, 4), 5)])
def test_rest_of_a_class_ratio_batch_is_from_all_classes_alike(sizes, size):
    sampler = ClassRatioSampler(np.repeat(np.arange(len(sizes)), sizes), size, len(sizes) / size)
    drawn = [tuple(sorted(batch)) for plan in epochs(sampler) for batch in plan.tolist()]
    assert_law(drawn, of_ratio(sizes, size))


@pytest.mark.slow
def test_small_classes_come_in_class_ratio_batches_as_often_as_they_should():
    plans = epochs(ClassRatioSampler(np.repeat([0, 1], [2, 50]), 8, 0.25))
    both = np.mean([np.isin([0, 1], plan[0]).all() for plan in plans])
    assert both == pytest.approx(6 / 51, abs=4 * (0.12 / EPOCHS) ** 0.5)


def test_repeats_of_a_class_ratio_batch_are_any_samples():
    sampler = ClassRatioSampler([0, 0, 0, 1], 6, 1 / 3)  # all four, and two of them once more
    drawn = [
        tuple(sorted((Counter(batch) - Counter(range(4))).elements())) for plan in epochs(sampler) for batch in plan
    ]
    assert_law(drawn, uniform(combinations(range(4), 2)))


@pytest.mark.parametrize("query", ["balanced", "random"])
def test_support_and_queries_of_episodes(query):
    sizes, k, q = (2, 3, 4), 1, 1
    ends = np.cumsum(sizes)
    classes = [range(end - n, end) for n, end in zip(sizes, ends, strict=True)]
    law = Counter()
    for ways in permutations(range(3), 2):
        for support in product(*(classes[way] for way in ways)):
            left = [sorted(set(classes[way]) - set(support)) for way in ways]
            queries = list(product(*left)) if query == "balanced" else list(combinations(sorted(left[0] + left[1]), 2))
            for some in queries:
                p = 1 / 6 / len(classes[ways[0]]) / len(classes[ways[1]]) / len(queries)
                law[support + tuple(sorted(some))] += p
    sampler = EpisodeSampler(np.repeat([0, 1, 2], sizes), 2, k, q, n_episodes=EPOCHS, query=query)
    drawn = [tuple(batch[:2]) + tuple(sorted(batch[2:])) for batch in epochs(sampler, 2)[0].tolist()]
    assert_law(drawn, law)


def test_queries_of_any_class_are_drawn_from_all_that_are_left():
    sampler = EpisodeSampler(np.repeat([0, 1], [20, 100]), 2, 5, 15, n_episodes=EPOCHS, query="random")
    small = (epochs(sampler, 1)[0][:, 10:] < 20).sum(1)
    assert small.mean() == pytest.approx(30 * 15 / 110, abs=4 * small.std() / EPOCHS**0.5)


@pytest.mark.parametrize("labels", [[0, 0, 1, 2, 3], [0, 0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 1]])
@pytest.mark.parametrize("similar", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_batch_of_pairs_has_its_share(labels, similar, count, drop_last):
    labels = np.array(labels)
    sampler = PairSampler(labels, 2 * count, similar=similar, drop_last=drop_last)
    for plan in epochs(sampler, 20):
        assert plan.shape == (sampler.batches_per_epoch(), 2 * count)
        a, b = plan.reshape(len(plan), count, 2).transpose(2, 0, 1)
        assert (a != b).all()
        assert ((labels[a] == labels[b]).sum(1) == round(similar * count)).all()
        alone = np.isin(a, np.flatnonzero(np.bincount(labels)[labels] == 1))
        room = a.size - len(a) * round(similar * count)
        if not drop_last and round(similar * count):
            times = np.bincount(a.ravel(), minlength=len(labels))
            assert alone.sum() == min(room, (np.bincount(labels) == 1).sum())
            assert times[np.bincount(labels)[labels] > 1].min() >= 1


@pytest.mark.slow
@pytest.mark.parametrize("similar", [0.0, 0.5, 1.0])
def test_anchors_and_partners_of_pairs(similar):
    labels = np.array([0, 0, 0, 1, 1, 2])
    plans = np.concatenate(epochs(PairSampler(labels, 4, similar=similar))).reshape(-1, 2)
    near = labels[plans[:, 0]] == labels[plans[:, 1]]
    mates = {i: [j for j in range(6) if j != i and labels[i] == labels[j]] for i in range(5)}
    law = {(i, j): 1 / 5 / len(found) for i, found in mates.items() for j in found}
    if similar:
        assert_law(map(tuple, plans[near].tolist()), law)
    if similar < 1:  # of the 6 anchors of dissimilar pairs, or of 3, one is the sample that is alone
        lone = 1 / (6 * (1 - similar))
        far = {i: [j for j in range(6) if labels[i] != labels[j]] for i in range(6)}
        law = {(i, j): (lone if i == 5 else (1 - lone) / 5) / len(found) for i, found in far.items() for j in found}
        assert_law(map(tuple, plans[~near].tolist()), law)


def test_anchors_positives_and_negatives_of_triplets():
    labels = np.array([0, 0, 0, 1, 1, 2])
    law = {}
    for a, p, n in permutations(range(6), 3):
        if labels[a] == labels[p] != labels[n]:
            law[a, p, n] = 1 / 5 / (labels == labels[a]).sum(where=np.arange(6) != a) / (labels != labels[a]).sum()
    plans = np.concatenate(epochs(TripletSampler(labels, 3))).reshape(-1, 3)
    assert_law(map(tuple, plans.tolist()), law)


def test_anchors_positives_and_negatives_of_smart_mining():
    sampler = SmartMiningSampler([0, 0, 0, 1, 1, 2], 4, negatives=2, neighbors=3, normalize=False, rounds=1)
    sampler.refit([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    near = {0: (3, 4, 5), 1: (3, 4, 5), 2: (3, 4, 5), 3: (2, 1, 5), 4: (5, 2, 1)}
    members = {0: (1, 2), 1: (0, 2), 2: (0, 1), 3: (4,), 4: (3,)}
    law = {}
    for anchor, others in members.items():
        for positive, drawn in product(others, permutations(near[anchor], 2)):
            law[anchor, positive, *drawn] = 1 / 5 / len(others) / 6
    assert_law([tuple(plan[0].tolist()) for plan in epochs(sampler)], law)


def test_clusters_classes_and_samples_of_batches_within_clusters():
    members = {0: {0: (0, 1), 1: (2, 3, 4), 2: (5, 6)}, 1: {0: (9, 10), 3: (7, 8)}}  # of each cluster
    labels = [0, 0, 1, 1, 1, 2, 2, 3, 3, 0, 0]
    sampler = ClusterSampler(labels, 2, m=1, clusters=2)
    sampler.refit([[0.0, 1.0]] * 7 + [[1.0, 0.0]] * 4)
    law = {}
    for classes in members.values():
        pairs = list(permutations(classes, 2))
        for one, other in pairs:
            for drawn in product(classes[one], classes[other]):
                law[drawn] = 1 / 2 / len(pairs) / len(classes[one]) / len(classes[other])
    assert_law([tuple(plan[0].tolist()) for plan in epochs(sampler)], law)


def test_no_sampler_is_forgotten():
    tested = {cls.__name__ for cls in globals().values() if isinstance(cls, type) and cls.__name__.endswith("Sampler")}
    assert {method.name for method in METHODS if method.kind == "sampler"} <= tested
