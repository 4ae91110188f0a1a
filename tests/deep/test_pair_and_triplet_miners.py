"""Miners by margins, ranges of hardness, histograms and angles choose what the plain loops choose."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import sqrt

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import BatchSemiHard, EasyHard, PairMargins, RandomSubset, UniformHistogram, WideAngles
from nearfar.deep.pairwise.comparison import Comparison
from tests.references import easy_hard, pair_margins, random_subset, uniform_histogram, wide_angles

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, -1])
MINERS = [
    PairMargins(0.6, 1.8),
    EasyHard(),
    EasyHard("all", "hard"),
    EasyHard("hard", "easy", positive_range=(0.3, 3.0)),
    RandomSubset(2),
    RandomSubset(1, WideAngles(25)),
    UniformHistogram(3),
    WideAngles(25),
]
every_miner = pytest.mark.parametrize("miner", MINERS, ids=repr)


def compare(seed=0, distance="sq_euclidean"):
    x = torch.randn(len(Y), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    c = Comparison(x, Y, x, Y, slice(0, len(Y)), True, distance, True).prepared()
    return x, c.block(c.x, c.ref, 0, len(Y))


def listed(mask):
    return {(int(a), int(k)) for a, k in mask.nonzero()}


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("margins", [(0.2, 0.8), (1.0, 2.0), (-1.0, 9.0)])
def test_pair_margins_equal_the_loops(margins):
    _, rows = compare()
    mined = PairMargins(*margins)(rows)
    near, far = pair_margins.reference(rows.d.tolist(), Y.tolist(), *margins)
    assert (listed(mined.pos), listed(mined.neg)) == (near, far)


STRATEGIES = ("easy", "hard", "semi_hard", "all")
PAIRS = [pair for pair in product(STRATEGIES, STRATEGIES) if set(pair) not in ({"semi_hard"}, {"semi_hard", "all"})]


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("ranges", [(None, None), ((0.5, 2.5), (1.0, 3.0)), ((9.0, 10.0), None)], ids=str)
@pytest.mark.parametrize(("positive", "negative"), PAIRS)
def test_easy_and_hard_equal_the_loops(positive, negative, ranges):
    for seed in range(3):
        _, rows = compare(seed)
        mined = EasyHard(positive, negative, positive_range=ranges[0], negative_range=ranges[1])(rows)
        near, far = easy_hard.reference(rows.d.tolist(), Y.tolist(), positive, negative, *ranges)
        assert (listed(mined.pos), listed(mined.neg)) == (near, far)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("angle", [5.0, 20.0, 45.0, 80.0])
@pytest.mark.parametrize("distance", ["sq_euclidean", "cosine"])
def test_wide_angles_equal_the_loops(angle, distance):
    x, rows = compare(distance=distance)
    positive, negative, keep = WideAngles(angle)(rows).triplets
    found = {(int(a), int(positive[a, k]), int(negative[a, k])) for a, k in keep.nonzero()}
    assert found == wide_angles.reference(torch.nn.functional.normalize(x).tolist(), Y.tolist(), angle)
    assert found or angle == 80


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize(("bins", "per_bin"), [(3, 1), (4, 2), (1, 3), (50, 1)])
def test_every_bin_gives_what_it_has(bins, per_bin):
    _, rows = compare()
    mined = UniformHistogram(bins, per_bin)(rows)
    for similar, mask in ((True, mined.pos), (False, mined.neg)):
        expected = uniform_histogram.reference(rows.d.tolist(), Y.tolist(), similar, bins)
        chosen = {a: {k for b, k in listed(mask) if b == a} for a in range(len(Y))}
        for (a, _), columns in expected.items():
            assert len(chosen[a] & columns) == min(per_bin, len(columns))
        assert sum(map(len, chosen.values())) == sum(min(per_bin, len(columns)) for columns in expected.values())


def tuples(rows):
    if rows.triplets is None:
        return {(a, k, similar) for similar, mask in ((True, rows.pos), (False, rows.neg)) for a, k in listed(mask)}
    positive, negative, keep = rows.triplets
    return {(int(a), int(positive[a, k]), int(negative[a, k])) for a, k in keep.nonzero()}


@pytest.mark.parametrize("miner", [None, PairMargins(0.6, 1.8), BatchSemiHard(), WideAngles(25)], ids=repr)
@pytest.mark.parametrize("k", [1, 2, 50])
def test_a_subset_draws_every_tuple_of_an_anchor_with_its_chance(miner, k):
    torch.manual_seed(0)
    _, rows = compare()
    mined = rows if miner is None else miner(rows)
    every = tuples(mined)
    kinds = (
        [every] if mined.triplets is not None else [{one for one in every if one[2] == kind} for kind in (True, False)]
    )
    draws = 200
    counts = Counter()
    for _ in range(draws):
        found = RandomSubset(k, miner)(rows)
        counts.update(tuples(found))
        assert max(Counter(one[0] for one in tuples(found) & kinds[0]).values()) <= k
    for kind in kinds:
        for one, chance in random_subset.reference(kind, k).items():
            assert abs(counts[one] - draws * chance) <= 5 * sqrt(draws * chance * (1 - chance))


def test_members_of_a_bin_are_equally_likely():
    torch.manual_seed(0)
    _, rows = compare()
    draws = 300
    counts = Counter()
    for _ in range(draws):
        counts.update(listed(UniformHistogram(2)(rows).neg))
    for (a, _), columns in uniform_histogram.reference(rows.d.tolist(), Y.tolist(), False, 2).items():
        share = draws / len(columns)
        assert all(abs(counts[a, k] - share) <= 5 * sqrt(share) for k in columns)


@every_miner
@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [0, 0, -1]], ids=str)
def test_a_miner_that_finds_nothing_never_raises(miner, labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = nearfar.TripletLoss(miner=miner)(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


@every_miner
@pytest.mark.parametrize("loss", ["TripletLoss", "MarginLoss", "ContrastiveLoss", "LiftedLoss"])
def test_neither_blocks_nor_duplicates_change_a_loss(miner, loss):
    x, _ = compare()
    x[1] = x[0]
    results = []
    for block in (None, 4):
        torch.manual_seed(3)
        z = x.clone().requires_grad_()
        value = getattr(nearfar, loss)(miner=miner, block=block)(z, Y)
        value.backward()
        assert z.grad.isfinite().all()
        results.append((value.detach(), z.grad))
    torch.testing.assert_close(*results)


def test_angles_of_made_triplets_are_unknown():
    loss = nearfar.AdversarialTriplet(4, loss=nearfar.TripletLoss(miner=WideAngles())).double()
    with pytest.raises(ValueError, match="WideAngles: needs the vectors of the batch"):
        loss(compare()[0], Y)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: EasyHard("easiest"), "EasyHard: positive must be one of 'easy', 'hard', 'semi_hard', 'all'"),
        (lambda: EasyHard("semi_hard", "semi_hard"), 'cannot both be "semi_hard"'),
        (lambda: EasyHard("all"), '"semi_hard" needs a single sample on the other side, not "all"'),
        (lambda: EasyHard("easy", "hard", negative_range=(2, 1)), "negative_range must have the lower number first"),
        (lambda: EasyHard("easy", "hard", positive_range=3), "positive_range must be two numbers"),
        (lambda: RandomSubset(0), "RandomSubset: k must be at least 1, got 0"),
        (lambda: UniformHistogram(0), "UniformHistogram: bins must be at least 1, got 0"),
        (lambda: UniformHistogram(per_bin=0), "UniformHistogram: per_bin must be at least 1, got 0"),
        (lambda: WideAngles(90), "WideAngles: angle is in degrees, between 0 and 90, got 90"),
    ],
)
def test_bad_settings_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()
