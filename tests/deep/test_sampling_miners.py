"""Easy, extreme, random and distance weighted miners: choices equal the loops, draws have the stated chances."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar import DistanceWeighted, EasyPositive, ExtremeDistance, RandomNegative
from nearfar.deep.miners.offline import mine_offline
from nearfar.deep.pairwise.comparison import Comparison
from nearfar.deep.rng import draw, drawn_again, generators

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, -1])
MINERS = [
    EasyPositive("hard"),
    EasyPositive("semi_hard"),
    EasyPositive("all"),
    ExtremeDistance("easiest", "easiest"),
    ExtremeDistance("assorted", "assorted"),
    RandomNegative(),
    RandomNegative(3),
    DistanceWeighted(),
]
every_miner = pytest.mark.parametrize("miner", MINERS, ids=repr)


def compare(y=Y, seed=0, dim=4, normalize=True):
    x = torch.randn(len(y), dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    c = Comparison(x, y, x, y, slice(0, len(y)), True, "sq_euclidean", normalize).prepared()
    return x, c.block(c.x, c.ref, 0, len(y))


def chosen(mined):
    positive, negative, keep = mined.triplets
    return {(int(a), int(positive[a, k])): int(negative[a, k]) for a, k in keep.nonzero()}


def reference(stem):
    return import_module(f"tests.references.{stem}").reference


# Easy positives, extremes and informative pairs


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("distance", ["sq_euclidean", "euclidean", "cosine", "dot"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_informative_pairs_equal_the_loops_whatever_the_distance(distance, epsilon):
    x, _ = compare()
    c = Comparison(x, Y, x, Y, slice(0, len(Y)), True, distance, True).prepared()
    mined = nearfar.InformativePairs(epsilon)(c.block(c.x, c.ref, 0, len(Y)))
    near, far = reference("informative_pairs")((c.x @ c.x.T).tolist(), Y.tolist(), epsilon)
    assert {(int(a), int(p)) for a, p in mined.pos.nonzero()} == near
    assert {(int(a), int(n)) for a, n in mined.neg.nonzero()} == far
    assert 0 < len(far) < len(Y) ** 2


def test_informative_pairs_are_those_of_the_multi_similarity_loss():
    x, _ = compare()
    c = Comparison(x, Y, x, Y, slice(0, len(Y)), True, "cosine", True).prepared()
    miner = nearfar.InformativePairs(0.2)
    mined = miner(c.block(c.x, c.ref, 0, len(Y)))
    left, known = (mined.pos | mined.neg).any(1).sum(), (Y >= 0).sum()
    assert 0 < left < known  # inside the loss, anchors that lost their pairs count in the mean
    apart, within = nearfar.MultiSimilarityLoss(miner=miner)(x, Y), nearfar.MultiSimilarityLoss(epsilon=0.2)(x, Y)
    torch.testing.assert_close(left * apart, known * within)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("seed", range(5))
def test_easy_positive_equals_the_loops(seed):
    _, rows = compare(seed=seed)
    assert chosen(EasyPositive()(rows)) == reference("easy_positive")(rows.d.tolist(), Y.tolist())


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("positive", ["easiest", "hardest"])
@pytest.mark.parametrize("negative", ["easiest", "hardest"])
@pytest.mark.parametrize("seed", range(3))
def test_extremes_equal_the_loops(positive, negative, seed):
    _, rows = compare(seed=seed)
    found = chosen(ExtremeDistance(positive, negative)(rows))
    assert found == reference("extreme_distance")(rows.d.tolist(), Y.tolist(), positive, negative)


def test_hardest_and_hardest_is_batch_hard_and_the_largest_loss():
    x, rows = compare()
    assert chosen(ExtremeDistance()(rows)) == chosen(nearfar.BatchHard()(rows))
    losses = {
        (p, n): nearfar.TripletLoss(miner=ExtremeDistance(p, n), reduction="valid")(x, Y)
        for p in ("easiest", "hardest")
        for n in ("easiest", "hardest")
    }
    assert max(losses.values()) == losses["hardest", "hardest"]


def test_assorted_draws_every_combination():
    torch.manual_seed(0)
    _, rows = compare()
    miner = ExtremeDistance("assorted", "assorted")
    seen = {item for _ in range(60) for item in chosen(miner(rows)).items()}
    for p in ("easiest", "hardest"):
        for n in ("easiest", "hardest"):
            assert set(reference("extreme_distance")(rows.d.tolist(), Y.tolist(), p, n).items()) <= seen


def test_semi_hard_negatives_are_the_nearest_beyond_the_easy_positive():
    _, rows = compare()
    mined = EasyPositive("semi_hard")(rows)
    easy = dict(chosen(EasyPositive()(rows)).keys())
    beyond = 0
    for a, p in easy.items():
        farther = [k for k in range(len(Y)) if rows.neg[a, k] and rows.d[a, k] > rows.d[a, p]]
        if farther:
            assert chosen(mined)[a, p] == min(farther, key=lambda k: rows.d[a, k])
            beyond += 1
    assert len(chosen(mined)) == beyond > 0


def test_all_negatives_stay_in_the_hinge_form():
    x, rows = compare()
    mined = EasyPositive("all")(rows)
    anchors = rows.pos.any(1)
    assert torch.equal(mined.neg[anchors], rows.neg[anchors])
    assert not mined.neg[~anchors].any()
    total, active = 0.0, 0
    for a in anchors.nonzero()[:, 0]:
        d_ap = rows.d[a][rows.pos[a]].min()
        hinge = (d_ap - rows.d[a][rows.neg[a]] + 0.5).clamp_min(0)
        total, active = total + hinge.sum(), active + int((hinge > 0).sum())
    assert nearfar.TripletLoss(0.5, miner=EasyPositive("all"))(x, Y).item() == pytest.approx(float(total) / active)


def test_two_samples_per_class_have_one_easy_positive():
    y = torch.arange(8) // 2
    x, _ = compare(y)
    loss, easy = (
        nearfar.NPairLoss(reg=0, normalize=True),
        nearfar.NPairLoss(reg=0, normalize=True, miner=EasyPositive("all")),
    )
    torch.testing.assert_close(easy(x, y), loss(x, y))
    one_rival = nearfar.NPairLoss(reg=0, normalize=True, miner=EasyPositive("hard"))(x, y)
    assert one_rival < loss(x, y)


def test_duplicates_are_passed_over_only_when_asked():
    x, _ = compare()
    x[1] = x[0]
    c = Comparison(x, Y, x, Y, slice(0, len(Y)), True, "sq_euclidean", False)
    rows = c.block(x, x, 0, len(Y))
    assert (0, 1) in chosen(EasyPositive()(rows))
    assert (0, 2) in chosen(EasyPositive(duplicate=1e-9)(rows))


# Draws


def frequencies(miner, rows, draws):
    counts = Counter()
    for _ in range(draws):
        counts.update(chosen(miner(rows)).items())
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 16])
@pytest.mark.parametrize(("miner", "stem"), [(RandomNegative(), "random_negative"), (DistanceWeighted(), "")])
def test_draws_have_the_stated_chances(miner, stem, dim):
    torch.manual_seed(0)
    _, rows = compare(dim=dim)
    if stem:
        expected = reference(stem)(rows.d.tolist(), Y.tolist())
    else:
        expected = reference("distance_weighted")(rows.d.tolist(), Y.tolist(), dim)
    draws = 400
    counts = frequencies(miner, rows, draws)
    assert {pair for pair, _ in counts} == set(expected)
    for pair, chances in expected.items():
        assert all(n in chances for (seen, n) in counts if seen == pair)
        for n, p in chances.items():
            assert abs(counts[pair, n] - draws * p) < 5 * math.sqrt(draws * p * (1 - p)) + 1e-9


def test_k_random_triplets_per_anchor_average_to_all_triplets():
    torch.manual_seed(0)
    _, rows = compare()
    mined = RandomNegative(500)(rows)
    positive, negative, keep = mined.triplets
    some = rows.pos.any(1) & rows.neg.any(1)
    assert torch.equal(keep.any(1), some)
    assert keep[some].all()
    gap = (rows.d.gather(1, positive) - rows.d.gather(1, negative) + 0.2).clamp_min(0)[some].mean(1)
    for mean, a in zip(gap, some.nonzero()[:, 0], strict=True):
        every = (rows.d[a][rows.pos[a]][:, None] - rows.d[a][rows.neg[a]] + 0.2).clamp_min(0)
        assert abs(mean - every.mean()) < 5 * every.std() / math.sqrt(500) + 1e-9


def test_a_row_without_near_negatives_draws_uniformly():
    y = torch.tensor([0, 0, 1, 1])
    x = torch.tensor([[1.0, 0], [1.0, 0.01], [-1.0, 0], [-1.0, 0.01]], dtype=torch.float64)
    c = Comparison(x, y, x, y, slice(0, 4), True, "sq_euclidean", True).prepared()
    rows = c.block(c.x, c.ref, 0, 4)
    torch.manual_seed(0)
    counts = frequencies(DistanceWeighted(), rows, 200)
    assert all(counts[(0, 1), n] > 60 for n in (2, 3))


def test_opposite_rows_are_drawn_where_the_limit_lets_them():
    y = torch.tensor([0, 0, 1, 1])
    x = torch.tensor([[1.0, 0, 0, 0], [1.0, 0, 0, 0.1], [-1.0, 0, 0, 0], [-1.0, 0, 0, 0.1]], dtype=torch.float64)
    c = Comparison(x, y, x, y, slice(0, 4), True, "sq_euclidean", True).prepared()
    rows = c.block(c.x, c.ref, 0, 4)
    rows = rows._replace(d=rows.d * (1 + 1e-6))  # rounding may leave a distance above 2
    torch.manual_seed(0)
    counts = frequencies(DistanceWeighted(limit=3.0), rows, 50)
    assert {pair for pair, _ in counts} == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert counts[(0, 1), 2] > 25, "the farther, the rarer, and so the likelier to be drawn"


def test_high_dimensions_do_not_underflow():
    _, rows = compare(dim=512)
    assert set(chosen(DistanceWeighted(limit=1.7)(rows))) == set(chosen(RandomNegative()(rows)))


def test_draw_never_takes_a_weight_of_zero():
    torch.manual_seed(0)
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    columns, some = draw(weights, torch.rand(2, 1000, dtype=torch.float64))
    assert set(columns[0].tolist()) == {1, 3}
    assert abs((columns[0] == 3).float().mean() - 0.75) < 0.06
    assert some[0].all()
    assert not some[1].any()


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("seed", [0, 1, 2**62 - 1])
def test_draws_are_uniform_and_independent(seed, stream):
    _, rows = compare()
    rows = rows._replace(d=rows.d.new_zeros(500, 3), seed=torch.tensor(seed))
    drawn = rows.uniform(torch.arange(400), stream)
    assert drawn.shape == (500, 400)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    expected = drawn.numel() / 20
    squares = (torch.histc(drawn, 20, 0, 1) - expected).square().sum() / expected
    assert 4 < squares < 55  # chi-squared with 19 degrees of freedom: each side has a probability below 1e-4
    correlations = torch.corrcoef(torch.stack([drawn[:-1, :-1], drawn[1:, :-1], drawn[:-1, 1:]]).flatten(1))
    assert (correlations - torch.eye(3)).abs().max() < 5 / math.sqrt(drawn.numel())


def test_draws_follow_from_seed_anchor_and_number_alone():
    _, rows = compare()
    rows = rows._replace(seed=torch.tensor(5))
    numbers = torch.arange(7)
    whole = rows.uniform(numbers)
    part = rows._replace(d=rows.d[4:6], first=4).uniform(numbers[2:5].expand(2, 3))
    assert torch.equal(part, whole[4:6, 2:5])
    others = [rows.uniform(numbers, stream=1), rows._replace(seed=torch.tensor(6)).uniform(numbers)]
    assert not any((whole == other).any() for other in others)
    with pytest.raises(ValueError, match="rows have a seed only if the miner has `draws = True`"):
        rows._replace(seed=None).uniform(numbers)


# All of them in losses


@every_miner
@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [0, 0, -1]], ids=str)
def test_a_miner_that_finds_nothing_never_raises(miner, labels):
    x = torch.randn(len(labels), 3, requires_grad=True)
    value = nearfar.TripletLoss(miner=miner)(x, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


@every_miner
@pytest.mark.parametrize("loss", ["TripletLoss", "MarginLoss", "ContrastiveLoss", "NPairLoss", "NTXentLoss"])
def test_mined_losses_are_finite_with_a_gradient(miner, loss):
    torch.manual_seed(0)
    x, _ = compare()
    x[1], x[6] = x[0], x[5]
    x.requires_grad_()
    value = getattr(nearfar, loss)(miner=miner)(x, Y)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert x.grad.any() or value == 0  # easy triplets may all be satisfied


@every_miner
@pytest.mark.parametrize("block", [1, 5])
def test_choices_do_not_depend_on_the_block(miner, block):
    x, _ = compare()
    results = []
    for size in (None, block):
        torch.manual_seed(3)
        z = x.clone().requires_grad_()
        value = nearfar.TripletLoss(0.5, miner=miner, block=size)(z, Y)
        value.backward()
        results.append((value, z.grad))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("miner", [RandomNegative(2), ExtremeDistance("assorted"), DistanceWeighted()], ids=repr)
@pytest.mark.parametrize(
    "loss",
    [
        partial(nearfar.TripletLoss, 0.5, reduction="sum"),
        partial(nearfar.BinomialDevianceLoss, reduction="balanced"),  # two numerators: computed again, see `sweep`
        nearfar.LiftedLoss,
        partial(nearfar.TripletGlobalLoss, over="triplets"),
        nearfar.IntraPairVarianceLoss,
    ],
    ids=["triplet", "deviance", "lifted", "global", "variance"],
)
def test_blocks_repeat_their_draws_in_the_backward_pass(miner, loss):
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, -1])  # four blocks of three anchors
    x, _ = compare(y, dim=3)

    def value(z):
        torch.manual_seed(3)
        return loss(miner=miner, block=3)(z, y)

    assert torch.autograd.gradcheck(value, (x.requires_grad_(),), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [nearfar.LiftedLoss, partial(nearfar.TripletGlobalLoss, over="triplets"), nearfar.IntraPairVarianceLoss],
)
def test_a_first_pass_and_statistics_draw_what_counts(loss):
    x, _ = compare()
    y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, -1])
    results = []
    for block in (None, 3):
        term = loss(miner=RandomNegative(), block=block).collect_stats()
        torch.manual_seed(3)
        value = term(x[:12], y[:12])
        state = torch.get_rng_state()
        assert term.stats_
        assert torch.equal(torch.get_rng_state(), state)
        results.append((value, state))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "miner", [m for m in MINERS if m.__class__ is not EasyPositive or m.negative != "all"], ids=repr
)
def test_offline_mining_in_one_block_is_online(miner):
    x, rows = compare()
    torch.manual_seed(5)
    online = miner(rows).triplets
    torch.manual_seed(5)
    found = mine_offline(miner, x, Y)
    expected = [[a, int(online.positive[a, k]), int(online.negative[a, k])] for a, k in online.keep.nonzero().tolist()]
    assert found.tolist() == expected


@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize(
    "miner", [ExtremeDistance("easiest", "hardest"), RandomNegative(2), DistanceWeighted()], ids=repr
)
def test_offline_mining_does_not_depend_on_the_block(miner, block):
    x, _ = compare()
    found = []
    for size in (block, 1024):
        torch.manual_seed(3)
        found.append(mine_offline(miner, x, Y, block=size).sort(0).values)
    assert torch.equal(*found)


def test_offline_mining_of_nothing_and_of_masks():
    assert mine_offline(ExtremeDistance(), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"mine_offline: distance must be one of 'sq_euclidean', .* got 'euclidian'"):
        mine_offline(ExtremeDistance(), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), distance="euclidian")
    with pytest.raises(ValueError, match=r"mine_offline: BatchAll.* chooses no triplets"):
        mine_offline(nearfar.BatchAll(), torch.randn(4, 3), [0, 0, 1, 1])
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        mine_offline(ExtremeDistance(), torch.randn(4, 3), [0, 0, 1, 1], block=0)


@pytest.mark.slow
@every_miner
def test_mining_compiles_whole(miner):
    torch.compiler.reset()  # every compiled call counts towards one limit
    x, _ = compare()
    loss = torch.compile(nearfar.TripletLoss(0.5, miner=miner), fullgraph=True, backend="aot_eager")
    value = loss(x.requires_grad_(), Y)
    value.backward()
    assert x.grad.isfinite().all()
    if miner in MINERS[:4]:
        torch.testing.assert_close(value, nearfar.TripletLoss(0.5, miner=miner)(x, Y))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: EasyPositive("easy"), "EasyPositive: negative must be one of 'hard', 'semi_hard', 'all'; got 'easy'"),
        (lambda: ExtremeDistance("nearest"), "ExtremeDistance: positive must be one of .* got 'nearest'"),
        (lambda: ExtremeDistance("easiest", "far"), "ExtremeDistance: negative must be one of .* got 'far'"),
        (lambda: RandomNegative(0), "RandomNegative: k must be at least 1, got 0"),
        (lambda: DistanceWeighted(1.5, 1.4), "DistanceWeighted: needs 0 < cutoff < limit, got 1.5 and 1.4"),
    ],
)
def test_bad_settings_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_draws_are_repeated_and_leave_the_generator_where_it_was():
    start = generators(torch.device("cpu"))
    first = torch.rand(3)
    place = torch.get_rng_state()
    with drawn_again(start):
        torch.testing.assert_close(torch.rand(3), first, rtol=0, atol=0)
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), place)
    with pytest.raises(ZeroDivisionError), drawn_again(start):
        1 / torch.rand(1).new_zeros(()).long().item()
    assert torch.equal(torch.get_rng_state(), place)
